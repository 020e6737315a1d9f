"""Model folders: what goes out comes back, moved or not, and what does not fit is told in full."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.decode import Search
from regard.engine.engine_plan import PLAN
from regard.engine.torch_engine import TorchEngine
from regard.errors import CheckpointError, RegardError, SpecError
from regard.families import transformer
from regard.files.folder import WEIGHTS, Folder, read_folder, write_folder
from regard.files.tensors import pack
from regard.model.build import weight_faults
from regard.model.net import Net
from regard.serialization.load import load_model, load_task
from regard.serialization.model_card import metric_signatures, render_card
from regard.serialization.model_folder import CONFIG, FORMAT, write_model
from regard.tasks.common.capabilities import Generates, Scores, require
from regard.tasks.common.seq2seq import TextPairsOptions
from regard.tasks.translate import Translate, TranslateData
from regard.text import Chars, Tokenizer
from tests.hostile import whole
from tests.hostile.place import Place

pytestmark = pytest.mark.numeric

TEXTS = ["abc", "ba", "cab b"]


def made(joint: bool = True) -> tuple[Net, Translate]:
    settings = TranslateData(tokenizer=Chars(), joint_vocab=joint, max_length=14, metrics=("exact",))
    target, source = Tokenizer.train(TEXTS, Chars()), Tokenizer.train([*TEXTS, "xyz"], Chars(), tags=["<2de>"])
    task = Translate(settings, target, None if joint else source)
    sizes = {name: n for name, n in task.model_arguments().items() if name != "start"}  # only some families take it
    return transformer.spec(width=16, depth=1, heads=2, hidden=24, **sizes).build(3).eval(), task


@pytest.fixture
def model(tmp_path: Path) -> Path:
    net, task = made()
    path = tmp_path / "model"
    weights = dict(net.named_parameters())
    write_model(path, task=task, name="translate", net=net, search=Search(beam=2), weights=weights, card="# x")
    return path


def rewritten(path: Path, change: Callable[[Any], None], name: str = CONFIG) -> Folder:
    """The folder with one of its JSON files changed, and a manifest that vouches for it."""
    folder = read_folder(path)
    value = folder.json(name)
    change(value)
    write_folder(path, {**folder.files, name: json.dumps(value).encode()})
    return read_folder(path)


def with_weights(path: Path, change: Callable[[dict[str, Tensor]], None]) -> Folder:
    folder = read_folder(path)
    tensors = folder.tensors()
    change(tensors)
    write_folder(path, {**folder.files, WEIGHTS: pack(tensors)})
    return read_folder(path)


@pytest.mark.parametrize("joint", [True, False])
def test_there_and_back(tmp_path: Path, joint: bool) -> None:
    """The same spec, settings and weights; the same outputs and scores, also from another place."""
    net, task = made(joint)
    path, search = tmp_path / "model", Search(beam=3, n_best=2, alpha=0.3)
    weights = dict(net.named_parameters())
    write_model(path, task=task, name="translate", net=net, search=search, weights=weights, card="# x")
    moved = tmp_path / "elsewhere" / "new name"
    moved.parent.mkdir()
    shutil.move(path, moved)
    again, same, how = load_model(read_folder(moved))
    assert again.spec == net.spec
    assert not again.training
    assert (how, same.settings, same.files()) == (search, task.settings, task.files())
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
    options = TextPairsOptions() if joint else TextPairsOptions(tag="2de")
    assert require(same, Generates).run(TorchEngine(again), TEXTS, how, options) == task.run(
        TorchEngine(net), TEXTS, search, options
    )
    assert require(same, Scores).score(TorchEngine(again), TEXTS, TEXTS[::-1], options) == task.score(
        TorchEngine(net), TEXTS, TEXTS[::-1], options
    )


def test_what_is_in_a_folder(model: Path) -> None:
    files = {CONFIG, WEIGHTS, PLAN, "README.md", "tokenizer.json", "manifest.json"}
    assert {p.name for p in model.iterdir()} == files
    config = json.loads((model / CONFIG).read_text())
    assert (config["format"], config["task"]) == (FORMAT, "translate")
    assert config["model"]["decoder"]["block"]["cross"]["kind"] == "full"
    assert str(model.parent) not in (model / CONFIG).read_text(), "it can be moved"


def test_weights_in_other_precisions_are_read(model: Path) -> None:
    folder = with_weights(model, lambda w: w.update({k: v.bfloat16() for k, v in w.items()}))
    net, _, _ = load_model(folder)
    assert {p.dtype for p in net.parameters()} == {torch.float32}


def test_every_weight_that_does_not_fit_is_in_one_message(model: Path) -> None:
    def change(weights: dict[str, Tensor]) -> None:
        del weights["encoder.blocks.0.mix.q.weight"]
        del weights["decoder.blocks.0.cross.v.weight"]
        weights["encoder.blocks.7.mix.q.weight"] = torch.zeros(2)
        weights["decoder.blocks.0.feed.up.weight"] = torch.zeros(3, 16)
        weights["embed.weight"] = torch.zeros(weights["embed.weight"].shape, dtype=torch.int64)

    with pytest.raises(CheckpointError) as caught:
        load_model(with_weights(model, change))
    said = str(caught.value)
    assert "model.safetensors does not fit the model: " in said
    for part in (
        "encoder.blocks.0.mix.q.weight is missing",
        "decoder.blocks.0.cross.v.weight is missing",
        "encoder.blocks.7.mix.q.weight is not part of this model",
        "decoder.blocks.0.feed.up.weight should be (24, 16), got (3, 16)",
        "embed.weight should hold real numbers, got torch.int64",
    ):
        assert part in said
    assert caught.value.exit_code == 3


def test_a_wrong_change_is_not_blamed_on_the_folder(model: Path) -> None:
    for load in (load_model, load_task):
        with pytest.raises(SpecError, match=r"model: max_length: .*greater than or equal to 1"):
            load(read_folder(model), {"data": {"max_length": 0}})  # type: ignore[operator]


def test_no_faults() -> None:
    assert weight_faults({"a": (2, 3)}, {"a": torch.zeros(2, 3)}) == []


SPOILED: dict[str, tuple[Callable[[Any], None], str]] = {
    "unknown mixer": (lambda c: c["model"]["encoder"]["block"]["mix"].update(kind="os.system"), "no mixer 'os.system'"),
    "kind is nothing": (lambda c: c["model"]["encoder"]["block"]["mix"].update(kind=None), "no mixer None"),
    "kind is a list": (lambda c: c["model"]["encoder"]["block"]["mix"].update(kind=[1]), "no mixer [1]"),
    "unknown task": (lambda c: c.update(task="../../evil"), "no task '../../evil'"),
    "task is a number": (lambda c: c.update(task=3), "no task 3"),
    "unknown tokenizer": (lambda c: c["settings"].update(tokenizer="subprocess"), "no tokenizer 'subprocess'"),
    "unknown metric": (lambda c: c["settings"].update(metrics=["x"]), "no metric 'x'"),
    "unknown key": (lambda c: c["model"].update(widht=3), "no key 'widht'; did you mean 'width'"),
    "unknown way to decode": (lambda c: c["decode"].update(beem=3), "no key 'beem'; did you mean 'beam'"),
    "settings of a wrong type": (lambda c: c.update(settings=[1]), "is not the configuration of a model"),
    "model of a wrong type": (lambda c: c.update(model=3), "config.json: "),
    "decode of a wrong type": (lambda c: c.update(decode="x"), "config.json: "),
    "no model": (lambda c: c.pop("model"), "is not the configuration of a model"),
    "newer": (lambda c: c.update(format=2), "has format 2, this version reads 1; update regard"),
    "no layers": (
        lambda c: c["model"].update(encoder=None, decoder=None),
        "a model needs an encoder, a decoder or both",
    ),
    "too deep": (
        lambda c: c["model"]["encoder"].update(depth=10**9),
        "depth is 1,000,000,000; a stack may have at most 500 layers",
    ),
    "deeper than its weights": (
        lambda c: c["model"]["encoder"].update(depth=400),
        "encoder.depth is 400, but there are only",
    ),
    "too wide": (lambda c: c["model"].update(width=2**62, length=8), "config.json: "),
    "heads that do not divide": (lambda c: c["model"]["encoder"]["block"]["mix"].update(heads=3), "config.json: "),
    "fewer tokens": (lambda c: c["model"]["embed"].update(vocab=5), "the model only 5"),
}


@pytest.mark.parametrize(("change", "message"), SPOILED.values(), ids=SPOILED)
def test_a_configuration_we_cannot_use_is_an_error_of_ours(
    model: Path, change: Callable[[Any], None], message: str
) -> None:
    folder = rewritten(model, change)
    with pytest.raises(CheckpointError) as caught:
        load_model(folder)
    assert message in str(caught.value)


def test_a_configuration_that_is_no_object(model: Path) -> None:
    folder = read_folder(model)
    for data, message in ((b"[1]", "is not the configuration of a model"), (b"{", "is damaged: it is not JSON")):
        write_folder(model, {**folder.files, CONFIG: data})
        with pytest.raises(CheckpointError, match=message):
            load_model(read_folder(model))


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS, "tokenizer.json"])
def test_a_file_that_is_not_there_is_named(model: Path, name: str) -> None:
    folder = read_folder(model)
    write_folder(model, {key: data for key, data in folder.files.items() if key != name})
    with pytest.raises(CheckpointError, match=name):
        load_model(read_folder(model))


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"version": "1.0", "model": null}'])
def test_a_tokenizer_we_cannot_use(model: Path, data: bytes) -> None:
    write_folder(model, {**read_folder(model).files, "tokenizer.json": data})
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        load_model(read_folder(model))


def test_no_pickle(tmp_path: Path) -> None:
    """Not in what we write, and not read when somebody else did."""
    torch.save({"w": torch.zeros(1)}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="its weights are pickles"):
        read_folder(tmp_path)
    source = Path(__file__).parents[2] / "src" / "regard"
    trusted = source / "conversion" / "pickle_weights.py"  # asks first, and runs no code
    for path in set(source.rglob("*.py")) - {trusted}:
        text = path.read_text()
        assert "torch.load" not in text and "torch.save" not in text and "import pickle" not in text, path


def test_flipped_bits_are_found(model: Path) -> None:
    """Any byte of any file: opening says which file, and never anything but an error of ours."""
    for path in sorted(model.iterdir()):
        whole = path.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(RegardError):
                load_model(read_folder(model))
        path.write_bytes(whole)
    load_model(read_folder(model))


def test_a_card() -> None:
    text = render_card(
        "runs/x", {"bleu": 12.345678, "exact": 3.0}, {"bleu": "BLEU|a"}, {"step": 3, "versions": {"a": 1, "b": "x|y"}}
    )
    assert text.startswith("# runs/x\n")
    assert "| bleu | 12.35 | BLEU\\|a |" in text
    assert "| exact | 3 |  |" in text
    assert "| versions | a 1, b x\\|y |" in text
    assert 'regard.load("path/to/this/folder")' in text


def test_signatures_are_those_of_sacrebleu() -> None:
    found = metric_signatures(["bleu", "bleu_tokens", "chrf", "exact", "wer"])
    assert found["bleu"].startswith("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "|tok:none|" in found["bleu_tokens"]
    assert found["chrf"].startswith("chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert found["exact"] == found["wer"] == ""


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    """Otherwise outputs are empty and scores nan, without a word."""
    whole.make(tmp_path / "ours", tmp_path / "hf")
    weights = tmp_path / "ours" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-4:] = struct.pack("<f", float("nan"))
    weights.write_bytes(data)
    Place(tmp_path / "ours", tmp_path, tmp_path).seal()
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors does not fit the model: .* has values that are not numbers"
    ):
        regard.load(tmp_path / "ours")
    (tmp_path / "hf" / "model.safetensors").write_bytes(
        (tmp_path / "hf" / "model.safetensors").read_bytes()[:-4] + struct.pack("<f", float("nan"))
    )
    with pytest.raises(RegardError, match="has values that are not numbers"):
        regard.convert(tmp_path / "hf", tmp_path / "out")
