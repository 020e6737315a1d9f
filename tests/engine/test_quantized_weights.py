"""int8 and int4 folders: smaller, close, and the same model for torch and the native engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch

import regard
from regard.api import Model
from regard.api.open_light import open_light
from regard.decode import Request, Search
from regard.engine.native_engine import PRECISIONS, NativeEngine
from regard.engine.quantized_weights import pack_weights, quantize_blocks, quantize_weights, restore_weights
from regard.engine.torch_engine import TorchEngine
from regard.engine.write_plan import describe_model
from regard.errors import CheckpointError, SpecError
from regard.families import llama, transformer
from regard.files.folder import WEIGHTS, read_folder
from regard.files.storage import DISK
from regard.files.tensors import list_tensors, pack, unpack
from regard.tasks.lm import Lm, LmData
from regard.tasks.translate import Translate, TranslateData
from regard.text import Bpe, Chars, Tokenizer
from tests.engine.models import FAMILIES, SPECIAL, VOCAB, build, make_sources

pytestmark = pytest.mark.numeric
TEXTS = ["the cat sat on the mat", "a dog runs in the park", "two men play music", "the dog sat"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    tokenizer, home = Tokenizer.train(TEXTS, Bpe(vocab=60)), tmp_path_factory.mktemp("int8")
    net = build(transformer.spec(width=64, depth=2, heads=4, hidden=128, vocab=tokenizer.size, dropout=0.0, length=14))
    task = Translate(TranslateData(max_length=12), tokenizer)
    model = Model(TorchEngine(net), task, Search(beam=1, max_extra=5), Path("x")).save(home / "model")
    (home / "sample").write_text("\n".join(TEXTS))
    found = regard.convert(model, home / "small", to="int8", sample=home / "sample")
    assert found.proof is not None and found.proof.texts == len(TEXTS)
    assert found.kind == "int8" and "bytes became" in found.notes[0]
    return model, home / "small"


def test_the_folder_is_smaller_and_runs_on_every_engine(folders: tuple[Path, Path]) -> None:
    large, small = (len(read_folder(folder)[WEIGHTS]) for folder in folders)
    assert small < 0.45 * large
    native, light = regard.load(folders[1]), open_light(folders[1])
    assert native.engine.name == "native" and native.choice.precision == "int8" and light is not None
    texts = [outputs[0].text for batch in light.run_lazily(TEXTS) for _, outputs in batch]
    assert texts == native.run(TEXTS)
    exact, rough = (regard.load(f, engine="torch").score(TEXTS, TEXTS) for f in folders)
    assert all(abs(a - b) < 0.05 * abs(a) for a, b in zip(exact, rough, strict=True))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A language model as it is, and with blocks of 4 bits."""
    tokenizer, home = Tokenizer.train(TEXTS, Chars()), tmp_path_factory.mktemp("int4")
    net = llama.spec(width=96, depth=2, heads=3, hidden=128, vocab=tokenizer.size, length=32).build(seed=1).eval()
    model = Model(TorchEngine(net), Lm(LmData(context=32), tokenizer), Search(beam=1, max_extra=9), Path("x")).save(
        home / "model"
    )
    (home / "sample").write_text("\n".join(TEXTS))
    assert regard.convert(model, home / "small", to="int4", sample=home / "sample").kind == "int4"
    return model, home / "small"


def test_blocks_of_4_bits_run_on_every_engine(large: tuple[Path, Path]) -> None:
    whole, small = (len(read_folder(folder)[WEIGHTS]) for folder in large)
    assert small < 0.22 * whole
    native, light, torch_ = regard.load(large[1]), open_light(large[1]), regard.load(large[1], engine="torch")
    assert native.choice.precision == "int4" and light is not None
    assert native.run(TEXTS) == [outputs[0].text for batch in light.run_lazily(TEXTS) for _, outputs in batch]
    exact, rough = regard.load(large[0], engine="torch").score(TEXTS, TEXTS), torch_.score(TEXTS, TEXTS)
    assert all(abs(a - b) < 0.02 * abs(a) for a, b in zip(exact, rough, strict=True))
    with pytest.raises(SpecError, match="has quantized weights already"):
        regard.convert(large[1], large[1].parent / "again", to="int8")


def test_blocks_come_back() -> None:
    """Within half a step of 8 bits; of 4 bits, no worse than the plainest rounding."""
    draw = torch.Generator().manual_seed(1)
    matrix = torch.randn(50, 96, generator=draw) * torch.rand(50, 1, generator=draw) + 0.01
    matrix[3] = 0.0
    blocks = matrix.unflatten(1, (-1, 32))
    for bits in (8, 4):
        stored = quantize_blocks(matrix, bits)
        back = restore_weights({f"a{suffix}": part for suffix, part in stored.items()})["a"].unflatten(1, (-1, 32))
        if bits == 8:
            assert bool(((back - blocks).abs() <= 0.51 * blocks.abs().amax(2, keepdim=True) / 127 + 1e-6).all())
            continue
        low, high = blocks.amin(2, keepdim=True), blocks.amax(2, keepdim=True)
        plain = low + ((blocks - low) / ((high - low).clamp(min=1e-9) / 15)).round() * (high - low) / 15
        assert float((back - blocks).square().sum()) < 0.95 * float((plain - blocks).square().sum())


@pytest.mark.parametrize("to", ["int8", "int4"])
@pytest.mark.parametrize("name", ["pre", "llama", "t5"])
def test_panels_are_the_same_weights(name: str, to: Literal["int8", "int4"]) -> None:
    """Packed when written, or when loaded: torch and the engine read the same numbers, and tied weights stay tied."""
    net = build(FAMILIES[name])
    plan, path = describe_model(net), Path(WEIGHTS)
    rows = quantize_weights(net.state_dict(), plan, to)
    data, sources = pack_weights(rows, plan), make_sources(net, 5)
    found, wanted = (restore_weights(unpack(file, path)) for file in (data, pack(rows)))
    assert found.keys() == wanted.keys() and all(torch.equal(found[key], wanted[key]) for key in wanted)
    targets = [[5, 9, 7, SPECIAL.eos]] * len(sources)
    one, other = (
        NativeEngine.open(plan, file, precision=to, threads=1).score(sources, targets, SPECIAL)
        for file in (data, pack(rows))
    )
    assert one == other


def test_maps_of_one_input_are_read_where_they_lie(folders: tuple[Path, Path]) -> None:
    """Queries, keys and values lie behind one another, on cache lines: the engine copies none of them."""
    folder = read_folder(folders[1], map_weights=True)
    assert folder.mapped is not None and WEIGHTS in folder and WEIGHTS not in folder.files
    tensors = list_tensors(folder.weights, folder.path)
    for block in ("encoder.blocks.0", "decoder.blocks.1"):
        q, k, v = (tensors[f"{block}.mix.{part}.weight"] for part in "qkv")
        assert q.dtype == "U8" and q.start % 64 == 0 and len(q.shape) == 4
        assert k.start == q.start + 64 * 64 and v.start == k.start + 64 * 64
    assert read_folder(folders[1])[WEIGHTS] == folder.weights[:]


def test_rows_come_back_within_half_a_step() -> None:
    net = build(FAMILIES["transformer"])
    weights = dict(net.state_dict())
    stored = quantize_weights(weights, describe_model(net))
    back = restore_weights(stored)
    assert back.keys() == weights.keys()
    for name, tensor in weights.items():
        step = tensor.abs().amax(-1, keepdim=True) / 127 if stored[name].dtype == torch.int8 else torch.zeros(1)
        assert bool(((back[name] - tensor).abs() <= 0.501 * step).all()), name
    again = quantize_weights(back, describe_model(net))
    assert all(torch.equal(again[name], stored[name]) for name in stored if not name.endswith(".scale"))


def test_int8_without_scales_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the weight a is int8 and has no scales of its rows or blocks"):
        restore_weights({"a": torch.zeros(2, 3, dtype=torch.int8)})
    for scale in (torch.zeros(2, 2), torch.zeros(2, 1, dtype=torch.int32), torch.zeros(2)):
        with pytest.raises(CheckpointError, match="the weight a is uint8 and has no scales"):
            restore_weights({"a": torch.zeros(2, 16, dtype=torch.uint8), "a.scale": scale, "a.min": scale})
    for packed, shape in (
        ((1, 2, 16, 4), (17, 8)),
        ((1, 2, 16, 4), (16, 9)),
        ((1, 2, 99), (16, 64)),
        ((1, 2, 320), (0, 64)),
    ):
        with pytest.raises(CheckpointError, match="the weight a is in panels that do not fit its shape and scales"):
            weights = {"a": torch.zeros(packed, dtype=torch.uint8), "a.shape": torch.tensor(shape)}
            restore_weights({**weights, "a.scale": torch.zeros(16)})
    with pytest.raises(SpecError, match="convert it to regard first, then to int8"):
        regard.convert(tmp_path, tmp_path / "x", to="int8")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.skipif(os.name != "posix", reason="pages are released on POSIX only")
def test_weights_in_pages_compute_what_weights_in_bytes_do(tmp_path: Path, tied: bool) -> None:
    """Pages of what was packed are released, but not of what is read again: embeddings, and matrices of several parts."""
    net = build(transformer.spec(width=128, depth=2, heads=4, hidden=192, vocab=VOCAB * 8, dropout=0.0, tied=tied))
    plan, data, sources = describe_model(net), pack(net.state_dict()), make_sources(net)
    (tmp_path / WEIGHTS).write_bytes(data)
    for precision in PRECISIONS:
        pages = DISK.map(tmp_path / WEIGHTS)
        assert pages is not None
        one, other = (NativeEngine.open(plan, weights, precision=precision, threads=1) for weights in (data, pages))
        search = Search(beam=2, max_extra=5)
        assert one.decode(Request(sources, search, SPECIAL)) == other.decode(Request(sources, search, SPECIAL))
        start = list_tensors(data, tmp_path)["encoder.blocks.0.mix.q.weight"].start
        released = pages[start : start + 128 * 128 * 4] != data[start : start + 128 * 128 * 4]
        assert released or sys.platform != "linux"
