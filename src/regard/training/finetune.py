"""Tuning a model that exists: which of its weights learn, and how fast.

freeze   lower layers (the embedding and so many blocks of each stack), or whatever patterns name, stay as they are
layer_decay  each block learns so much slower than the one above it (Howard & Ruder 2018; Clark et al. 2020)
lora     thin adapters learn instead of the maps they stand beside (Hu et al. 2021)

height     0: embedding, and what a stack owns for all blocks    1 … n: its blocks    n + 1: its last norm, heads
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from regard.errors import SpecError
from regard.nn.layers.lora import Lora, adapt
from regard.spec import Spec, spec

BLOCK = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.")
LOW = re.compile(r"(embed|source)\.|(encoder|decoder)\.(position|shared)\.")


@spec
class FineTuning(Spec):
    """What of a model learns. With `lora` it is the adapters, and what the model to start from did not have."""

    freeze: Annotated[int, Field(ge=0)] | tuple[str, ...] = 0
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    lora: Lora | None = None

    def apply(self, net: nn.Module, new: Collection[str], seed: int) -> None:
        """Adapt and freeze the net in place; `new` weights were not in the model it starts from."""
        if self.lora is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                learns = {*adapt(net, self.lora), *new}
            for name, parameter in net.named_parameters():
                parameter.requires_grad_(name in learns)
        names = dict(net.named_parameters())
        for name in self._frozen(names):
            names[name].requires_grad_(False)
        if not any(p.requires_grad for p in names.values()):
            raise SpecError("train.finetune freezes every weight: nothing is left to learn")

    def factors(self, names: Iterable[str]) -> dict[str, float]:
        """How fast each weight learns, as a part of the schedule's rate."""
        heights = Heights(names := list(names))
        return {name: self.layer_decay ** heights.below(name) for name in names}

    def _frozen(self, names: Collection[str]) -> list[str]:
        if isinstance(self.freeze, int):
            heights = Heights(names)
            if self.freeze > heights.least:
                raise SpecError(f"train.finetune.freeze asks for {self.freeze} blocks, of {heights.least} there are")
            return [name for name in names if self.freeze and heights.of(name) <= self.freeze]
        for pattern in self.freeze:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise SpecError(
                    f"no weight is called {pattern!r} (train.finetune.freeze); they are named as in `regard show`"
                )
        return [name for name in names if any(fnmatchcase(name, pattern) for pattern in self.freeze)]


class Heights:
    """How high each weight stands in its stack."""

    def __init__(self, names: Iterable[str]) -> None:
        self.depths: dict[str, int] = {}
        for match in filter(None, map(BLOCK.match, names)):
            self.depths[match[1]] = max(self.depths.get(match[1], 0), int(match[2]) + 1)
        self.least, self.most = min(self.depths.values(), default=0), max(self.depths.values(), default=0)

    def of(self, name: str) -> int:
        if match := BLOCK.match(name):
            return int(match[2]) + 1
        return 0 if LOW.match(name) else self._top(name)

    def below(self, name: str) -> int:
        """How many blocks below the top of its stack."""
        return self._top(name) - self.of(name)

    def _top(self, name: str) -> int:
        """One above the last block of its own stack; the embedding and heads stand as the deepest stack has it."""
        return self.depths.get(name.partition(".")[0], self.most) + 1
