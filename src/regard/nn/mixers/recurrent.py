"""Recurrent layers as mixers: RNN, GRU and LSTM.

    causal          →  →  →  →           one direction; the state is all it remembers
    otherwise       →  →  →  →           two directions, half of the output each (Schuster & Paliwal 1997)
                    ←  ←  ←  ←

A sequence starts from zeros, padding changes nothing, and packed documents are separate sequences. Where torch's kernels
compute the same they run; otherwise (layer norm, dropout of the hidden state, adapters) the cells step by themselves.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.core.context import Context
from regard.nn.core.mixer import MIXERS, Act, Can, Mixer, MixerSpec, Site
from regard.nn.core.packed_rows import PackedRows
from regard.nn.core.shape import device_kind, sizes
from regard.nn.core.state import State, moving
from regard.nn.layers.dropout import dropout
from regard.nn.layers.norm import NormSpec
from regard.nn.layers.recurrent_cell import (
    GRUCell,
    LSTMCell,
    RecurrentCell,
    ReLURNNCell,
    RNNCell,
    run_fused,
    run_plain,
)
from regard.registry import kind_of
from regard.spec import Count, Share, spec


@spec
class RecurrentLayer(MixerSpec):
    """Base of the recurrent layers."""

    width: Count | None = None
    """Width of the output where it is not that of the stream; two directions have half of it each."""
    bidirectional: bool | None = None
    """Read in both directions; by default wherever the stack is not causal."""
    reverse: bool = False
    """Read from the last token to the first, as a reversed source (Sutskever et al. 2014); in one direction only."""
    norm: NormSpec | None = None
    """Normalize the gates (Ba et al. 2016)."""
    dropout: Share = 0.0
    """Dropout on the input of the layer."""
    variational: bool = False
    """Drop the same elements of the input at every step (Gal & Ghahramani 2016)."""
    hidden_dropout: Share = 0.0
    """Dropout on the hidden state that the gates read, the same elements at every step."""
    can = Can(cross=False, rewind=False, weights=False, final=True, positions=frozenset[Act]())

    def build(self, site: Site) -> RecurrentMixer:
        return RecurrentMixer(self, site)

    def leaves(self, width: int) -> int:
        return self.width or width

    def directions(self, site: Site) -> int:
        """Return how many directions it reads in."""
        both = not (site.causal or self.reverse) if self.bidirectional is None else self.bidirectional
        return 2 if both else 1

    def refusals(self, site: Site) -> list[str]:
        out, name, width = super().refusals(site), kind_of(type(self)), self.leaves(site.width)
        if site.causal and self.bidirectional:
            out.append(f"mixer {name!r} cannot be causal and bidirectional ({site.path}); set bidirectional: false")
        if self.reverse and (site.causal or self.bidirectional):
            what = "causal" if site.causal else "bidirectional"
            out.append(f"mixer {name!r} cannot be {what} and read in reverse ({site.path}); set reverse: false")
        if self.directions(site) == 2 and width % 2:
            out.append(
                f"{site.path} reads in two directions, and half of its width {width} is no integer; make it even"
            )
        return out

    def cell(self, read: int, width: int) -> RecurrentCell:
        """Build the cell of one direction."""
        raise NotImplementedError


@MIXERS.add(also=("elman",))
@spec
class RNN(RecurrentLayer):
    """h = tanh(W x + U h + b): the plain recurrence (Elman 1990)."""

    activation: Literal["tanh", "relu"] = "tanh"

    def cell(self, read: int, width: int) -> RecurrentCell:
        return (RNNCell if self.activation == "tanh" else ReLURNNCell)(read, width, self.norm)


@MIXERS.add
@spec
class GRU(RecurrentLayer):
    """Gated recurrent unit (Cho et al. 2014), with the reset gate after the product, as in torch."""

    def cell(self, read: int, width: int) -> RecurrentCell:
        return GRUCell(read, width, self.norm)


@MIXERS.add
@spec
class LSTM(RecurrentLayer):
    """Long short-term memory (Hochreiter & Schmidhuber 1997) with a forget gate, whose bias starts at `forget_bias`."""

    forget_bias: float = 1.0
    """Bias of the forget gate at the start; larger values remember longer."""

    def cell(self, read: int, width: int) -> RecurrentCell:
        return LSTMCell(read, width, self.norm, self.forget_bias)


@dataclasses.dataclass
class RecurrentState(State):
    """State of the cells (rows, width each, the hidden state first), and the document it belongs to (rows,)."""

    carried: tuple[Tensor, ...] = moving()
    doc: Tensor = moving()

    @property
    def h(self) -> Tensor:
        """The hidden state."""
        return self.carried[0]


class RecurrentMixer(Mixer):
    ways: ClassVar[tuple[str, str]] = ("forth", "back")

    def __init__(self, spec: RecurrentLayer, site: Site) -> None:
        super().__init__(site)
        self.spec, count, self.width = spec, spec.directions(site), spec.leaves(site.width)
        if self.width % count:
            raise SpecError(*spec.refusals(site))
        for way in self.ways[:count]:
            setattr(self, way, spec.cell(site.width, self.width // count))
        self.cells: list[RecurrentCell] = [getattr(self, way) for way in self.ways[:count]]

    def initialize(self) -> None:
        for cell in self.cells:
            if isinstance(cell, LSTMCell):
                cell.initialize()

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        b, _, _ = sizes(x, "b n d", d=self.site.width)
        before = state if isinstance(state, RecurrentState) else self.start(b, 0)
        with torch.autocast(device_kind(x), enabled=False):
            y, after = self.run(x.to(before.h.dtype), ctx, before, keep=state is not None)
        return y, None if state is None else after

    def run(self, x: Tensor, ctx: Context, before: RecurrentState, *, keep: bool) -> tuple[Tensor, RecurrentState]:
        """Run all cells from a state; `keep`: whether the state after the last token is wanted."""
        at, drop, x = ctx.at, self.spec.hidden_dropout if self.training else 0.0, self.drop(x)
        way = self.spec.reverse
        fused = not drop and all(cell.is_plain for cell in self.cells)
        ctx.tape.plan(self.site.path, "fused: torch's kernel" if fused else "step by step")
        if x.is_meta:  # an outline has no numbers to pack by
            return x.new_empty(*x.shape[:2], self.width), before
        if fused and not at.packed and not at.padded:
            y, carried = run_fused(self.cells, x.flip(1) if way else x, None, before.carried)
            return y.flip(1) if way else y, RecurrentState(carried, before.doc)
        if fused and at.contiguous and not at.packed and not keep and not way and len(self.cells) == 1:
            y, _ = run_fused(self.cells, x, None, before.carried)  # what is read after the end of a row changes nothing
            return y * at.kept.unsqueeze(-1), before
        rows = ctx.once(("packed rows", at, x.shape[0], way), lambda: PackedRows(at, x.shape[0], reverse=way))
        if rows.count == 0:
            return x.new_zeros(*x.shape[:2], self.width) + 0.0 * x.sum(), before
        packed, states = rows.pack(x), tuple(rows.enter(s, before.doc) for s in before.carried)
        if fused:
            out, after = run_fused(self.cells, packed, rows.sizes, states)
        else:
            mask = dropout(x.new_ones(x.shape[0], self.width), drop).index_select(0, rows.row) if drop else None
            out, after = run_plain(self.cells, packed, rows.sizes, states, mask)
        carried = tuple(rows.leave(old, new) for old, new in zip(before.carried, after, strict=True))
        doc = before.doc.index_copy(0, rows.row[rows.last], rows.doc[rows.last])
        return rows.unpack(out), RecurrentState(carried, doc)

    def drop(self, x: Tensor) -> Tensor:
        """Drop elements of the input (b, n, d) in training."""
        p = self.spec.dropout if self.training else 0.0
        if not p or not self.spec.variational:
            return dropout(x, p)
        return x * dropout(x.new_ones(x.shape[0], 1, x.shape[2]), p)

    def start(self, rows: int, capacity: int) -> RecurrentState:
        like = self.cells[0].hidden.weight
        states = tuple(like.new_zeros(rows, self.width) for _ in range(self.cells[0].carried))
        return RecurrentState(states, torch.zeros(rows, dtype=torch.long, device=like.device))

    def flops(self, n: int, m: int) -> float:
        return sum(2.0 * part.weight.numel() for part in self.modules() if isinstance(part, nn.Linear))

    def state_numbers(self, n: int) -> float:
        return float(self.width * self.cells[0].carried)
