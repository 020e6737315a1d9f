"""One example from text to weights: what it predicts is what `score` says, and its attention is that of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import regard
from regard.api import Model
from regard.conversion.convert import convert
from regard.data.batch import IGNORE
from regard.data.images import LoadedImage
from regard.errors import SpecError
from tests.conversion.test_convert import TASKS, folder

pytestmark = pytest.mark.numeric

TEXTS = {"mlm": ("a <mask> bad", "a cab bad"), "lm": ("a cab", " bad dad"), "tag": ("a cab", "")}
ATTENTIONS = {
    "encoder": ("encoder_attentions", "attentions"),
    "decoder": ("decoder_attentions", "attentions"),
    "cross": ("cross_attentions",),
}


@pytest.fixture(params=TASKS)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Model]:
    """A tiny model of theirs, and ours made of it."""
    theirs = folder(request.param, tmp_path / "theirs")
    convert(str(theirs), str(tmp_path / "ours"))
    return theirs, regard.load(tmp_path / "ours")


def example(model: Model, task: str) -> tuple[Any, str]:
    if task == "image":
        pixels = np.random.default_rng(1).integers(0, 255, (12, 12, 2), np.uint8)
        image = LoadedImage("one", pixels)
        return image, model.run([image])[0]
    text, output = TEXTS.get(task, ("a cab bad", "abba" if task == "translate" else ""))
    return text, output or ("" if task == "embed" else model.run(text))


def test_predictions_and_attention_are_those_of_others(both: tuple[Path, Model], request: Any) -> None:
    theirs, model = both
    task = TASKS[request.node.callspec.params["both"]]
    text, output = example(model, task)
    read = model.forward_pass(text, output)
    if task == "embed":
        with pytest.raises(SpecError, match="no prediction to explain here"):
            read.log_probs(model.net)
    else:
        told = float(read.log_probs(model.net).detach().double().sum())
        assert told == pytest.approx(model.score([text], [output])[0], rel=1e-4, abs=1e-4)
    weights, source, target = read.attention(model.net)
    found = _attend(theirs, read.ids, read.source)
    for name, ours in weights.items():
        side, _, layer, role = name.split(".")
        keys = ATTENTIONS["cross" if role == "cross" else side]
        other = next(found[key] for key in keys if found.get(key) is not None)[int(layer)][0]
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-5)
        written = side == "decoder"
        assert ours.shape[1:] == (
            len(target if written else source),
            len(source if role == "cross" or not written else target),
        )


def _attend(theirs: Path, ids: torch.Tensor, source: torch.Tensor | None) -> Any:
    """Their attention weights for the same ids."""
    kind = getattr(transformers, transformers.AutoConfig.from_pretrained(theirs).architectures[0])
    model = kind.from_pretrained(theirs, attn_implementation="eager").eval()
    with torch.no_grad():
        if source is not None:
            return model(source, decoder_input_ids=ids, output_attentions=True)
        return model(ids, output_attentions=True)


def test_a_prediction_needs_an_output(tmp_path: Path) -> None:
    convert(str(folder("bert, classes", tmp_path / "theirs")), str(tmp_path / "ours"))
    model = regard.load(tmp_path / "ours")
    read = model.forward_pass("a cab", "")
    assert bool((read.wanted == IGNORE).all())
    with pytest.raises(SpecError, match="give the output that the model should predict"):
        read.log_probs(model.net)
