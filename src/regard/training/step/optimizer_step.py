"""One optimizer step over a group of batches.

Rows are divided among threads and processes, gradients summed, and a step that is not finite is skipped. Everything that
changes while a model learns is here, so that a checkpoint can ask for it in one place.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import Diverged, SpecError
from regard.model.mup import rate_factors
from regard.model.net import Net
from regard.nn.core.rng import new_seed
from regard.spec import Plain
from regard.tasks.common.capabilities import supports
from regard.tasks.common.task import Examples, Loss, Task, TaskBatch
from regard.tasks.common.training_hooks import Contrasts, compute_loss, is_streaming
from regard.training.optimizer import (
    optimizer_state,
    restore_optimizer,
    set_learning_rate,
    set_rate_factors,
    trained_tensors,
)
from regard.training.recipe import Train
from regard.training.step.data_parallel import ProcessGroup, ThreadGroup, split_rows
from regard.training.step.gradients import LayerNorms, add_gradient_noise
from regard.training.step.stream_state import StreamState
from regard.training.step.weight_averaging import MovingAverage

ADVICE = (
    "earlier checkpoints are intact, but the same command would diverge again: lower train.schedule.lr and start over "
    "with --fresh, or start from this run's best model with --from and another --out"
)
Groups = Mapping[str, Mapping[str, Tensor]]


def find_nonfinite(groups: Groups) -> list[str]:
    """The names of tensors with NaN or infinite values, each as `group: name`."""
    return [
        f"{group}: {name}"
        for group, tensors in groups.items()
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not torch.isfinite(tensor).all()
    ]


def check_finite(step: int, groups: Groups) -> None:
    """Refuse to validate, export or save tensors that are not finite."""
    if bad := find_nonfinite(groups):
        more = " …" if len(bad) > 3 else ""
        raise Diverged(f"step {step} left numbers that are not finite ({', '.join(bad[:3])}{more}); {ADVICE}")


Group = list[NDArray[np.int64]]
"""The batches of one step, each as indices of examples."""


class NoMoreSteps(Exception):
    """The leader of several processes announces no more steps."""


@dataclasses.dataclass(frozen=True)
class StepResult:
    """Result of a step."""

    tokens: int
    loss: float
    """Summed over tokens, without label smoothing."""
    norm: float
    """Norm of the gradient before clipping."""
    rate: float
    sound: bool
    """True if everything was finite; if not, the weights are unchanged."""
    layers: Plain | None = None
    """Norms by layer, if they were requested and the step was sound."""


class OptimizerSteps:
    """A model with its optimizer, averages and random state: everything that a step changes."""

    def __init__(
        self, net: Net, task: Task, train: Train, *, bf16: bool = False, process_group: ProcessGroup | None = None
    ) -> None:
        self.net, self.task, self.train, self.bf16 = net, task, train, bf16
        self.optimizer = train.optimizer.build(net)
        if net.spec.mup_base is not None:
            if not train.optimizer.mup:
                raise SpecError(
                    "model.mup_base needs the optimizer adam or adamw; set train.optimizer, or leave it out"
                )
            set_rate_factors(net, self.optimizer, rate_factors(net), same_decay=True)
        if train.finetune is not None:
            set_rate_factors(net, self.optimizer, train.finetune.factors(name for name, _ in net.named_parameters()))
        self.ema = None if train.ema is None else MovingAverage(net, train.ema)
        self.process_group = process_group or ProcessGroup()
        self.stream_state = StreamState(net, task, processes=self.process_group.size)
        if supports(task, Contrasts) and self.process_group.size > 1:
            raise SpecError(
                "this task compares the rows of a batch with one another; they cannot be divided among processes"
            )
        threads = 1 if supports(task, Contrasts) else torch.get_num_threads()
        self.thread_group = ThreadGroup.choose(
            threads, int(train.batch_tokens) // self.process_group.size, net.device.type
        )

    def take(
        self, examples: Examples, group: Group, *, number: int, rate: float, first: bool, by_layer: bool = False
    ) -> StepResult:
        """Take step `number` of a run over a group of batches; `first` in its epoch or not.

        `by_layer` also measures gradients and updates of each layer, which takes a copy of the weights.
        """
        self.net.train()
        self.stream_state.begin(number, first=first)
        # with streaming, each batch continues the one before
        turns = [[indices] for indices in group] if is_streaming(self.task) else [group]
        batches = [self._batches(examples, turn) for turn in turns]
        tokens = self.process_group.announce_step(sum(batch.tokens for turn in batches for (_, batch), _ in turn))
        if tokens is None:
            raise NoMoreSteps

        def work(part: tuple[int, TaskBatch]) -> tuple[Tensor, float]:
            with self.compute():
                loss = self._loss(*part)
            return loss.total / tokens, float(loss.plain)

        loss = sum(self.thread_group.run(self.net, work, turn) for turn in batches)
        loss = self.process_group.sum_gradients([p for p in self.net.parameters() if p.requires_grad], loss)
        norms = LayerNorms(self.net) if by_layer else None
        limit = math.inf if self.train.clip_norm is None else self.train.clip_norm
        norm = float(torch.nn.utils.clip_grad_norm_(self.net.parameters(), limit))
        sound = (
            math.isfinite(norm) and math.isfinite(loss) and not find_nonfinite({"stream": self.stream_state.tensors()})
        )
        if sound:
            if self.train.gradient_noise is not None:
                add_gradient_noise(self.net, self.train.gradient_noise, seed=self.train.seed, step=number)
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
            if self.ema is not None:
                self.ema.update(self.net)
        else:
            self.stream_state.forget()
        self.optimizer.zero_grad(set_to_none=True)
        return StepResult(tokens, loss, norm, rate, sound, norms.finish() if norms and sound else None)

    def _loss(self, part: int, batch: TaskBatch) -> Loss:
        """The loss of one part of a batch; with streaming, continued from the same part of the batch before."""
        state = self.stream_state.states.get(part)
        loss = compute_loss(self.task, self.net, batch, self.train.label_smoothing, state=state)
        self.stream_state.keep(part, loss.state)
        return loss

    def _batches(self, examples: Examples, group: Group) -> list[tuple[tuple[int, TaskBatch], int | None]]:
        """This process's share of a step: numbered parts of batches, each with the seed of its randomness."""
        count = self.thread_group.count * self.process_group.size
        parts = [part for indices in group for part in split_rows(indices, count)]
        seeds = [None if count == 1 else new_seed() for _ in parts]
        own = self.process_group.share(list(zip(parts, seeds, strict=True)))
        made = ((self.task.batch(examples, part).to(self.net.device), seed) for part, seed in own)
        return [((i, batch), seed) for i, (batch, seed) in enumerate(made)]

    def compute(self) -> torch.autocast:
        """Compute in bfloat16 over float32 weights, if this run does so."""
        return torch.autocast(self.net.device.type, dtype=torch.bfloat16, enabled=self.bf16)

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Every tensor that a step changes, in groups."""
        groups: dict[str, Mapping[str, Tensor]] = {
            "weights": trained_tensors(self.net),
            "optimizer": optimizer_state(self.net, self.optimizer),
            "random": {"torch": torch.get_rng_state()},
        }
        if self.ema is not None:
            groups["average"] = self.ema.weights
        if self.stream_state.states:
            groups["stream"] = self.stream_state.tensors()
        return groups

    def restore(self, groups: Mapping[str, Mapping[str, Tensor]], *, changed: bool) -> None:
        """Restore what `tensors` returned. A run whose settings `changed` starts its stream again."""
        self.net.load_weights(groups["weights"])
        restore_optimizer(self.net, self.optimizer, groups["optimizer"])
        if self.ema is not None:
            average = groups.get("average", {})  # a new average starts with the weights
            self.ema.weights = {
                name: average.get(name, p.detach().clone()).to(p.device)
                for name, p in self.net.named_parameters()
                if p.requires_grad
            }
        if not changed:
            self.stream_state.restore(groups.get("stream", {}))
        torch.set_rng_state(groups["random"]["torch"])
