"""Kill a trainer at random moments, over and over, and see that nothing is lost: `python -m tests.training.kill 1000 SEED`.

Every task and every family there is takes its turn, also those that are added later. The parent imports torch once and forks
a child for every life, so that a life begins in no time. Half of the kills come after a random while; the other half aim at a
save: they wait for a `.partial` folder, and then a moment.

    child    trains; writes into `lives` at which step a life began, and after which step a save completed
    parent   kills it; a life must begin where the last save completed, or later; the last one must end as if never killed
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
import torch._dynamo  # what the first step would import, once for all

from regard import tasks
from regard.training.train import run_training
from regard.training.trainer import Trainer
from tests.training.cases import Order, cases
from tests.training.small import traces

LIFE = 0.5
"""A kill comes within this part of the time that a whole run takes here and now."""


def kill_often(kills: int, folder: Path, seed: int = 0) -> str:
    """Run and kill until there were so many kills, cases taking turns; what there is to say, or AssertionError."""
    draw = random.Random(seed)
    for name in tasks.names():
        tasks.find(name)  # imported once, before the forks
    found = _take_turns(draw)
    share, more = divmod(kills, len(found))
    counts, by_task = Counter[str](), dict[str, Counter[str]]()
    for n, (name, order) in enumerate(found):
        if quota := share + (n < more):
            case = Case(order, folder / str(n), draw)
            try:
                case.kill(quota)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error
            counts += case.said
            by_task.setdefault(name.partition(":")[0], Counter()).update({name.partition(": ")[2]: quota})
    lines = [f"{kills} kills, nothing lost: {dict(counts)}"]
    for task, row in sorted(by_task.items()):
        lines.append(f"  {task:<10} {row.total():>5}  ({', '.join(f'{n} {k}' for n, k in sorted(row.items()))})")
    return "\n".join(lines)


def _take_turns(draw: random.Random) -> list[tuple[str, Order]]:
    """All cases in random order, the first of each task before the second of any."""
    rows = dict[str, list[tuple[str, Order]]]()
    for name, order in draw.sample([*cases().items()], len(cases())):
        rows.setdefault(name.partition(":")[0], []).append((name, order))
    return [case for turn in itertools.zip_longest(*rows.values()) for case in turn if case is not None]


class Case:
    """One kind of run, trained once without a kill, and then killed."""

    def __init__(self, order: Order, folder: Path, draw: random.Random) -> None:
        self.order, self.folder, self.draw, self.said = order, folder, draw, Counter[str]()
        (folder / "data").mkdir(parents=True)

    def kill(self, kills: int) -> None:
        """Kill so many times."""
        began = time.monotonic()
        _must_end_well(self._child(self.folder / "whole"))
        life = LIFE * (time.monotonic() - began)
        whole = traces(self.folder / "whole")
        while self._killed < kills:
            run = self.folder / f"run-{self.said['runs']}"
            self.said["runs"] += 1
            while self._killed < kills:
                aim = (self.said["saving"], self.draw.random()) < (self.said["random"], 0.5)
                child = self._child(run)
                saving = self._wait(life, run if aim else None)
                os.kill(child, signal.SIGKILL)
                if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
                    break  # it was done before we came
                self.said["saving" if saving else "random"] += 1
            _must_end_well(self._child(run))
            self.said["saves"] += _nothing_lost(run)
            assert traces(run) == whole, f"{run} is not the run that was never killed"

    @property
    def _killed(self) -> int:
        return self.said["random"] + self.said["saving"]

    def _child(self, run: Path) -> int:
        """A process that trains, and notes what it saved."""
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            run.mkdir(parents=True, exist_ok=True)
            Trainer.save = _noted("saved", Trainer.save, run)  # type: ignore[method-assign, assignment]
            Trainer.resume = _noted("began", Trainer.resume, run)  # type: ignore[method-assign, assignment]
            run_training(self.order(self.folder / "data", run))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _wait(self, life: float, run: Path | None) -> bool:
        """Until the moment to kill: a random one, or one while something is being written or just was; whether it was."""
        end = time.monotonic() + self.draw.uniform(0, life)
        if run is None:
            time.sleep(max(end - time.monotonic(), 0))  # on a busy machine it may have passed
            return False
        while time.monotonic() < end:  # not the first save, but one at random
            time.sleep(0.001)
        end += life
        while time.monotonic() < end:
            if _writing(run):
                time.sleep(self.draw.choice([0, 0.001, 0.005, 0.02, 0.05]))
                return True
            time.sleep(0.0002)
        return False


def _noted(what: str, method: Callable[..., object], run: Path) -> Callable[..., object]:
    def noted(trainer: Trainer, *given: object) -> object:
        result = method(trainer, *given)
        with (run / "lives").open("a") as file:
            file.write(f"{what} {trainer.state.step}\n")
        return result

    return noted


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
        print(f"{sum(os.times()[:4]):.0f} seconds of computing")
