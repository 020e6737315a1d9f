"""int8 folders: smaller, close, and the same model for torch and the native engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import regard
from regard.api import Model
from regard.api.light_model import open_light
from regard.decode import Search
from regard.engine.int8_weights import quantize_weights, restore_weights
from regard.engine.write_plan import describe_model
from regard.errors import CheckpointError, SpecError
from regard.families import transformer
from regard.files.folder import WEIGHTS, read_folder
from regard.tasks.translate import Translate, TranslateData
from regard.text import Bpe, Tokenizer
from tests.engine.models import FAMILIES, build

pytestmark = pytest.mark.numeric
TEXTS = ["the cat sat on the mat", "a dog runs in the park", "two men play music", "the dog sat"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    tokenizer, home = Tokenizer.train(TEXTS, Bpe(vocab=60)), tmp_path_factory.mktemp("int8")
    net = build(transformer.spec(width=64, depth=2, heads=4, hidden=128, vocab=tokenizer.size, dropout=0.0, length=14))
    task = Translate(TranslateData(max_length=12), tokenizer)
    model = Model(net, task, Search(beam=1, max_extra=5), Path("x")).save(home / "model")
    (home / "sample").write_text("\n".join(TEXTS))
    found = regard.convert(model, home / "small", to="int8", sample=home / "sample")
    assert found.proof is not None and found.proof.texts == len(TEXTS)
    assert found.kind == "int8" and "bytes became" in found.notes[0]
    return model, home / "small"


def test_the_folder_is_smaller_and_runs_on_every_engine(folders: tuple[Path, Path]) -> None:
    large, small = (len(read_folder(folder)[WEIGHTS]) for folder in folders)
    assert small < 0.45 * large
    native, light = regard.load(folders[1]), open_light(folders[1])
    assert native.engine.name == "native" and native.engine.precision == "int8" and light is not None
    texts = [outputs[0].text for batch in light.run_lazily(TEXTS) for _, outputs in batch]
    assert texts == native.run(TEXTS)
    exact, rough = (regard.load(f, engine="torch").score(TEXTS, TEXTS) for f in folders)
    assert all(abs(a - b) < 0.05 * abs(a) for a, b in zip(exact, rough, strict=True))


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
    with pytest.raises(CheckpointError, match="the weight a is int8 and has no scales of its rows"):
        restore_weights({"a": torch.zeros(2, 3, dtype=torch.int8)})
    with pytest.raises(SpecError, match="convert it to regard first, then to int8"):
        regard.convert(tmp_path, tmp_path / "x", to="int8")
