"""Memory carried through training: exactly that of one long pass, detached, saved, and judged by in one stream."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.errors import SpecError
from regard.families import bert, gpt, transformer_xl
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.nn.mixers import Lsh
from regard.tasks.common.losses import evaluate_loss
from regard.tasks.common.task import Loss
from regard.tasks.common.text_corpus import Texts
from regard.tasks.common.training_hooks import compute_loss, order_batches
from regard.tasks.lm import Lm, LmData
from regard.text import Tokenizer
from regard.training.request import TrainRequest
from regard.training.run.checkpoint import Checkpoints
from regard.training.step.stream_state import StreamState, find_stream_faults
from regard.training.train import run_training
from tests.training.small import HARD, events, interrupted, traces

pytestmark = pytest.mark.numeric

TEXT = "the cat sat on the mat; the dog sat on the cat. " * 12
SMALL = dict(width=16, depth=2, heads=2, hidden=32, dropout=0.0, attention_dropout=0.0, norm="pre")
TINY: dict[str, Any] = {
    "data.context": 8,
    "model.width": 16,
    "model.depth": 2,
    "model.heads": 2,
    "model.hidden": 32,
    "model.memory_length": 12,
    "train.steps": 12,
    "train.batch_tokens": 40,
    "train.schedule": {"kind": "cosine", "lr": 3e-3, "warmup": 3},
    "train.validate_every": 6,
    "train.save_every": 5,
    "train.log_every": 1,
    "train.threads": 1,
    "train.precision": "float32",
}
COMPRESS = {"kind": "convolution", "slots": 4, "rate": 2}
EVERYTHING = {name: value for name, value in HARD.items() if name != "train.batch_tokens"}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    return str(path)


def lm(context: int = 8, **settings: Any) -> Lm:
    made = LmData(context=context, stream=True, **settings)
    return Lm(made, Tokenizer.train([TEXT], made.tokenizer))


def net(task: Lm, **changes: Any) -> Net:
    return transformer_xl.spec(**SMALL | task.model_arguments() | changes).build(1).double()  # type: ignore[arg-type, no-any-return]


def order(text: str, out: Path, recipe: str = "transformer_xl", **changes: Any) -> TrainRequest:
    settings = TINY | {name.replace("__", "."): value for name, value in changes.items()}
    return TrainRequest(recipe, (text,), set=settings, out=str(out), quiet=True)


def stream_loss(carried: StreamState, task: Lm, part: int, batch: Any, smoothing: float) -> Loss:
    """The loss of a part of a batch, whose state is kept for the next one; as in a step."""
    loss = compute_loss(task, carried.net, batch, smoothing, state=carried.states.get(part))
    carried.keep(part, loss.state)
    return loss


# The law.


@torch.no_grad()
def test_a_stream_with_memory_without_limit_is_one_pass() -> None:
    """However it is cut: the loss of all segments is the loss of the text read at once."""
    ids = torch.tensor([lm().tokenizer.encode(TEXT)])
    for context in (1, 7, 64):
        task = lm(context)
        made = net(task, memory_length=10_000).eval()
        whole, _ = made.loss(made(ids[:, :-1], Coords.span(ids.shape[1] - 1)), ids[:, 1:])
        found = evaluate_loss(task, made, task.encode(Texts((TEXT,))))
        assert found["loss"] == pytest.approx(float(whole) / (ids.shape[1] - 1), rel=1e-10)


@torch.no_grad()
def test_texts_that_follow_one_another_are_strangers() -> None:
    """Two texts in one stream cost what they cost each for itself."""
    task, parts = lm(5), (TEXT[:101], TEXT[200:263])
    made = net(task, memory_length=1000).eval()
    alone = [evaluate_loss(task, made, task.encode(Texts((part,))))["loss"] for part in parts]
    both = evaluate_loss(task, made, task.encode(Texts(parts)))["loss"]
    weights = [len(part) - 1 for part in parts]
    assert both == pytest.approx(float(np.average(alone, weights=weights)), rel=1e-9)


def test_the_gradient_ends_where_the_segment_begins() -> None:
    """A step's gradient is that of its own segment, with the memory as a constant."""
    task = lm()
    made = net(task, memory_length=64).train()
    examples = task.encode(Texts((TEXT,)))
    first, second = (task.batch(examples, s) for s in order_batches(task, examples, tokens=24, seed=1).epoch(0)[:2])
    carried = StreamState(made, task)
    stream_loss(carried, task, 0, first, 0.0)
    assert not any(t.requires_grad for t in carried.tensors().values())
    memory = {name: t.clone() for name, t in carried.tensors().items()}
    stream_loss(carried, task, 0, second, 0.0).total.backward()
    found = {name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None}
    made.zero_grad(set_to_none=True)
    carried.restore(memory)
    task.stream_loss(made, second, 0.0, carried.states[0]).total.backward()
    for name, p in made.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(found[name], p.grad, rtol=0, atol=1e-12)


# Runs.


@pytest.mark.parametrize(
    "changes",
    [{}, EVERYTHING, {"model.compress": COMPRESS}, {"model.compress": {"kind": "most_used", "slots": 4, "rate": 2}}],
    ids=["plain", "everything", "compressive", "most used"],
)
def test_stopped_mid_stream_and_resumed_is_never_stopped(text: str, tmp_path: Path, changes: dict[str, Any]) -> None:
    named = {name.replace(".", "__"): value for name, value in changes.items()}
    run_training(order(text, tmp_path / "whole", **named))
    interrupted(order(text, tmp_path / "parts", **named), 1, 4, 7)
    assert traces(tmp_path / "parts") == traces(tmp_path / "whole")
    assert "stream/0.blocks.1.mix.x" in traces(tmp_path / "whole")["bits"]


def test_an_epoch_begins_with_nothing_remembered(text: str, tmp_path: Path) -> None:
    """One step an epoch with memory learns what it would without."""
    one_step = {"train__batch_tokens": 10_000, "data__context": 2000, "train__steps": 3, "train__schedule": "constant"}
    changes = one_step | {"train__validate_every": 3, "train__save_every": 3}
    run_training(order(text, tmp_path / "with", **changes))
    run_training(order(text, tmp_path / "without", **changes, model__memory_length=1))
    one, other = (events(tmp_path / name, "train") for name in ("with", "without"))
    assert [e["loss"] for e in one] == pytest.approx([e["loss"] for e in other], rel=1e-6)
    assert [e["epoch"] for e in one] == [0, 1, 2]


@pytest.mark.parametrize("loss", ["attention", "autoencode"])
def test_compressors_learn_from_their_own_loss_in_a_run(text: str, tmp_path: Path, loss: str) -> None:
    compress = COMPRESS | {"loss": loss}
    run_training(order(text, tmp_path, model__compress=compress, train__schedule={"kind": "constant", "lr": 1e-2}))
    made = regard.load(tmp_path)
    fresh = made.spec.build(1).state_dict()
    names = [name for name in fresh if "compressor" in name]
    assert names
    assert all(not torch.equal(fresh[name], made.net.state_dict()[name]) for name in names)


def test_divided_among_threads_each_part_remembers_its_own(text: str, tmp_path: Path) -> None:
    """Two threads learn what one does, up to rounding; their states are saved apart."""
    large = {"train__batch_tokens": 1200, "data__context": 24, "train__steps": 5, "train__validate_every": 5}
    (tmp_path / "long.txt").write_text(TEXT * 12)
    for threads in (1, 2):
        run_training(order(str(tmp_path / "long.txt"), tmp_path / str(threads), train__threads=threads, **large))
    one, two = (events(tmp_path / name, "train") for name in ("1", "2"))
    assert [e["loss"] for e in one] == pytest.approx([e["loss"] for e in two], rel=1e-4)
    loaded = Checkpoints(tmp_path / "2" / "checkpoints").load_newest()
    assert loaded is not None
    assert {name.split(".")[0] for name in loaded.groups["stream"]} == {"0", "1"}


def test_the_recipe_gpt_becomes_transformer_xl_by_words(text: str, tmp_path: Path) -> None:
    settings = {name: value for name, value in TINY.items() if name != "model.memory_length"}
    words = {
        "model.family": "transformer_xl",
        "data.stream": True,
        "model.memory_length": 16,
        "train.steps": 2,
        "train.schedule.warmup": 1,
    }
    run_training(TrainRequest("gpt", (text,), set=settings | words, out=str(tmp_path), quiet=True))
    assert regard.load(tmp_path).spec.decoder.layers()[0].mix.memory_length == 16  # type: ignore[union-attr]


def test_a_longer_memory_in_use_than_in_training(text: str, tmp_path: Path) -> None:
    run_training(order(text, tmp_path))
    short, long = regard.load(tmp_path), regard.load(tmp_path, set={"model.decoder.block.mix.memory_length": 500})
    raw = Texts((TEXT,))
    one, other = (evaluate_loss(m.task, m.net, m.task.encode(raw))["loss"] for m in (short, long))
    assert one != other
    again = regard.load(tmp_path, set={"model.decoder.block.mix.memory_length": 500, "data.context": 13})
    third = evaluate_loss(again.task, again.net, again.task.encode(raw))["loss"]
    assert math.isfinite(third)
    with pytest.raises(
        SpecError, match=r"the weights do not fit the changed model: .* should be \(32, 32\), got \(16, 16\)"
    ):
        regard.load(tmp_path, set={"model.width": 32})
    with pytest.raises(
        SpecError, match=r"^only `model\.…` and `data\.…` of a finished model can be changed, got 'train'$"
    ):
        regard.load(tmp_path, set={"train.steps": 3})


# Refusals, and what else carries.


def test_other_mixers_carry_too() -> None:
    """A window and a linear mixer remember in their own way."""
    for mix in (
        {"kind": "local", "heads": 2, "reach": 6},
        {"kind": "performer", "heads": 2, "features": 8, "redraw": 2},
    ):
        task = lm()
        spec = gpt.spec(width=16, depth=1, heads=2, hidden=32, dropout=0.0, **task.model_arguments())
        spec = spec.overlay({"embed": {"position": None}, "decoder": {"block": {"mix": mix}}})
        made = spec.build(1)
        assert not find_stream_faults(made)
        carried, examples = StreamState(made, task), task.encode(Texts((TEXT,)))
        for step, segments in enumerate(order_batches(task, examples, tokens=24, seed=1).epoch(0)[:5], 1):
            carried.begin(step, first=step == 1)
            assert bool(carried.states) == (step > 1 and not (mix["kind"] == "performer" and step % 2 == 0))
            stream_loss(carried, task, 0, task.batch(examples, segments), 0.0).total.backward()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            gpt.spec(width=16, depth=1, heads=2, vocab=9, length=8).overlay({"embed": {"position": None}}),
            r"decoder\.blocks\.0\.mix keeps all past tokens, and data\.stream has no end; use model\.family=transformer_xl",
        ),
        (
            gpt.spec(width=16, depth=1, heads=2, vocab=9, length=8),
            "the model has room for 8 tokens, and data.stream has no end: use relative positions",
        ),
        (
            gpt.spec(width=16, depth=1, heads=2, vocab=9, length=8).overlay(
                {"embed": {"position": None}, "decoder": {"block": {"mix": Lsh(2, 4)}}}
            ),
            "mixer 'lsh' cannot continue from a state, which data.stream needs; use model.family=transformer_xl",
        ),
        (bert.spec(width=16, depth=1, heads=2, vocab=9, length=8), "data.stream needs a model with a decoder"),
    ],
    ids=["endless", "room", "lsh", "encoder"],
)  # fmt: skip
def test_refusals(spec: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        StreamState(spec.build(1), lm())


def test_one_process_alone() -> None:
    task = lm()
    with pytest.raises(SpecError, match=r"data\.stream needs a single process: .*; train without torchrun"):
        StreamState(net(task), task, processes=2)
    StreamState(net(task), Lm(dataclasses.replace(task.settings, stream=False), task.tokenizer), processes=2)
