"""A loop of CGRUs, as many steps as tokens: Neural GPU.

Kaiser & Sutskever 2015. Tokens are written into the first row of a grid, the other rows are zero:

    rows  │ 1 0 1 + 1 1 0        n columns, one per token
      ▼   │ · · · · · · ·  ─ CGRU ─ CGRU ─▶  n times  ─▶  the output is in the first row, one symbol per column
          │ · · · · · · ·

A text of n tokens takes n steps, whatever the length of others in its batch: each row stops at its own length.

Relaxed parameter sharing: in training, step i uses copy i mod R of the weights. A penalty pulls the copies together; it grows
with the training step, and once it is large all steps use the mean of the copies. The model that runs is that mean.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.blocks.body import BODIES, MAX_LAYERS, Body, BodySpec
from regard.nn.core.context import Context
from regard.nn.core.mixer import Act, Can, Site
from regard.nn.core.shape import sizes
from regard.nn.core.state import State
from regard.nn.layers.cgru import CGRU, GRID, Kernels, count_columns, drop_cells, from_columns, step_cgru, to_columns
from regard.spec import Count, Share, Spec, spec

MAX_PULL = 0.1
"""Pull at which the penalty ends and the copies become one."""
DropoutRule = Literal["length", "sqrt_length"]
"""Dropout of a text of n tokens: 8/n of the rate (Neural GPU) or 3/√n of it (Extended Neural GPU), at most the rate itself."""


@spec
class Relaxation(Spec):
    """Relaxed parameter sharing: the penalty is `pull`, multiplied by `growth` every `every` steps, up to 0.1."""

    copies: Count = 6
    """Number of copies of the weights."""
    pull: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5e-4
    """Weight of the penalty at the first step."""
    growth: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 1.2
    """Factor by which the penalty grows."""
    every: Count = 200
    """Steps until the penalty grows."""

    def pull_at(self, step: int) -> float | None:
        """Return the weight of the penalty at a training step, counted from 1; None once the copies are one."""
        exponent = math.log(self.pull) + (step - 1) // self.every * math.log(self.growth)
        return math.exp(exponent) if exponent < math.log(MAX_PULL) else None


def relax(copies: int, every: int) -> Relaxation | None:
    """Return the relaxation for so many copies of the weights; None for one."""
    return None if copies == 1 else Relaxation(copies, every=every)


@BODIES.add
@spec
class CgruLoop(BodySpec):
    """CGRUs over a grid of all tokens, repeated once per token (Neural GPU)."""

    rows: Annotated[int, Field(ge=1, le=1024)] = 4
    """Rows of the grid; the first holds the tokens."""
    depth: Count = 2
    """CGRUs in a step."""
    relaxation: Relaxation | None = None
    """Train with several copies of the weights, which become one."""
    dropout: Share = 0.0
    """Dropout on the state before each step, for short texts; less for longer ones."""
    dropout_rule: DropoutRule = "length"
    """Fall of dropout with the length n: 8/n of the rate (`length`), or 3/√n of it (`sqrt_length`)."""
    causal: bool = False
    can = Can(
        causal=False, cross=False, stream=False, rewind=False, weights=False, packed=False, losses=True,
        positions=frozenset[Act](),
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.depth > MAX_LAYERS:
            raise SpecError(f"depth is {self.depth:,}; a step may have at most {MAX_LAYERS:,} CGRUs")

    def build(self, site: Site) -> Body:
        return CgruLoopBody(self, dataclasses.replace(site, causal=False))

    def leaves(self, width: int, memory: int = 0) -> int:
        return self.rows * width


class CgruLoopBody(Body):
    def __init__(self, spec: CgruLoop, site: Site) -> None:
        super().__init__()
        self.spec, self.site = spec, site
        self.copies = 1 if spec.relaxation is None else spec.relaxation.copies
        self.cells = nn.ModuleList(CGRU(site.width, copies=self.copies) for _ in range(spec.depth))
        self.pull: float | None = None
        """Weight of the penalty; None if all steps share one set of weights."""

    def initialize(self) -> None:
        for cell in self._cells:
            cell.initialize()

    def before_step(self, step: int) -> None:
        self.pull = None if self.spec.relaxation is None else self.spec.relaxation.pull_at(step)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        _, n, _ = sizes(x, "b n d", d=self.site.width)
        first, lengths = to_columns(x, ctx.at).mT.unsqueeze(-1), count_columns(ctx.at)
        grid = nn.functional.pad(first, (0, self.spec.rows - 1)).contiguous(memory_format=GRID)
        kept = None if lengths is None else (torch.arange(n, device=x.device) < lengths[:, None])[:, None, :, None]
        rate = dropout_of(self.spec.dropout, self.spec.dropout_rule, n if lengths is None else lengths)
        relaxed = self.training and self.pull is not None
        kernels = [self._kernels(copy) for copy in range(self.copies)] if relaxed else [self._kernels(None)]
        for i in range(n):
            before = grid
            if self.training and self.spec.dropout:
                grid = drop_cells(grid, rate)
            for kernel in kernels[i % len(kernels)]:
                grid = step_cgru(grid, kernel)
                grid = grid if kept is None else grid * kept
            if lengths is not None:  # a row that has taken as many steps as it has tokens stays as it is
                grid = torch.where((i < lengths).view(-1, 1, 1, 1), grid, before)
            grid = self._tell(grid, i, ctx)
        if relaxed and self.pull is not None:
            ctx.tape.loss("relaxation", self.pull * torch.stack([cell.spread() for cell in self._cells]).sum())
        y = from_columns(grid.permute(0, 2, 3, 1).flatten(2), ctx.at)
        return ctx.tape.at(self.site.path, y), None

    def _tell(self, grid: Tensor, i: int, ctx: Context) -> Tensor:
        """Pass the grid after a step to a tape, as (b, n, rows · width)."""
        if ctx.tape.is_idle:
            return grid
        kept = ctx.tape.for_iteration(i).at(f"{self.site.path}.grid", grid.permute(0, 2, 3, 1).flatten(2))
        return kept.unflatten(2, (self.spec.rows, -1)).permute(0, 3, 1, 2)  # type: ignore[no-untyped-call, no-any-return]

    def _kernels(self, copy: int | None) -> list[Kernels]:
        return [cell.kernels(copy) for cell in self._cells]

    @property
    def _cells(self) -> list[CGRU]:
        return list(self.cells)  # type: ignore[arg-type]

    def flops(self, n: int, m: int) -> float:
        return n * sum(cell.flops(self.spec.rows) for cell in self._cells)


def dropout_of(rate: float, rule: DropoutRule, lengths: int | Tensor) -> float | Tensor:
    """Return the dropout of texts with these lengths."""
    if isinstance(lengths, int):
        return rate * min(1.0, 8 / max(lengths, 1) if rule == "length" else 3 / max(lengths, 1) ** 0.5)
    count = lengths.clamp(min=1)
    return rate * (8 / count if rule == "length" else 3 / count.sqrt()).clamp(max=1.0)
