"""Put NaN or infinity into a run at random steps and look at every file it leaves: `python -m tests.training.poison 1000`.

what     the numbers of a batch behind the embedding, a gradient, a weight, the optimiser's state, the moving average,
         the memory carried along a stream
when     before a step, or between a step and what is judged and saved of it
after    the run ends, or ends as diverged; all that lies on disk is finite; the same command goes on from there
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import Diverged
from regard.files.tensors import read_tensors
from regard.training.optimizer import optimizer_state
from regard.training.request import TrainRequest
from regard.training.run.checkpoint import Checkpoints
from regard.training.train import run_training
from regard.training.trainer import Trainer
from tests.training.small import events, hard, tiny

OFTEN = 0.3
"""The part of all steps that are poisoned."""
VALUES = (math.nan, math.inf, -math.inf)
STREAM = {
    "data.context": 8,
    "model.width": 16,
    "model.depth": 1,
    "model.heads": 2,
    "model.hidden": 32,
    "model.memory_length": 12,
}
EVERY = {"train__steps": 10, "train__validate_every": 5, "train__save_every": 2, "data__generate__valid": 2}


def orders(folder: Path) -> dict[str, Callable[[Path], TrainRequest]]:
    """Small runs of which something else moves in each."""
    text = folder / "text.txt"
    text.write_text("the cat sat on the mat; the dog sat on the cat. " * 12)
    train = {f"train.{name}": value for name, value in {"steps": 10, "batch_tokens": 40, "log_every": 1}.items()}
    train |= {"train.validate_every": 5, "train.save_every": 2, "train.threads": 1, "train.schedule.warmup": 2}
    return {
        "plain": lambda out: tiny(out, **EVERY),
        "everything": lambda out: hard(out, **EVERY),
        "threads": lambda out: tiny(out, **EVERY, train__threads=2, train__batch_tokens=1024, train__accumulate=2),
        "muon": lambda out: tiny(out, **EVERY, train__optimizer={"kind": "muon"}, train__ema=0.5),
        "stream": lambda out: TrainRequest(
            "transformer_xl", (str(text),), set=STREAM | train, out=str(out), quiet=True
        ),
    }


class Poisoner:
    """Spoils steps of a trainer; `doses` counts what went where."""

    def __init__(self, draw: random.Random, doses: Counter[str]) -> None:
        self.draw, self.doses = draw, doses

    @contextmanager
    def at_work(self) -> Any:
        """For a while, any trainer's steps may be spoiled."""
        real = Trainer._update
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Trainer, "_update", lambda trainer, group: self._spoiled(trainer, group, real))
            yield

    def _spoiled(self, trainer: Trainer, group: Any, update: Callable[[Trainer, Any], Any]) -> Any:
        if self.draw.random() > OFTEN:
            return update(trainer, group)
        places = self._places(trainer)
        what = self.draw.choice(["data", "gradient", *places]) if self.draw.random() < 0.6 else "data"
        before = self.draw.random() < 0.5
        self.doses[what] += 1
        if what in places:
            if before:
                self._spoil(places[what])
            done = update(trainer, group)
            if not before:
                self._spoil(self._places(trainer).get(what, places[what]))
            return done
        with self._data(trainer) if what == "data" else self._gradient(trainer):
            return update(trainer, group)

    def _places(self, trainer: Trainer) -> dict[str, list[Tensor]]:
        """Tensors that last from step to step."""
        found: dict[str, Iterable[Tensor]] = {
            "weights": trainer.net.parameters(),
            "optimizer": optimizer_state(trainer.net, trainer.steps.optimizer).values(),
            "average": trainer.steps.ema.weights.values() if trainer.steps.ema else (),
            "stream": trainer.steps.stream_state.tensors().values(),
        }
        kept = {name: [t for t in tensors if t.is_floating_point() and t.numel()] for name, tensors in found.items()}
        return {name: tensors for name, tensors in kept.items() if tensors}

    @torch.no_grad()
    def _spoil(self, tensors: list[Tensor]) -> None:
        tensor = self.draw.choice(tensors)
        tensor[tuple(self.draw.randrange(size) for size in tensor.shape)] = self.draw.choice(VALUES)

    def _data(self, trainer: Trainer) -> AbstractContextManager[Any]:
        value = self.draw.choice(VALUES)

        def spoil(part: object, given: object, out: Tensor) -> Tensor:
            spoiled = out.clone()
            spoiled[0, 0, 0] = value
            return spoiled

        return trainer.net.embed.register_forward_hook(spoil)

    @contextmanager
    def _gradient(self, trainer: Trainer) -> Any:
        real, wanted = trainer.steps.thread_group.run, [p for p in trainer.net.parameters() if p.requires_grad]

        def run(*given: Any) -> float:
            total = real(*given)
            self._spoil([p.grad for p in wanted if p.grad is not None])
            return total

        trainer.steps.thread_group.run = run  # type: ignore[method-assign]
        try:
            yield
        finally:
            trainer.steps.thread_group.run = real  # type: ignore[method-assign]


def poison_often(count: int, folder: Path, seed: int = 0) -> str:
    """Poison until there were so many doses; what there is to say about them, or AssertionError."""
    draw, doses, ends = random.Random(seed), Counter[str](), Counter[str]()
    skipped = 0
    kinds = orders(folder)
    names = list(kinds)
    while sum(doses.values()) < count:
        run = folder / f"run-{ends.total()}"
        order = kinds[names[ends.total() % len(names)]](run)
        for life in range(draw.choice([1, 1, 1, 2])):  # a second goes on from what the first left, and is let alone
            with Poisoner(draw, doses).at_work() if life == 0 else nullcontext():
                try:
                    run_training(order)
                    ends["finished"] += life == 0
                    break
                except Diverged as error:
                    assert error.exit_code == 4 and "not finite" in str(error), error
                    ends["diverged"] += life == 0
                finally:
                    demand_all_finite(run)
        skipped += len(events(run, "skip"))
    return f"{sum(doses.values())} doses, none on disk: {dict(doses)}; {skipped} steps skipped, runs: {dict(ends)}"


def demand_all_finite(folder: Path) -> None:
    """Every number in every file, and a checkpoint that can be gone on from where there is any."""
    for path in folder.rglob("*.safetensors"):
        for name, tensor in read_tensors(path).items():
            assert not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()), f"{path} holds a bad {name}"
    for path in folder.rglob("*.json*"):
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(line, parse_constant=_refuse)
    checkpoints = Checkpoints(folder / "checkpoints")
    assert not checkpoints.steps() or checkpoints.load_newest() is not None
    assert not list(folder.rglob("*.corrupt"))


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is in a file")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        print(poison_often(int(sys.argv[1]), Path(place), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
