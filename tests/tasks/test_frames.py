"""Piano rolls: the loss of a frame, any causal decoder, parts of pieces, continuations, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.data.piano_rolls import Keyboard, Piece
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import DataError, SpecError
from regard.families import gpt, lstm, rnn, vit
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.head import Bernoulli
from regard.nn.mixers import Full, Linformer
from regard.nn.positions.position import Rotary
from regard.tasks.frames import Frames, FramesData
from tests.verbs.calling import call
from tests.verbs.conftest import settings

pytestmark = pytest.mark.numeric

KEYS = 6
DRAW = np.random.Generator(np.random.PCG64(0))
PIECES = [Piece(DRAW.integers(0, 2, (n, KEYS), dtype=np.uint8), f"piece {n}") for n in (5, 9, 2)]
SMALL: dict[str, Any] = dict(width=8, depth=1, vocab=KEYS, length=32)
ATTENTION: dict[str, Any] = dict(**SMALL, heads=2, hidden=16, dropout=0.0)
MODELS = {
    "lstm": rnn.spec(**SMALL, dropout=0.0),
    "gru": rnn.spec(**SMALL, dropout=0.0, cell="gru", embedding=4),
    "rnn": rnn.spec(**SMALL, dropout=0.0, cell="rnn"),
    "gpt": gpt.spec(**ATTENTION),
    "rotary": gpt.spec(**ATTENTION).overlay({"embed": {"position": None}, "decoder": {"position": "rotary"}}),
}


def made(**more: Any) -> Frames:
    return Frames(FramesData(keys=KEYS, lowest=60, **more))


def net_of(spec: ModelSpec, task: Frames | None = None) -> Any:
    return (task or made()).adapt_spec(spec).build(seed=1).double().eval()


def nats(net: Any, roll: Any) -> Any:
    """The loss of each frame after the first, written plainly: a sum over keys."""
    from regard.nn.core.coords import Coords

    given = torch.from_numpy(roll)[None].double()
    with torch.no_grad():
        p = net.logits(net(given[:, :-1], Coords.span(len(roll) - 1)))[0].sigmoid().numpy()
    wanted = roll[1:]
    return -(wanted * np.log(p) + (1 - wanted) * np.log(1 - p)).sum(1)


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_a_frame_is_the_sum_over_its_keys(name: str) -> None:
    task, net = made(), net_of(MODELS[name])
    examples = task.encode(PIECES)
    loss = task.loss(net, task.batch(examples, np.arange(3)), 0.0)
    each = [nats(net, piece.roll) for piece in PIECES]
    assert float(loss.plain) == pytest.approx(float(np.concatenate(each).sum()), rel=1e-6)
    assert loss.tokens == 4 + 8 + 1
    np.testing.assert_allclose(loss.rows["loss"].numpy(), [[row.sum(), len(row)] for row in each], rtol=1e-5)
    right, either = loss.rows["frame_accuracy"].sum(0).tolist()
    assert 0 <= right <= either <= KEYS * loss.tokens


@pytest.mark.parametrize("name", MODELS)
def test_a_frame_does_not_see_itself(name: str) -> None:
    net, roll = net_of(MODELS[name]), PIECES[1].roll
    other = roll.copy()
    other[5] = 1 - other[5]
    np.testing.assert_allclose(nats(net, roll)[:4], nats(net, other)[:4], atol=1e-12)
    assert not np.allclose(nats(net, roll)[5:], nats(net, other)[5:])


def test_parts_of_pieces_predict_each_frame_once() -> None:
    task = made(context=3)
    cut = task.encode(PIECES)
    assert [len(piece.roll) - 1 for piece in cut.pieces] == [3, 1, 3, 3, 2, 1]
    frames = [piece.roll[1:] for piece in cut.pieces]
    np.testing.assert_array_equal(np.concatenate(frames), np.concatenate([piece.roll[1:] for piece in PIECES]))
    assert task.describe_examples(cut, np.array([1])) == ["piece 5 from frame 4"]


@pytest.mark.parametrize("name", MODELS)
def test_a_continuation_is_what_the_probabilities_say(name: str) -> None:
    """Frame by frame with a state, the same as all frames again; its score is that of `score`."""
    from regard.nn.core.coords import Coords

    task, net = made(), net_of(MODELS[name])
    ((best,),) = task.run(TorchEngine(net), [PIECES[0]], Search(beam=1, max_extra=4))
    roll = PIECES[0].roll
    for _ in range(4):
        with torch.no_grad():
            logits = net.logits(net(torch.from_numpy(roll)[None], Coords.span(len(roll))))[0, -1]
        roll = np.concatenate([roll, (logits >= 0).numpy().astype(np.uint8)[None]])
    assert best.more["frames"] == json.loads(best.text) == Keyboard(KEYS, 60).pitches(roll[5:])
    assert task.score(TorchEngine(net), [PIECES[0]], [best.text])[0] == pytest.approx(best.log_prob, abs=1e-6)
    assert len(best.explanation) == 4
    drawn = [
        task.run(TorchEngine(net), [PIECES[0]], Search(beam=1, sample=True, seed=s, max_extra=8))[0][0].text
        for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    ensemble = task.run(TorchEngine(net, net), [PIECES[0]], Search(beam=1, max_extra=4))[0][0]
    assert ensemble.text == best.text


def test_a_full_context_goes_on_from_its_later_half() -> None:
    task = made(context=6)
    net = net_of(gpt.spec(**{**ATTENTION, "length": 6}), task)
    ((best,),) = task.run(TorchEngine(net), [PIECES[1]], Search(beam=1, max_extra=20))
    assert len(json.loads(best.text)) == 20
    with pytest.raises(DataError, match=r"^the model reads 6 frames, got 20 to score; give fewer at a time$"):
        task.score(TorchEngine(net), [PIECES[1]], [best.text])


def test_what_can_be_looked_at() -> None:
    task, net = made(), net_of(MODELS["gpt"])
    seen = task.forward_pass(net, "[[60, 64], [], [62]]", "[[61]]")
    weights, labels, _ = seen.attention(net)
    assert labels == ["C4 E4", "–", "D4", "C♯4"]
    assert weights["decoder.blocks.0.mix"].shape == (2, 4, 4)


def test_what_is_refused(tmp_path: Path) -> None:
    task = made()
    for spec in (
        lstm.spec(width=8, vocab=KEYS, source_vocab=KEYS),
        vit.spec(width=8, depth=1, heads=2, hidden=8, patch=4, image=8),
    ):
        with pytest.raises(
            SpecError, match=r"^piano rolls need a model with a decoder alone; use model\.family: rnn or gpt$"
        ):
            task.adapt_spec(spec)
    with pytest.raises(SpecError, match=r"^the model reads 6 keys, and data\.keys is 88$"):
        Frames(FramesData()).adapt_spec(task.adapt_spec(MODELS["gpt"]))
    bad = gpt.spec(**ATTENTION).replace("decoder.block.mix", Linformer(2, rank=4))
    with pytest.raises(SpecError, match="mixer 'linformer' cannot be causal"):
        task.adapt_spec(bad).build()
    with pytest.raises(DataError, match=r"^no training data; name one or more files of piano rolls"):
        Frames.read(FramesData(), 1)
    with pytest.raises(SpecError, match=r"^a piece has one continuation, got n_best=2"):
        task.run(TorchEngine(net_of(MODELS["gpt"])), [PIECES[0]], Search(beam=2, n_best=2))
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"train": [[[60], [61]]]}))
    with pytest.raises(DataError, match=r"x\.json has no part 'test'; it has train$"):
        Frames.read_test(task.settings, [str(path)])
    with pytest.raises(DataError, match=r"^1 piece is not enough to hold some out; name a file for validation$"):
        Frames.read(FramesData(keys=KEYS, lowest=60, train=(str(path),)), 1)
    assert isinstance(net_of(MODELS["gpt"]).spec.head, Bernoulli)
    assert isinstance(MODELS["rotary"].decoder.position, Rotary) and isinstance(
        MODELS["rotary"].decoder.block.mix, Full
    )  # type: ignore[union-attr]


def test_the_recipe_on_the_command_line(tmp_path: Path) -> None:
    """It learns a scale that goes up and round; `run` continues it, and `eval` reads the test part."""
    scale = [[60 + i % 6] for i in range(24)]
    song = {part: [scale[i : i + 12] for i in range(6)] for part in ("train", "valid", "test")}
    path = tmp_path / "scale.json"
    path.write_text(json.dumps(song))
    small = settings("data.keys=6", "data.lowest=60", "model.width=16", "model.depth=1", "model.dropout=0.0",
                     "train.epochs=100", "train.threads=1", "train.schedule={kind: constant, lr: 1.0e-2}")  # fmt: skip
    out = tmp_path / "run"
    done = call("train", "frames", path, "--out", out, *small)
    assert done.code == 0 and "6 pieces of 72 frames for training, 6 pieces of 72 frames for validation" in done.err
    found = json.loads(call("eval", out, path, "--samples", "5", "--json").out)["models"][0]["scores"]
    assert found["frame_accuracy"] > 95 and found["loss"] < 0.5
    said = call("run", out, "[[60], [61], [62]]", "--no-sample")
    text, *names = said.lines
    assert json.loads(text)[:4] == [[63], [64], [65], [60]] and names[:2] == ["  D♯4", "  E4"]
    bad = call("run", out, stdin=b"[[60]]\n[[99]]\n", terminal=False)
    assert bad.code == 2 and bad.lines[1] == ""
    assert "input 2 has no output: the roll, frame 1: pitches go from 60 to 65, got 99" in bad.err
    many = call("run", out, stdin=b"[[99]]\n" * 70, terminal=False)
    assert many.lines == [""] * 70 and many.err.count("has no output") == 50
    assert "more of these, which are not shown" in many.err and "70 of 70 inputs could not be read" in many.err
