"""Kill a trainer at random moments, over and over, and see that nothing is lost: `python -m tests.training.kill 1000`.

The parent imports torch once and forks a child for every life, so that a life begins in no time. Half of the kills come
after a random while; the other half aim at a save: they wait for a `.partial` folder, and then a moment.

    child    trains; writes into `lives` at which step a life began, and after which step a save completed
    parent   kills it; a life must begin where the last save completed, or later; the last one must end as if never killed
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
import torch._dynamo  # what the first step would import, once for all

from regard.training.train import run_training
from regard.training.trainer import Trainer
from tests.training.small import hard, traces

LIFE = 0.5
"""A kill comes within this part of the time that a whole run takes here and now."""


def kill_often(kills: int, folder: Path, seed: int = 0) -> str:
    """Run and kill until there were so many kills; what there is to say about them, or AssertionError."""
    draw = random.Random(seed)
    began = time.monotonic()
    _must_end_well(_child(folder / "whole"))
    life = LIFE * (time.monotonic() - began)
    whole, said = traces(folder / "whole"), {"random": 0, "saving": 0, "runs": 0, "saves": 0}
    while said["random"] + said["saving"] < kills:
        run = folder / f"run-{said['runs']}"
        said["runs"] += 1
        while said["random"] + said["saving"] < kills:
            how = draw.choice(["random", "saving"])
            child = _child(run)
            _wait(draw, life, run if how == "saving" else None)
            os.kill(child, signal.SIGKILL)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
                break  # it was done before we came
            said[how] += 1
        _must_end_well(_child(run))
        said["saves"] += _nothing_lost(run)
        assert traces(run) == whole, f"{run} is not the run that was never killed"
    return f"{kills} kills, nothing lost: {said}"


def _child(run: Path) -> int:
    """A process that trains, and notes what it saved."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        run.mkdir(parents=True, exist_ok=True)
        Trainer.save = _noted("saved", Trainer.save, run)  # type: ignore[method-assign, assignment]
        Trainer.resume = _noted("began", Trainer.resume, run)  # type: ignore[method-assign, assignment]
        run_training(hard(run, train__steps=40, train__save_every=3, train__validate_every=8))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _noted(what: str, method: Callable[..., object], run: Path) -> Callable[..., object]:
    def noted(trainer: Trainer, *given: object) -> object:
        result = method(trainer, *given)
        with (run / "lives").open("a") as file:
            file.write(f"{what} {trainer.state.step}\n")
        return result

    return noted


def _wait(draw: random.Random, life: float, run: Path | None) -> None:
    """Until the moment to kill: a random one, or one while something is being written or just was."""
    end = time.monotonic() + draw.uniform(0, life)
    if run is None:
        time.sleep(max(end - time.monotonic(), 0))  # on a busy machine it may have passed
        return
    while time.monotonic() < end:  # not the first save, but one at random
        time.sleep(0.001)
    end += life
    while time.monotonic() < end and not _writing(run):
        time.sleep(0.0002)
    time.sleep(draw.choice([0, 0.001, 0.005, 0.02, 0.05]))


def _writing(run: Path) -> bool:
    return any(
        name.name.endswith((".partial", ".previous"))
        for place in (run, run / "checkpoints", run / "snapshots")
        if place.is_dir()
        for name in os.scandir(place)
    )


def _nothing_lost(run: Path) -> int:
    """Every life began where the last save completed, or at a later one that was not noted any more; how many saves."""
    assert not list((run / "checkpoints").glob("*.corrupt")), f"a checkpoint in {run} was damaged"
    newest = saves = 0
    for what, step in (line.split() for line in (run / "lives").read_text().splitlines()):
        assert what == "saved" or int(step) >= newest, f"{run} was saved at step {newest}, and went on from {step}"
        newest, saves = int(step), saves + (what == "saved")
    return saves


def _must_end_well(child: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "a run that was let alone failed"


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        print(kill_often(int(sys.argv[1]), Path(place), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
