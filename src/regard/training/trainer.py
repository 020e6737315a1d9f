"""The training loop: draw batches, step, validate, save.

A resumed run is bit-identical to one that never stopped: the order of the data is a pure function of (seed, epoch, position);
all randomness comes from torch's generator, whose state is saved; and everything that changes (weights, optimizer, averages,
running sums, best score) is in the checkpoint.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, NoReturn, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from regard.decode import Search
from regard.errors import CheckpointError, Diverged, RegardError
from regard.metrics import METRICS
from regard.model.build import weight_faults
from regard.model.net import Net
from regard.report.number import duration
from regard.serialization.model_folder import SNAPSHOTS
from regard.spec import Plain, describe_faults
from regard.tasks.common.task import EvalSet, Examples, Task
from regard.tasks.common.training_hooks import augment, order_batches
from regard.training.optimizer import trained_tensors
from regard.training.recipe import Train
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.interrupt import InterruptHandler
from regard.training.run.log import Log
from regard.training.run.progress_bar import Progress
from regard.training.run.run_changes import CORPUS, PLUGINS, Change
from regard.training.step.bad_steps import BAD_STEPS, BadSteps
from regard.training.step.data_parallel import ProcessGroup
from regard.training.step.optimizer_step import (
    ADVICE,
    Group,
    NoMoreSteps,
    OptimizerSteps,
    StepResult,
    check_finite,
    find_nonfinite,
)
from regard.training.step.time_estimate import TimeLeft
from regard.training.step.validate import GREEDY, MAX_KEPT, Validator, render_sample, render_scores, shorten
from regard.training.step.weight_averaging import Snapshots

MAX_SAMPLES = 3
"""Sample outputs printed and logged at each validation."""


_Counter = Annotated[int, Field(ge=0, le=1 << 60)]


@dataclasses.dataclass
class TrainState:
    """The progress of a run in plain numbers, saved with every checkpoint."""

    step: _Counter = 0
    epoch: _Counter = 0
    position: _Counter = 0
    tokens: _Counter = 0
    seconds: float = 0.0
    best: float | None = None
    best_loss: float = 0.0
    best_step: _Counter = 0
    worse: _Counter = 0
    bad: _Counter = 0
    window_loss: float = 0.0
    window_tokens: _Counter = 0
    finished: bool = False
    snapshots: list[tuple[_Counter, float]] = dataclasses.field(default_factory=list)
    """Steps whose weights are kept for averaging, with their scores."""


@dataclasses.dataclass(frozen=True)
class TrainData:
    """Training data, validation data, and the inputs and references of the latter."""

    train: Examples
    valid: Examples
    sets: Sequence[EvalSet]


class Updates(Sequence[Group]):
    """The optimizer steps of an epoch: `accumulate` batches each, made on access."""

    def __init__(self, batches: Sequence[NDArray[np.int64]], accumulate: int) -> None:
        self._batches, self._accumulate = batches, accumulate

    def __len__(self) -> int:
        return -(-len(self._batches) // self._accumulate)

    @overload
    def __getitem__(self, i: int) -> Group: ...
    @overload
    def __getitem__(self, i: slice) -> list[Group]: ...
    def __getitem__(self, i: int | slice) -> Group | list[Group]:
        places, k = range(len(self))[i], self._accumulate
        if isinstance(places, int):
            return list(self._batches[places * k : (places + 1) * k])
        return [list(self._batches[place * k : (place + 1) * k]) for place in places]


class Trainer:
    """One run of one model on one task."""

    def __init__(
        self, net: Net, task: Task, data: TrainData, train: Train, *, checkpoints: Checkpoints, log: Log, bf16: bool = False,
        search: Search | None = None, process_group: ProcessGroup | None = None,
    ) -> None:  # fmt: skip
        self.net, self.task, self.data, self.train = net, task, data, train
        self.checkpoints, self.log = checkpoints, log
        self.steps = OptimizerSteps(net, task, train, bf16=bf16, process_group=process_group)
        self.tokens = int(train.batch_tokens)  # `auto` has been resolved before
        self.validator = Validator(
            net,
            task,
            data.valid,
            data.sets,
            tokens=self.tokens,
            search=search or Search(),
            compute=self.steps.compute,
            engine=train.validation_engine,
        )
        self.snapshots = Snapshots(checkpoints.folder.parent / SNAPSHOTS, checkpoints.storage)
        self.state = TrainState()
        self.copies: Mapping[str, bytes] = {}
        """Files that describe the run; every checkpoint has a copy."""
        self.bad_steps = BadSteps(task, log)
        self._layers: Plain | None = None
        """Norms by layer of the step before the last validation."""
        self._order: tuple[int, Sequence[Group]] = (-1, [])
        self.fresh: Examples = data.train
        """The training examples of this epoch: augmented or masked anew."""
        passes = math.inf if train.epochs is None else train.epochs * len(self.updates(0))
        self.total = int(min(passes, math.inf if train.steps is None else train.steps))
        self.validate_every = train.validate_every or -(-self.total // 10)  # ten validations, the last at the end
        self.save_every = train.save_every or self.validate_every
        decodes = any(METRICS[name].score is not None for name in task.metrics)
        self.time_left = TimeLeft(self.total, self.validate_every, self.validator.search.beam if decodes else 1)

    # ------------------------------------------------------------------------------------------------ the loop

    def fit(self, interrupt: InterruptHandler, progress: Progress, on_better: Callable[[], None]) -> bool:
        """Train to the end, or until interrupted; True at the end. `on_better` is called when validation improves."""
        began, state = time.perf_counter() - self.state.seconds, self.state
        if state.step >= self.total and not state.finished:  # all steps are done, but the last was not validated
            self._validate(progress, on_better)
            state.finished = True
            self.save()
        while not state.finished:
            updates = self.updates(state.epoch)
            if state.position >= len(updates):
                state.epoch, state.position = state.epoch + 1, 0
                continue
            started = time.perf_counter()
            step = self._update(updates[state.position])
            self.time_left.add_step(time.perf_counter() - started)
            if not step.sound:
                self.bad_steps.report(progress.say)
            state.position += 1
            state.step += 1
            state.tokens += step.tokens
            state.seconds = time.perf_counter() - began
            speed = step.tokens / (time.perf_counter() - started)
            if state.bad >= BAD_STEPS:
                self._give_up(on_better)
            progress.step(state.step, step.loss / step.tokens, speed, self.time_left.after(state.step))
            if state.step % self.train.log_every == 0 and state.window_tokens:  # all steps may have been skipped
                self._log_window(step, speed)
            last = state.step >= self.total
            if last or state.step % self.validate_every == 0:
                self._validate(progress, on_better)
                state.finished = last or (self.train.patience is not None and state.worse >= self.train.patience)
            state.seconds = time.perf_counter() - began
            stop = interrupt.signal is not None  # read once: a signal may come between any two lines
            if state.finished or stop or state.step % self.save_every == 0:
                self.save()
            if stop:
                break
        return state.finished

    def follow(self) -> None:
        """Take the steps that the leader announces."""
        state = self.state
        while True:
            updates = self.updates(state.epoch)
            if state.position >= len(updates):
                state.epoch, state.position = state.epoch + 1, 0
                continue
            try:
                self._update(updates[state.position])
            except NoMoreSteps:
                return
            state.position += 1
            state.step += 1
            if state.bad >= BAD_STEPS:
                raise Diverged(f"{self.bad_steps.fault}; see the message of the first process")

    def updates(self, epoch: int) -> Sequence[Group]:
        """The optimizer steps of an epoch, each a list of batches."""
        if self._order[0] != epoch:
            self.fresh = augment(self.task, self.data.train, self.train.seed, epoch)
            order = order_batches(
                self.task, self.fresh, tokens=self.tokens, seed=self.train.seed
            )  # lengths may have changed, too
            self._order = (epoch, Updates(order.epoch(epoch), self.train.accumulate))
        return self._order[1]

    def _update(self, group: Group) -> StepResult:
        """Take one step over a group of batches; the examples of a step that is not finite are logged."""
        number, first = self.state.step + 1, self.state.position == 0
        validated = number >= self.total or number % self.validate_every == 0
        step = self.steps.take(
            self.fresh, group, number=number, rate=self.rate(number), first=first,
            by_layer=validated and self.steps.process_group.is_leader,
        )  # fmt: skip
        self._layers = step.layers or self._layers
        if step.sound:
            self.state.bad = 0
            self.state.window_loss += step.loss
            self.state.window_tokens += step.tokens
        else:
            self.state.bad += 1
            if self.steps.process_group.is_leader:
                self.bad_steps.add(number, step, self.fresh, group)
        return step

    def rate(self, number: int) -> float:
        """The learning rate of a step, counted from 1."""
        spec = self.net.spec
        return self.train.schedule.rate(number, total=self.total, width=spec.mup_base or spec.width)

    def _give_up(self, on_better: Callable[[], None]) -> NoReturn:
        """Stop after several bad steps in a row. The weights are those before them, and are saved if they are finite."""
        said, state = f"{self.bad_steps.fault}, as were the {BAD_STEPS - 1} before it", self.state
        if find_nonfinite(self.steps.tensors()):
            raise Diverged(f"{said}; so are the weights; {ADVICE}")
        if state.best is None:  # not validated yet: without this there would be no model to start from
            with self.validated_weights():
                on_better()
        self.save()
        raise Diverged(
            f"{said}. The last finite weights, of step {state.step - state.bad}, are saved. If these examples are wrong, fix "
            "them and run the same command again: it continues after them. Otherwise lower train.schedule.lr and start over "
            "with --fresh, or start from this run's best model with --from and another --out"
        )

    def _log_window(self, step: StepResult, speed: float) -> None:
        state = self.state
        loss = state.window_loss / state.window_tokens
        state.window_loss, state.window_tokens = 0.0, 0
        self.log.write(
            "train", state.step, epoch=state.epoch, loss=loss, rate=step.rate, grad_norm=step.norm, tokens=state.tokens,
            tokens_per_s=round(speed), seconds=round(state.seconds, 3),
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------ validation

    def _validate(self, progress: Progress, on_better: Callable[[], None]) -> None:
        """Validate; remember and export the best model; keep weights for averaging."""
        state, started = self.state, time.perf_counter()
        check_finite(state.step, self.steps.tensors())
        with self.validated_weights():
            scores = self.validator.scores()
            self.time_left.add_validation(time.perf_counter() - started)
            if not math.isfinite(scores["loss"]):
                raise Diverged(f"the validation loss after step {state.step} is {scores['loss']}; {ADVICE}")
            metric = METRICS[self.task.metrics[0]]
            score = scores[metric.kind]
            equal = score == state.best and scores["loss"] < state.best_loss  # a tie goes to the lower loss
            better = state.best is None or metric.better(score, state.best) or equal
            self._record(scores, progress, better=better)
            if better:
                state.best, state.best_loss, state.best_step, state.worse = score, scores["loss"], state.step, 0
                on_better()
            else:
                state.worse += 1
        self._keep_snapshot(score, metric.higher)

    def _record(self, scores: Mapping[str, float], progress: Progress, *, better: bool) -> None:
        """Log and print a validation: scores, sample outputs, attention, norms by layer."""
        state, validator = self.state, self.validator
        more = {name: score for name, score in scores.items() if name not in METRICS}  # scores of single corpora
        judged = {name: scores[name] for name in self.task.metrics} | more
        decoding, samples = validator.decoding(), validator.samples(MAX_SAMPLES)
        kept = [{name: shorten(text, MAX_KEPT) for name, text in sample.items()} for sample in samples]
        outputs: Plain = {"decoding": decoding, "engine": validator.judge, "samples": kept} if decoding else {}
        maps = validator.attention_maps()
        outputs |= {"attention": maps} if maps else {}
        outputs |= {"layers": self._layers} if self._layers else {}
        self.log.write(
            "valid", state.step, loss=scores["loss"], scores=judged, seconds=round(state.seconds, 3), **outputs
        )
        best = "  best so far" if better else ""
        left = f"  {duration(self.time_left.after(state.step))} left" if state.step < self.total else ""
        progress.say(f"step {state.step}/{self.total}  {render_scores(scores, decoding)}{best}{left}")
        for sample in samples:
            progress.say(render_sample(sample))

    def validated_weights(self) -> AbstractContextManager[None]:
        """Use the weights that are validated and exported: the moving average, if there is one."""
        return nullcontext() if self.steps.ema is None else self.net.use_weights(self.steps.ema.weights)

    # ------------------------------------------------------------------------------------------------ checkpoints

    def _keep_snapshot(self, score: float, higher: bool) -> None:
        """Keep these weights for averaging if they are among the last or best ones."""
        average = self.train.average
        if average is None:
            return
        taken = [*(old for old in self.state.snapshots if old[0] != self.state.step), (self.state.step, score)]
        if average.which == "best":
            taken = sorted(taken, key=lambda s: (s[1] if higher else -s[1], s[0]))
        self.state.snapshots = taken[-average.count :]
        if (self.state.step, score) in self.state.snapshots:
            learned = {name: p for name, p in self.net.named_parameters() if p.requires_grad}
            self.snapshots.add(self.state.step, self.steps.ema.weights if self.steps.ema else learned)

    def save(self) -> None:
        """Write a checkpoint of everything that changes."""
        groups = self.steps.tensors()
        check_finite(self.state.step, groups)
        self.log.sync()
        facts = {**dataclasses.asdict(self.state), "log": self.log.digest()}
        self.checkpoints.save(self.state.step, groups, facts, self.copies)
        self.snapshots.prune(self.checkpoints)

    def prune(self) -> None:
        """Remove what an interrupted `save` would have removed."""
        self.checkpoints.prune(self.state.step)
        self.snapshots.prune(self.checkpoints)

    def _apply_changes(self, changed: Sequence[Change]) -> None:
        """Reconsider what changed settings invalidate: the end of the run, the best score, snapshots."""
        state, patience = self.state, self.train.patience
        worn = patience is not None and state.worse >= patience
        state.finished = state.best is not None and (state.step >= self.total or worn)
        greedy = tuple(f"decode.{name}" for name in GREEDY)  # validation always decodes greedily
        if any(each.under("data", "decode", CORPUS, PLUGINS) and not each.under(*greedy) for each in changed):
            state.best, state.worse = None, 0
        if self.train.average is None:
            state.snapshots = []

    def resume(self, changed: Sequence[Change] = ()) -> list[str]:
        """Continue from the newest intact checkpoint; returns messages, or nothing if there is no checkpoint.

        `changed` lists what is different since the run was started.
        """
        loaded = self.checkpoints.load_newest()
        if loaded is None:
            return []
        wanted = {name: tuple(t.shape) for name, t in trained_tensors(self.net).items()}
        if faults := weight_faults(wanted, loaded.groups.get("weights", {})):
            raise CheckpointError(f"{self.checkpoints.folder} is of another model: {'; '.join(faults)}")
        try:
            log = loaded.facts.pop("log", None)
            lost = log is not None and self.log.has_changed(log)
            self.state = TypeAdapter(TrainState).validate_python(loaded.facts)
            self.steps.restore(loaded.groups, changed=bool(changed))
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            if isinstance(error, RegardError):
                raise
            said = describe_faults(error) if isinstance(error, ValidationError) else str(error).partition("\n")[0]
            raise CheckpointError(
                f"the checkpoint of step {loaded.step} in {self.checkpoints.folder} is not of this version: {said}; "
                "start over with --fresh"
            ) from None
        if changed:
            self._apply_changes(changed)
        messages = list(loaded.messages)
        if lost:
            messages.append(f"{self.log.path} is damaged or incomplete: only events that can be read are kept")
        self.log.rewind(self.state.step)
        step, total = self.state.step, self.total
        where = f"resuming at step {step} of {total}"
        if self.state.finished and step > total:
            where = f"this run is already at step {step}, beyond the {total} asked for: there is nothing left to train"
        elif self.state.finished:
            where = f"this run is finished at step {step} of {total}"
        return [*messages, where]
