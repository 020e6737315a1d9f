"""Harm every file of a run folder in every way: `python -m tests.training.harm 3 SEED` (three rounds of all of it).

A tiny run is stopped, or done. One of its files, whichever there are, has a byte changed, is cut short, emptied or deleted;
then the same command is given again. It must end with the weights of the run that nothing happened to, or say in words what
to do; that is done, and must lead there, too.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.training.request import TrainRequest
from regard.training.train import run_training
from tests.training.small import HARD, stopped, tiny, traces

Harm = Callable[[bytes, random.Random], bytes | None]
HARMS: dict[str, Harm] = {
    "one byte changed": lambda data, draw: _change(data, draw),
    "cut short": lambda data, draw: data[: draw.randrange(len(data))] if data else None,
    "emptied": lambda data, draw: b"",
    "deleted": lambda data, draw: None,
}
SHORT: dict[str, Any] = {"train.steps": 6, "train.validate_every": 2, "train.save_every": 2, "train.schedule.warmup": 1}
RUNS: dict[str, dict[str, Any]] = {
    "plain": SHORT,
    "averages": {**HARD, **SHORT},
    "auto": {**SHORT, "auto": True, "train.batch_tokens": "auto", "train.precision": "auto"},
}
STATES = ("stopped", "done")
IGNORED = "run.lock"


@dataclasses.dataclass
class Patient:
    """A run folder as it was, and the weights that it must lead to."""

    folder: Path
    state: str
    changes: dict[str, Any]
    whole: dict[str, Any]

    def request(self, out: Path, **how: Any) -> TrainRequest:
        changes = {name.replace(".", "__"): value for name, value in self.changes.items()}
        return dataclasses.replace(tiny(out, **changes), **how)

    def files(self) -> list[Path]:
        found = (path.relative_to(self.folder) for path in sorted(self.folder.rglob("*")) if path.is_file())
        return [path for path in found if path.name != IGNORED]

    def harm(self, out: Path, file: Path, how: Harm, draw: random.Random) -> str:
        """Harm a copy, and give the command again; how it went on, or AssertionError."""
        shutil.copytree(self.folder, out)
        data = how((self.folder / file).read_bytes(), draw)
        (out / file).unlink()
        if data is not None:
            (out / file).write_bytes(data)
        went, place = "went on", out
        try:
            run_training(self.request(out))
        except RegardError as error:
            went, place, request = self._obey(str(error), out)
            run_training(request)
        assert weights(place) == self.whole, f"{file} of a {self.state} run: {went}, but the weights are others"
        shutil.rmtree(out)
        return went

    def _obey(self, said: str, out: Path) -> tuple[str, Path, TrainRequest]:
        """Do what a message says."""
        if "--fresh" in said:
            return "--fresh", out, self.request(out, fresh=True)
        assert "choose another --out" in said, said
        other = out.with_name(f"{out.name}-other")
        return "another --out", other, self.request(other)


def weights(folder: Path) -> dict[str, Any]:
    """The weights of a finished run: its models and its newest checkpoint."""
    found = traces(folder)
    return {name: found[name] for name in ("models", "bits")}


def prepare(folder: Path, names: list[str] | None = None) -> Iterator[Patient]:
    """A run of every kind in every state."""
    for name in names or [*RUNS]:
        for state in STATES:
            patient = Patient(folder / f"{name}-{state}", state, RUNS[name], {})
            if state == "stopped":
                stopped(patient.request(patient.folder), 5)
            else:
                run_training(patient.request(patient.folder))
            run_training(patient.request(folder / f"{name}-whole"))
            patient.whole = weights(folder / f"{name}-whole")
            yield patient


def harm_all(rounds: int, folder: Path, seed: int = 0) -> str:
    """All files, harms, runs and states, so many times; what there is to say about it, or AssertionError."""
    draw, went = random.Random(seed), Counter[str]()
    for patient in prepare(folder):
        for file in patient.files():
            for name, how in HARMS.items():
                for _ in range(rounds if name in ("one byte changed", "cut short") else 1):
                    try:
                        went[patient.harm(folder / "harmed", file, how, draw)] += 1
                    except BaseException:
                        print(f"{file} {name} in a {patient.state} run", file=sys.stderr)
                        raise
    return f"{went.total()} harms, none in silence: {dict(went)}"


def _change(data: bytes, draw: random.Random) -> bytes | None:
    if not data:
        return None
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        rounds, seed = map(int, [*sys.argv[1:], "1", "0"][:2]) if len(sys.argv) > 2 else (int([*sys.argv, "1"][1]), 0)
        print(harm_all(rounds, Path(place), seed))
        print(f"{time.process_time():.0f} seconds of computing")
