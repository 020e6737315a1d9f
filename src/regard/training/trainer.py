"""The training loop, in the open: draw batches, step, validate, save. A resumed run is bit-identical to one never stopped.

What makes it so: the order of data is a pure function of (seed, epoch, position); all randomness comes from torch's generator,
whose state is saved; and everything that moves (weights, optimiser, averages, running sums, best score) is in the checkpoint.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import numpy as np

from regard.decode import Search
from regard.errors import CheckpointError, Diverged
from regard.metrics import METRICS
from regard.model.build import weight_faults
from regard.model.net import Net
from regard.serialization.model_folder import SNAPSHOTS
from regard.tasks.common.capabilities import augment, describe_examples, order_batches
from regard.tasks.common.task import EvalSet, Examples, Task
from regard.training.checkpoint import Checkpoints
from regard.training.data_parallel import ProcessGroup
from regard.training.interrupt import InterruptHandler
from regard.training.log import Log
from regard.training.optimizer import trained_tensors
from regard.training.optimizer_step import (
    ADVICE,
    Group,
    NoMoreSteps,
    OptimizerSteps,
    StepResult,
    check_finite,
    find_nonfinite,
)
from regard.training.progress_bar import Progress
from regard.training.recipe import Train
from regard.training.validate import GREEDY, Validator
from regard.training.weight_averaging import Snapshots

BAD_STEPS = 5
"""So many non-finite steps in a row mean that training has diverged."""
MAX_EXAMPLES = 8
"""Of a bad step, so many examples are named."""
MAX_PRINTED = 3
"""So many bad steps are told in words; the log has all of them."""


@dataclasses.dataclass
class TrainState:
    """Where a run stands: plain numbers, saved with every checkpoint."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_loss: float = 0.0
    best_step: int = 0
    worse: int = 0
    bad: int = 0
    window_loss: float = 0.0
    window_tokens: int = 0
    finished: bool = False
    snapshots: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """Steps at which weights were set aside for averaging, with their scores."""


@dataclasses.dataclass(frozen=True)
class TrainData:
    """What is learned from and what is judged by."""

    train: Examples
    valid: Examples
    trials: Sequence[EvalSet]


class Trainer:
    """One run of one model on one task."""

    def __init__(
        self, net: Net, task: Task, data: TrainData, train: Train, *, checkpoints: Checkpoints, log: Log, bf16: bool = False,
        search: Search | None = None, ranks: ProcessGroup | None = None,
    ) -> None:  # fmt: skip
        self.net, self.task, self.data, self.train = net, task, data, train
        self.checkpoints, self.log = checkpoints, log
        self.steps = OptimizerSteps(net, task, train, bf16=bf16, ranks=ranks)
        self.tokens = int(train.batch_tokens)  # `auto` is settled before
        self.validator = Validator(
            net,
            task,
            data.valid,
            data.trials,
            tokens=self.tokens,
            search=search or Search(),
            compute=self.steps.compute,
        )
        self.snapshots = Snapshots(checkpoints.folder.parent / SNAPSHOTS, checkpoints.storage)
        self.now = TrainState()
        self._fault, self._printed = "", 0
        self._order: tuple[int, list[Group]] = (-1, [])
        self.fresh: Any = data.train
        """The examples as this epoch sees them."""
        passes = math.inf if train.epochs is None else train.epochs * len(self.updates(0))
        self.total = int(min(passes, math.inf if train.steps is None else train.steps))
        self.validate_every = train.validate_every or -(-self.total // 10)  # ten times, the last at the end
        self.save_every = train.save_every or self.validate_every

    # ------------------------------------------------------------------------------------------------ the loop itself

    def fit(self, stop: InterruptHandler, progress: Progress, on_better: Callable[[], None]) -> bool:
        """Train to the end, or until asked to stop; True if it is done. `on_better` runs when validation improves."""
        began, now = time.perf_counter() - self.now.seconds, self.now
        if now.step >= self.total and not now.finished:  # all steps were taken, and nobody judged the last
            self._validate(progress, on_better)
            now.finished = True
            self.save()
        while not now.finished:
            updates = self.updates(now.epoch)
            if now.position >= len(updates):
                now.epoch, now.position = now.epoch + 1, 0
                continue
            started = time.perf_counter()
            step = self._update(updates[now.position])
            if not step.sound:
                self._report_skip(progress)
            now.position += 1
            now.step += 1
            now.tokens += step.tokens
            now.seconds = time.perf_counter() - began
            speed = step.tokens / (time.perf_counter() - started)
            if now.bad >= BAD_STEPS:
                self._give_up(on_better)
            progress.step(now.step, step.loss / step.tokens, speed)
            if now.step % self.train.log_every == 0 and now.window_tokens:  # all of them may have been skipped
                self._log_window(step, speed)
            last = now.step >= self.total
            if last or now.step % self.validate_every == 0:
                self._validate(progress, on_better)
                now.finished = last or (self.train.patience is not None and now.worse >= self.train.patience)
            now.seconds = time.perf_counter() - began
            asked = stop.asked is not None  # looked at once: a signal may come between any two lines
            if now.finished or asked or now.step % self.save_every == 0:
                self.save()
            if asked:
                break
        return now.finished

    def follow(self) -> None:
        """Take the steps that the leader of several processes calls."""
        now = self.now
        while True:
            updates = self.updates(now.epoch)
            if now.position >= len(updates):
                now.epoch, now.position = now.epoch + 1, 0
                continue
            try:
                self._update(updates[now.position])
            except NoMoreSteps:
                return
            now.position += 1
            now.step += 1
            if now.bad >= BAD_STEPS:
                raise Diverged(f"{self._fault}; the leading process says more")

    def updates(self, epoch: int) -> list[Group]:
        """The updates of an epoch, each a list of batches."""
        if self._order[0] != epoch:
            self.fresh = augment(self.task, self.data.train, self.train.seed, epoch)
            order = order_batches(
                self.task, self.fresh, tokens=self.tokens, seed=self.train.seed
            )  # lengths may be new, too
            batches, k = order.epoch(epoch), self.train.accumulate
            self._order = (epoch, [batches[i : i + k] for i in range(0, len(batches), k)])
        return self._order[1]

    def _update(self, group: Group) -> StepResult:
        """One step over a group of batches; of one that is not finite, the examples are named in the log."""
        number, first = self.now.step + 1, self.now.position == 0
        step = self.steps.take(self.fresh, group, number=number, rate=self.rate(number), first=first)
        if step.sound:
            self.now.bad = 0
            self.now.window_loss += step.loss
            self.now.window_tokens += step.tokens
        else:
            self.now.bad += 1
            self._log_skip(group, step)
        return step

    def rate(self, number: int) -> float:
        """The learning rate of a step."""
        return self.train.schedule.rate(number, total=self.total, width=self.net.spec.width)

    def _log_skip(self, group: Group, step: StepResult) -> None:
        if self.steps.ranks.is_leader:
            number, loss, norm = self.now.step + 1, step.loss, step.norm
            examples = describe_examples(self.task, self.fresh, np.concatenate(group)[:MAX_EXAMPLES])
            more = "" if sum(map(len, group)) <= MAX_EXAMPLES else " …"
            self._fault = (
                f"step {number} was not finite (loss {loss}, gradient norm {norm}): {'; '.join(examples)}{more}"
            )
            self.log.write("skip", number, norm=str(norm), loss=str(loss), examples=examples)

    def _report_skip(self, progress: Progress) -> None:
        self._printed += 1
        if self._printed <= MAX_PRINTED:
            rest = f"; of more such steps only {self.log.path.name} tells" if self._printed == MAX_PRINTED else ""
            progress.say(f"skipped: {self._fault}{rest}")

    def _give_up(self, on_better: Callable[[], None]) -> NoReturn:
        """Several bad steps in a row: the weights are those of before, and are kept if they themselves are good."""
        said, now = f"{self._fault}, as were the {BAD_STEPS - 1} before it", self.now
        if find_nonfinite(self.steps.tensors()):
            raise Diverged(f"{said}; so are the weights by now; {ADVICE}")
        if now.best is None:  # nobody has judged yet: without this there would be no model to go on from
            with self.validated_weights():
                on_better()
        self.save()
        raise Diverged(
            f"{said}. The last good weights, of step {now.step - now.bad}, are saved. If these examples are at fault, mend "
            "them; the same command goes on behind them. If the model is, lower train.schedule.lr and start over with "
            "--fresh, or go on from this run's best model with --from and another --out"
        )

    def _log_window(self, step: StepResult, speed: float) -> None:
        now = self.now
        loss = now.window_loss / now.window_tokens
        now.window_loss, now.window_tokens = 0.0, 0
        self.log.write(
            "train", now.step, epoch=now.epoch, loss=loss, rate=step.rate, grad_norm=step.norm, tokens=now.tokens,
            tokens_per_s=round(speed), seconds=round(now.seconds, 3),
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------ judging

    def _validate(self, progress: Progress, on_better: Callable[[], None]) -> None:
        """Validate, note whether it is the best so far, and set weights aside for averaging."""
        now = self.now
        check_finite(now.step, self.steps.tensors())
        with self.validated_weights():
            scores = self.validator.scores()
            if not math.isfinite(scores["loss"]):
                raise Diverged(f"the validation loss after step {now.step} is {scores['loss']}; {ADVICE}")
            metric = METRICS[self.task.metrics[0]]
            score = scores[metric.kind]
            equal = score == now.best and scores["loss"] < now.best_loss  # of equals, the surer one
            better = now.best is None or metric.better(score, now.best) or equal
            more = {name: score for name, score in scores.items() if name not in METRICS}  # of one corpus among several
            judged = {name: scores[name] for name in self.task.metrics} | more
            self.log.write("valid", now.step, loss=scores["loss"], scores=judged, seconds=round(now.seconds, 3))
            progress.say(
                f"step {now.step}/{self.total}  "
                + "  ".join(f"{k} {v:.4g}" for k, v in scores.items())
                + ("  best so far" if better else "")
            )
            if better:
                now.best, now.best_loss, now.best_step, now.worse = score, scores["loss"], now.step, 0
                on_better()
            else:
                now.worse += 1
        self._keep_snapshot(score, metric.higher)

    def validated_weights(self) -> AbstractContextManager[None]:
        """The weights a model folder gets: the moving average where there is one."""
        return nullcontext() if self.steps.ema is None else self.net.holding(self.steps.ema.weights)

    # ------------------------------------------------------------------------------------------------ on disk

    def _keep_snapshot(self, score: float, higher: bool) -> None:
        """Keep these weights for averaging, if they are among the last or best."""
        average = self.train.average
        if average is None:
            return
        taken = [*(old for old in self.now.snapshots if old[0] != self.now.step), (self.now.step, score)]
        if average.which == "best":
            taken = sorted(taken, key=lambda s: (s[1] if higher else -s[1], s[0]))
        self.now.snapshots = taken[-average.count :]
        if (self.now.step, score) in self.now.snapshots:
            learned = {name: p for name, p in self.net.named_parameters() if p.requires_grad}
            self.snapshots.add(self.now.step, self.steps.ema.weights if self.steps.ema else learned)

    def save(self) -> None:
        """A checkpoint of everything that moves."""
        groups = self.steps.tensors()
        check_finite(self.now.step, groups)
        self.log.sync()
        self.checkpoints.save(self.now.step, groups, dataclasses.asdict(self.now))
        self.snapshots.prune(self.checkpoints)

    def _apply_changes(self, changed: Sequence[str]) -> None:
        """What a run that changed on the way does anew: its end, its best score by another measure, its memory of a stream."""
        now, patience = self.now, self.train.patience
        worn = patience is not None and now.worse >= patience
        now.finished = now.best is not None and (now.step >= self.total or worn)
        greedy = tuple(f"decode.{name}:" for name in GREEDY)  # while training goes on, all decode alike in this
        if any(line.startswith(("data.", "decode.", "the corpus")) and not line.startswith(greedy) for line in changed):
            now.best, now.worse = None, 0
        if self.train.average is None:
            now.snapshots = []

    def resume(self, changed: Sequence[str] = ()) -> list[str]:
        """Go on from the newest checkpoint that proves whole, of a run of which this `changed`; what there is to say.

        Nothing, if there is none.
        """
        loaded = self.checkpoints.load_newest()
        if loaded is None:
            return []
        wanted = {name: tuple(t.shape) for name, t in trained_tensors(self.net).items()}
        if faults := weight_faults(wanted, loaded.groups["weights"]):
            raise CheckpointError(f"{self.checkpoints.folder} is of another model: {'; '.join(faults)}")
        self.now = TrainState(**loaded.facts)
        self.now.snapshots = [(int(step), float(score)) for step, score in self.now.snapshots]
        self.steps.restore(loaded.groups, changed=bool(changed))
        if changed:
            self._apply_changes(changed)
        self.log.rewind(self.now.step)
        where = f"step {self.now.step} of {self.total}"
        return [*loaded.said, f"this run is finished at {where}" if self.now.finished else f"resuming at {where}"]
