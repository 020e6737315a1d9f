"""Steps of an optimiser: rows divided among threads and processes, gradients summed, and what is not finite left out.

Here is everything that moves when a model learns, so that a checkpoint can ask for it in one place.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import SpecError
from regard.model.net import Net
from regard.nn.core.rng import new_seed
from regard.tasks.common.capabilities import Contrasts, is_streaming, supports
from regard.tasks.common.task import Task
from regard.training.finite import unsound
from regard.training.optimizer import Average, moving, optimizer_tensors, restore_optimizer, set_factors, set_rate
from regard.training.processes import Ranks
from regard.training.recipe import Train
from regard.training.stream_state import Carried
from regard.training.threads import Shards, split

Group = list[NDArray[np.int64]]
"""The batches of one step, each the numbers of its examples."""


class Dismissed(Exception):
    """The leader of several processes calls no more steps."""


@dataclasses.dataclass(frozen=True)
class Step:
    """What is known of a step."""

    tokens: int
    loss: float
    """Summed over the tokens, without smoothing."""
    norm: float
    """Length of the gradient."""
    rate: float
    sound: bool
    """Whether all was finite; if not, the weights are as before."""


class Steps:
    """A model, what it learns by, and all that changes with every step."""

    def __init__(self, net: Net, task: Task, train: Train, *, bf16: bool = False, ranks: Ranks | None = None) -> None:
        self.net, self.task, self.train, self.bf16 = net, task, train, bf16
        self.optimizer = train.optimizer.build(net)
        if train.finetune is not None:
            set_factors(net, self.optimizer, train.finetune.factors(name for name, _ in net.named_parameters()))
        self.ema = None if train.ema is None else Average(net, train.ema)
        self.ranks = ranks or Ranks()
        self.carried = Carried(net, task, processes=self.ranks.size)
        if supports(task, Contrasts) and self.ranks.size > 1:
            raise SpecError("rows of this task are judged by one another; several processes cannot divide them")
        threads = 1 if supports(task, Contrasts) else torch.get_num_threads()
        self.shards = Shards.fitting(threads, int(train.batch_tokens) // self.ranks.size, net.device.type)

    def take(self, examples: Any, group: Group, *, number: int, rate: float, first: bool) -> Step:
        """Step `number` of a run, the `first` of an epoch or not, over a group of batches."""
        self.net.train()
        self.carried.begin(number, first=first)
        # rows that go on wait for those before
        turns = [[indices] for indices in group] if is_streaming(self.task) else [group]
        batches = [self._batches(examples, turn) for turn in turns]
        tokens = self.ranks.called(sum(batch.tokens for turn in batches for (_, batch), _ in turn))
        if tokens is None:
            raise Dismissed

        def work(part: tuple[int, Any]) -> tuple[Tensor, float]:
            with self.compute():
                loss = self.carried.loss(self.task, *part, self.train.label_smoothing)
            return loss.total / tokens, float(loss.plain)

        loss = sum(self.shards.run(self.net, work, turn) for turn in batches)
        loss = self.ranks.summed([p for p in self.net.parameters() if p.requires_grad], loss)
        limit = math.inf if self.train.clip_norm is None else self.train.clip_norm
        norm = float(torch.nn.utils.clip_grad_norm_(self.net.parameters(), limit))
        sound = math.isfinite(norm) and math.isfinite(loss) and not unsound({"carried": self.carried.tensors()})
        if sound:
            set_rate(self.optimizer, rate)
            self.optimizer.step()
            if self.ema is not None:
                self.ema.update(self.net)
        else:
            self.carried.forget()
        self.optimizer.zero_grad(set_to_none=True)
        return Step(tokens, loss, norm, rate, sound)

    def _batches(self, examples: Any, group: Group) -> list[tuple[tuple[int, Any], int | None]]:
        """This process's part of a step: a batch for each thread at a time, numbered, with the seed of its chance."""
        count = self.shards.count * self.ranks.size
        parts = [part for indices in group for part in split(indices, count)]
        seeds = [None if count == 1 else new_seed() for _ in parts]
        own = self.ranks.share(list(zip(parts, seeds, strict=True)))
        made = ((self.task.batch(examples, part).to(self.net.device), seed) for part, seed in own)
        return [((i, batch), seed) for i, (batch, seed) in enumerate(made)]

    def compute(self) -> torch.autocast:
        """bfloat16 compute over float32 weights, if this run has it."""
        return torch.autocast(self.net.device.type, dtype=torch.bfloat16, enabled=self.bf16)

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Every tensor that moves, in groups."""
        groups: dict[str, Mapping[str, Tensor]] = {
            "weights": moving(self.net),
            "optimizer": optimizer_tensors(self.net, self.optimizer),
            "random": {"torch": torch.get_rng_state()},
        }
        if self.ema is not None:
            groups["average"] = self.ema.weights
        if self.carried.states:
            groups["carried"] = self.carried.tensors()
        return groups

    def restore(self, groups: Mapping[str, Mapping[str, Tensor]], *, changed: bool) -> None:
        """Put back what `tensors` gave; a run that `changed` begins its stream anew."""
        self.net.put(groups["weights"])
        restore_optimizer(self.net, self.optimizer, groups["optimizer"])
        if self.ema is not None:
            average = groups.get("average", {})  # one that is new begins with the weights
            self.ema.weights = {
                name: average.get(name, p.detach().clone()).to(p.device)
                for name, p in self.net.named_parameters()
                if p.requires_grad
            }
        if not changed:
            self.carried.restore(groups.get("carried", {}))
        torch.set_rng_state(groups["random"]["torch"])
