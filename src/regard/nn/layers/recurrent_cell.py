"""Recurrent cells: RNN, GRU and LSTM.

Elman 1990; Cho et al. 2014; Hochreiter & Schmidhuber 1997. Gates are in torch's order; without a norm, equations are torch's:

    RNN     h' = tanh(a)                                                           a = W x + b + U h + b'
    GRU     r, z = σ(a_r), σ(a_z)   n = tanh(W x + b + r·(U h + b'))   h' = (1 − z)·n + z·h
    LSTM    i, f, o = σ(a_i), σ(a_f), σ(a_o)   c' = f·c + i·tanh(a_g)   h' = o·tanh(c')

With a `norm` (Ba et al. 2016), W x, U h and the LSTM's c' are normalized.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.nn.layers.norm import NormSpec

States = tuple[Tensor, ...]
"""Tensors that cells carry from step to step, each (b, h): the hidden state first."""


class RecurrentCell(nn.Module):
    """One direction of one layer: `input` and `hidden` are its maps to the gates."""

    gates: ClassVar[int] = 1
    carried: ClassVar[int] = 1
    """Number of state tensors."""

    def __init__(self, read: int, width: int, norm: NormSpec | None = None) -> None:
        super().__init__()
        self.width = width
        self.input, self.hidden = nn.Linear(read, self.gates * width), nn.Linear(width, self.gates * width)
        self.input_norm, self.hidden_norm = (None if norm is None else norm.build(self.gates * width) for _ in range(2))

    def project(self, x: Tensor) -> Tensor:
        """The input's share of the gates; for many steps at once."""
        y: Tensor = self.input(x)
        return y if self.input_norm is None else self.input_norm(y)

    def recur(self, h: Tensor) -> Tensor:
        """The hidden state's share of the gates."""
        y: Tensor = self.hidden(h)
        return y if self.hidden_norm is None else self.hidden_norm(y)

    def step(self, gates: Tensor, states: States, h: Tensor | None = None) -> States:
        """Take one step from projected inputs (b, gates·h); `h` replaces the hidden state where it is read by the gates."""
        raise NotImplementedError

    def run(
        self, gates: Tensor, sizes: Sequence[int], states: States, *, drop: Tensor | None = None
    ) -> tuple[Tensor, States]:
        """Step through packed inputs (tokens, gates·h), of which each step has `sizes`; also returns the final states.

        `drop` (b, h) multiplies the hidden state that the gates read.
        """
        out, start = [], 0
        for size in sizes:
            now = tuple(s[:size] for s in states)
            h = None if drop is None else now[0] * drop[:size]
            new = self.step(gates[start : start + size], now, h)
            out.append(new[0])
            rest = size < states[0].shape[0]
            states = tuple(torch.cat([a, s[size:]]) for a, s in zip(new, states, strict=True)) if rest else new
            start += size
        return torch.cat(out), states

    @property
    def weights(self) -> list[Tensor]:
        """The weights in the order of torch's kernels."""
        return [self.input.weight, self.hidden.weight, self.input.bias, self.hidden.bias]

    @property
    def is_plain(self) -> bool:
        """True if torch's kernels compute the same: no norms, and no adapters on the maps."""
        return self.input_norm is None and type(self.input) is nn.Linear and type(self.hidden) is nn.Linear

    kernel: ClassVar[Callable[..., tuple[Tensor, ...]]]
    """torch's kernel for a whole sequence."""


class RNNCell(RecurrentCell):
    kernel = staticmethod(torch._VF.rnn_tanh)

    def step(self, gates: Tensor, states: States, h: Tensor | None = None) -> States:
        return ((gates + self.recur(states[0] if h is None else h)).tanh(),)


class ReLURNNCell(RecurrentCell):
    kernel = staticmethod(torch._VF.rnn_relu)

    def step(self, gates: Tensor, states: States, h: Tensor | None = None) -> States:
        return ((gates + self.recur(states[0] if h is None else h)).relu(),)


class GRUCell(RecurrentCell):
    gates = 3
    kernel = staticmethod(torch._VF.gru)

    def step(self, gates: Tensor, states: States, h: Tensor | None = None) -> States:
        last = states[0]
        (xr, xz, xn), (hr, hz, hn) = gates.chunk(3, -1), self.recur(last if h is None else h).chunk(3, -1)
        new = (xn + (xr + hr).sigmoid() * hn).tanh()
        return (torch.lerp(new, last, (xz + hz).sigmoid()),)


class LSTMCell(RecurrentCell):
    gates, carried = 4, 2
    kernel = staticmethod(torch._VF.lstm)

    def __init__(self, read: int, width: int, norm: NormSpec | None = None, forget_bias: float = 1.0) -> None:
        super().__init__(read, width, norm)
        self.forget_bias = forget_bias
        self.cell_norm = None if norm is None else norm.build(width)

    def initialize(self) -> None:
        """Let the forget gate start open (Jozefowicz et al. 2015)."""
        self.input.bias[self.width : 2 * self.width] = self.forget_bias

    def step(self, gates: Tensor, states: States, h: Tensor | None = None) -> States:
        last, c = states
        i, f, g, o = (gates + self.recur(last if h is None else h)).chunk(4, -1)
        c = torch.addcmul(f.sigmoid() * c, i.sigmoid(), g.tanh())
        out = c if self.cell_norm is None else self.cell_norm(c)
        return o.sigmoid() * out.tanh(), c


def run_fused(cells: Sequence[RecurrentCell], x: Tensor, sizes: Tensor | None, states: States) -> tuple[Tensor, States]:
    """Run torch's kernel: one cell, or two for both directions, side by side in the states (b, directions·h).

    With `sizes`, x is packed (tokens, d); otherwise it is (b, n, d). The output has the same layout.
    """
    weights, both = [w for cell in cells for w in cell.weights], len(cells) == 2
    hx = [torch.stack(s.chunk(len(cells), -1)) for s in states]
    start, training = tuple(hx) if len(hx) > 1 else hx[0], torch.is_grad_enabled()
    if sizes is None:
        y, *after = cells[0].kernel(x, start, weights, True, 1, 0.0, training, both, True)
    else:
        y, *after = cells[0].kernel(x, sizes, start, weights, True, 1, 0.0, training, both)
    return y, tuple(torch.cat(list(s), -1) for s in after)


def run_plain(
    cells: Sequence[RecurrentCell], x: Tensor, sizes: Tensor, states: States, drop: Tensor | None = None
) -> tuple[Tensor, States]:
    """Run cells on packed inputs, step by step; `drop` (b, directions·h) multiplies what the gates read of the hidden state."""
    outs, afters, steps = [], [], sizes.tolist()
    each = zip(*(s.chunk(len(cells), -1) for s in states), strict=True)
    drops = [None] * len(cells) if drop is None else drop.chunk(len(cells), -1)
    for way, (cell, before, mask) in enumerate(zip(cells, each, drops, strict=True)):
        parts = torch.split(cell.project(x), steps)[:: -1 if way else 1]
        y, after = cell.run(torch.cat(parts), steps[:: -1 if way else 1], before, drop=mask)
        outs.append(torch.cat(torch.split(y, steps[::-1])[::-1]) if way else y)
        afters.append(after)
    return torch.cat(outs, -1), tuple(torch.cat(s, -1) for s in zip(*afters, strict=True))
