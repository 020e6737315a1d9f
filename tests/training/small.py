"""Runs small enough to be done many times over, stopped wherever a test likes, and compared to the bit."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from regard.errors import Interrupted
from regard.training import train
from regard.training.request import TrainRequest
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.interrupt import InterruptHandler
from regard.training.run.log import read_log
from regard.training.run.progress_bar import Progress
from regard.training.train import run_training

COPY: dict[str, Any] = {"data.generate.count": 60, "data.generate.valid": 6, "data.generate.max_length": 6}
TINY: dict[str, Any] = {
    "model.width": 16,
    "model.depth": 1,
    "model.heads": 2,
    "model.hidden": 32,
    "train.steps": 12,
    "train.batch_tokens": 96,
    "train.schedule": {"kind": "cosine", "lr": 3e-3, "warmup": 3},
    "train.validate_every": 4,
    "train.save_every": 5,
    "train.log_every": 1,
    "train.threads": 1,
    "train.precision": "float32",
}
"""So small that a step takes milliseconds; a few updates are an epoch of the recipe `copy`."""
HARD: dict[str, Any] = {
    "model.dropout": 0.2,
    "train.label_smoothing": 0.1,
    "train.accumulate": 2,
    "train.precision": "bfloat16",
    "train.ema": 0.9,
    "train.average": {"which": "last", "count": 2},
    "train.batch_tokens": 64,
}
"""Everything that moves, at once."""
ROWS = [f"{'abcdefgh'[i % 8] * (1 + i % 3)}{i}\t{i}{'abcdefgh'[i % 8]}\n" for i in range(40)]
"""Lines of a small table of pairs."""
CLOCK = ("seconds", "tokens_per_s", "command", "log")
"""What no two runs have in common."""


def tiny(out: Path, recipe: str | dict[str, Any] = "copy", data: tuple[str, ...] = (), **changes: Any) -> TrainRequest:
    """An order for a tiny run; `train__steps=3` changes a setting."""
    settings = {**(COPY if recipe == "copy" else {}), **TINY}
    settings |= {path.replace("__", "."): value for path, value in changes.items()}
    return TrainRequest(recipe, data, set=settings, out=str(out), quiet=True)


def hard(out: Path, **changes: Any) -> TrainRequest:
    return tiny(out, **{path.replace(".", "__"): value for path, value in HARD.items()} | changes)


def on_files(out: Path, *paths: Path, **changes: Any) -> TrainRequest:
    """An order for a tiny run of the recipe `translate` on files."""
    request = tiny(out, recipe="translate", **{"data__tokenizer": "chars", "data__metrics": ["exact"], **changes})
    return dataclasses.replace(request, data=tuple(map(str, paths)))


@contextmanager
def stopping_after(step: int) -> Iterator[None]:
    """Somebody presses Ctrl-C while this step runs."""
    made: list[InterruptHandler] = []

    class Watched(InterruptHandler):
        def __enter__(self) -> InterruptHandler:
            made.append(self)
            return self  # no handlers: it is us who press

    class Pressing(Progress):
        def step(self, at: int, loss: float, speed: float, left: float) -> None:
            if at >= step:
                made[-1].signal = signal.SIGINT

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "InterruptHandler", Watched)
        patch.setattr(train, "Progress", Pressing)
        yield


def interrupted(request: TrainRequest, *steps: int) -> Path:
    """The same run, stopped after each of these steps and resumed by the same call."""
    for step in steps:
        with stopping_after(step), pytest.raises(Interrupted, match=f"stopped at step {step} of"):
            run_training(request)
    return run_training(request)


def stopped(request: TrainRequest, step: int = 5) -> TrainRequest:
    """The request, after its run was stopped."""
    with stopping_after(step), pytest.raises(Interrupted):
        run_training(request)
    return request


def traces(folder: Path) -> dict[str, Any]:
    """All of a finished run that must be the same in another one, to the bit."""
    loaded = Checkpoints(folder / "checkpoints").load_newest()
    assert loaded is not None
    facts = {k: v for k, v in loaded.facts.items() if k not in CLOCK}
    bits = {f"{group}/{name}": _bits(t) for group, tensors in loaded.groups.items() for name, t in tensors.items()}
    models = {name: (folder / name / "model.safetensors").read_bytes() for name in ("best", "final")}
    return {"log": events(folder), "facts": facts, "bits": bits, "models": models}


def events(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """What the log says, without the clock."""
    log = (event for event in read_log(folder / "log.jsonl") if kind in (None, event["event"]))
    return [{k: v for k, v in event.items() if k not in CLOCK} for event in log]


def _bits(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().flatten().view(dtype=_torch().uint8).numpy())


def _torch() -> Any:
    import torch

    return torch
