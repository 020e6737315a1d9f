"""A decoder with an output tape: Extended Neural GPU.

Kaiser & Bengio 2016. The encoder's grid is the first state d of the decoder; the tape p starts as a grid of zeros. For each
symbol:

    1. the symbol before (y) is written on the tape, into all rows of its column
    2. d ← CGRUs(d, p)
    3. the next symbol is read from the first row of d, in its own column

        d  · · · ▣ · ·     the symbol in column 3 is read
        p  y y y 0 0 0     those in columns 0 to 2 were written

Symbols beyond the last column of the source get columns of their own, which start from zero.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import SpecError, StateError
from regard.nn.blocks.body import BODIES, MAX_LAYERS, Body, BodySpec
from regard.nn.blocks.cgru_loop import DropoutRule, dropout_of
from regard.nn.blocks.columns import grid_refusals
from regard.nn.core.context import Context, Memory
from regard.nn.core.mixer import Act, Can, Site
from regard.nn.core.shape import sizes
from regard.nn.core.state import State, join_padded, moving
from regard.nn.layers.cgru import CGRU, GRID, Kernels, drop_cells, step_cgru, to_columns
from regard.spec import Count, Share, spec


@BODIES.add
@spec
class OutputTape(BodySpec):
    """CGRUs over the encoder's grid and a tape of what was written, one step per symbol (Extended Neural GPU)."""

    depth: Count = 2
    """CGRUs in a step."""
    dropout: Share = 0.0
    """Dropout on the state before each step, for short sources; less for longer ones."""
    dropout_rule: DropoutRule = "sqrt_length"
    """Fall of dropout with the length n of the source: 8/n of the rate (`length`), or 3/√n of it (`sqrt_length`)."""
    causal: bool = True
    can = Can(cross=False, rewind=False, weights=False, packed=False, positions=frozenset[Act]())

    def __post_init__(self) -> None:
        if self.depth > MAX_LAYERS:
            raise SpecError(f"depth is {self.depth:,}; a step may have at most {MAX_LAYERS:,} CGRUs")

    def build(self, site: Site) -> Body:
        return OutputTapeBody(self, dataclasses.replace(site, causal=True))

    @property
    def readers(self) -> int:
        return 1

    def refusals(self, site: Site) -> list[str]:
        return [*super().refusals(site), *grid_refusals(site)]


@dataclasses.dataclass
class OutputTapeState(State):
    """The grids (rows, width, columns, grid rows), and the number of columns of each source."""

    grid: Tensor = moving()
    tape: Tensor = moving()
    lengths: Tensor = moving()
    seen: int = 0
    """Number of tokens that were given, padding included."""
    begun: bool = False
    """True if it has the encoder's grid."""

    def join(self, other: Self) -> Self:
        """Give all rows as many columns as the longest has."""
        grid, tape = (join_padded(*both, 2) for both in ((self.grid, other.grid), (self.tape, other.tape)))
        lengths, seen = torch.cat([self.lengths, other.lengths]), max(self.seen, other.seen)
        return dataclasses.replace(self, grid=grid, tape=tape, lengths=lengths, seen=seen)


class OutputTapeBody(Body):
    def __init__(self, spec: OutputTape, site: Site) -> None:
        super().__init__()
        self.spec, self.site = spec, site
        if faults := spec.refusals(site):
            raise SpecError(*faults)
        self.rows = site.memory // site.width
        self.cells = nn.ModuleList(CGRU(site.width, tape=True) for _ in range(spec.depth))

    def initialize(self) -> None:
        for cell in self._cells:
            cell.initialize()

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        b, _, _ = sizes(x, "b n d", d=self.site.width)
        if ctx.memory is None:
            raise SpecError(f"{self.site.path} reads a memory, and none was given; give the model a source")
        now = state if isinstance(state, OutputTapeState) else self.start(b, 0)
        now = now if now.begun else self._begin(now, ctx.memory, b)
        ctx.tape.plan(self.site.path, "output tape: one step of the whole grid per token")
        kernels = [cell.kernels() for cell in self._cells]
        y = []
        for j, (token, position) in enumerate(zip(x.unbind(1), ctx.at.pos.unbind(1), strict=True)):
            needed = now.seen + 1 if ctx.at.first is None else ctx.at.first + j + 1
            out, now = self._step(token, position.expand(b), _widen(now, needed), kernels, ctx.at.padded)
            y.append(out)
        stream = torch.stack(y, 1) if y else x
        return ctx.tape.at(self.site.path, stream), None if state is None else now

    def _step(
        self, token: Tensor, position: Tensor, now: OutputTapeState, kernels: list[Kernels], padded: bool
    ) -> tuple[Tensor, OutputTapeState]:
        """Write a token (b, d), step, and read at its position (b,), which is −1 at padding."""
        column = torch.arange(now.grid.shape[2], device=token.device)
        written = _as_grid((column == position[:, None] - 1) & (position[:, None] > 0))
        tape = torch.where(written, token[:, :, None, None].to(now.tape.dtype), now.tape)
        kept = _as_grid(column < torch.maximum(now.lengths, position + 1)[:, None])
        grid = now.grid
        if self.training and self.spec.dropout:
            grid = drop_cells(grid, dropout_of(self.spec.dropout, self.spec.dropout_rule, now.lengths))
        for kernel in kernels:
            grid = step_cgru(grid, kernel, tape) * kept
        here = position.clamp(min=0).view(-1, 1, 1).expand(-1, grid.shape[1], 1)
        out = grid[..., 0].gather(2, here).squeeze(2)
        if padded:
            there = (position >= 0).view(-1, 1, 1, 1)
            grid = torch.where(there, grid, now.grid)
        return out, dataclasses.replace(now, grid=grid, tape=tape, seen=now.seen + 1)

    def _begin(self, now: OutputTapeState, memory: Memory, rows: int) -> OutputTapeState:
        """Take over the encoder's grid; hypotheses of a sentence all start from it."""
        sentences, _, _ = memory.values.shape
        if sentences == 0 or rows % sentences:
            raise StateError(f"{rows} hypotheses cannot be divided among the {sentences} sentences of a memory")
        each = to_columns(memory.values, memory.at).unflatten(2, (self.rows, -1))  # type: ignore[no-untyped-call]
        grid = each.permute(0, 3, 1, 2).repeat_interleave(rows // sentences, 0)
        grid = grid.to(now.grid.dtype).contiguous(memory_format=GRID)
        lengths = memory.at.kept.sum(1).expand(sentences).repeat_interleave(rows // sentences, 0)
        return dataclasses.replace(now, grid=grid, tape=torch.zeros_like(grid), lengths=lengths, begun=True)

    @property
    def _cells(self) -> list[CGRU]:
        return list(self.cells)  # type: ignore[arg-type]

    def start(self, rows: int, capacity: int) -> OutputTapeState:
        weight = self._cells[0].gates.weight
        grid = weight.new_zeros(rows, self.site.width, 0, self.rows)
        return OutputTapeState(grid, grid, torch.zeros(rows, dtype=torch.long, device=weight.device))

    def flops(self, n: int, m: int) -> float:
        return m * sum(cell.flops(self.rows) for cell in self._cells)

    def state_numbers(self, n: int) -> float:
        return 2.0 * n * self.rows * self.site.width


def _as_grid(columns: Tensor) -> Tensor:
    return columns[:, None, :, None]


def _widen(now: OutputTapeState, columns: int) -> OutputTapeState:
    """Return the state, padded to at least this many columns."""
    more = columns - now.grid.shape[2]
    if more <= 0:
        return now
    grid, tape = (F.pad(each, (0, 0, 0, more)) for each in (now.grid, now.tape))
    return dataclasses.replace(now, grid=grid, tape=tape)
