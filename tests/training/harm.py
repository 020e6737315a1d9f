"""Harm the files of run folders in every way: `python -m tests.training.harm 1000 SEED`.

A small run of any task or family is stopped, or done. One of its files, whichever there are, has a byte changed, is cut short,
emptied or deleted; then the same command is given again. It must end with the weights of the run that nothing happened to, or
say in words what to do; that is done, and must lead there, too.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.training.request import TrainRequest
from regard.training.train import run_training
from tests.training.cases import Order, cases
from tests.training.small import HARD, stopped, tiny, traces

Harm = Callable[[bytes, random.Random], bytes | None]
HARMS: dict[str, Harm] = {
    "one byte changed": lambda data, draw: _change(data, draw),
    "cut short": lambda data, draw: data[: draw.randrange(len(data))] if data else None,
    "emptied": lambda data, draw: b"",
    "deleted": lambda data, draw: None,
}
SHORT: dict[str, Any] = {
    "train__steps": 6,
    "train__validate_every": 2,
    "train__save_every": 2,
    "train__schedule__warmup": 1,
}
AVERAGES = {path.replace(".", "__"): value for path, value in HARD.items()}
AUTO: dict[str, Any] = {"auto": True, "train__batch_tokens": "auto", "train__precision": "auto"}
RUNS: dict[str, Order] = {
    "plain": lambda files, out: tiny(out, **SHORT),
    "averages": lambda files, out: tiny(out, **{**AVERAGES, **SHORT}),
    "auto": lambda files, out: tiny(out, **SHORT, **AUTO),
}
STATES = ("stopped", "done")
IGNORED = "run.lock"
EACH = 10
"""Harms to each kind of run at least."""


class Patient:
    """A run folder as it was, and the weights that it must lead to."""

    def __init__(self, place: Path, order: Order, state: str) -> None:
        (place / "data").mkdir(parents=True)
        self.order, self.state, self.data, self.folder = order, state, place / "data", place / state
        run_training(self.request(place / "whole"))
        self.whole = weights(place / "whole")
        if state == "done":
            (place / "whole").rename(self.folder)
        else:
            stopped(self.request(self.folder), 5)

    def request(self, out: Path, **how: Any) -> TrainRequest:
        return dataclasses.replace(self.order(self.data, out), **how)

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


def harm_often(count: int, folder: Path, seed: int = 0) -> str:
    """Harm so many times, kinds of runs taking turns; what there is to say about it, or AssertionError."""
    draw, went, hit = random.Random(seed), Counter[str](), Counter[str]()
    found = [(name, order, state) for name, order in {**RUNS, **cases()}.items() for state in STATES]
    draw.shuffle(found)
    found = found[: -(-count // EACH)]  # training them takes longer than the harm
    for n, (name, order, state) in enumerate(found):
        patient = Patient(folder / str(n), order, state)
        for _ in range(n, count, len(found)):
            file, (how, harm) = draw.choice(patient.files()), draw.choice([*HARMS.items()])
            try:
                went[patient.harm(folder / str(n) / "harmed", file, harm, draw)] += 1
            except BaseException:
                print(f"{name}: {file} {how} in a run that was {state}", file=sys.stderr)
                raise
            hit[file.parts[0]] += 1
    return f"{went.total()} harms, none in silence: {dict(went)}; {dict(sorted(hit.items()))}"


def _change(data: bytes, draw: random.Random) -> bytes | None:
    if not data:
        return None
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        print(harm_often(int(sys.argv[1]), Path(place), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
        print(f"{time.process_time():.0f} seconds of computing")
