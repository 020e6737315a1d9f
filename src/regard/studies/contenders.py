"""The layers that the complexity study compares.

A layer of every mixer, and the layers that attention replaced. `layer` is timed. `plain` is traced: the dense twin of a tiled
mixer has no loops that exist only for speed. `hop` carries information once: a layer, or one step of a recurrent cell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from regard.errors import UnknownName
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Fixed, Strided
from regard.nn.core.mixer import Mixer, MixerSpec, Site
from regard.nn.mixers import (
    GRU,
    LSTM,
    RNN,
    BigBird,
    Flash,
    Full,
    LinearAttention,
    Linformer,
    Local,
    Lsh,
    Performer,
    Sparse,
    XLMemory,
)
from regard.nn.mixers.recurrent import RecurrentLayer
from regard.nn.positions.relative import Distance

KERNEL = 3
"""Width of the convolution kernel."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """The size of a layer: `n` tokens of width `width`; `window` for layers that have one."""

    n: int
    width: int = 256
    heads: int = 4
    window: int = 512


Power = float | Literal["log"] | None
"""Growth with n: this power of it, its logarithm, or unknown."""


@dataclasses.dataclass(frozen=True)
class Theory:
    """The complexity according to the papers."""

    time: Power
    memory: Power
    sequential: Power
    path: Power


@dataclasses.dataclass(frozen=True)
class Contender:
    """One mechanism. `layer`, `plain` and `hop` make modules (b, n, d) → (b, n, d); `i` counts layers, should they differ."""

    name: str
    about: str
    group: str
    theory: Theory
    layer: Callable[[Shape, int], nn.Module]
    plain: Callable[[Shape], nn.Module]
    hop: Callable[[Shape, int], nn.Module] | None
    """None if gradients cannot show which inputs an output depends on."""
    causal: bool = False
    spec: Callable[[Shape], MixerSpec] | None = None
    """The mixer that is timed, if it is one."""


class MixerLayer(nn.Module):
    """A mixer on its own; with `looked_at` it computes attention weights, on the plain path."""

    def __init__(
        self, spec: MixerSpec, shape: Shape, *, layer: int = 0, causal: bool = False, looked_at: bool = False
    ) -> None:
        super().__init__()
        self.mix: Mixer = spec.build(Site("mix", shape.width, shape.n, layer=layer, causal=causal))
        self.patterns = ("*.weights", "*.slots") if looked_at else ()
        _settle(self)

    def forward(self, x: Tensor) -> Tensor:
        at = Coords.span(x.shape[1], device=x.device)
        y: Tensor = self.mix(x, Context(at, tape=Tape(*self.patterns)))[0]
        return y


class Segments(MixerLayer):
    """A mixer that reads a long stream segment by segment, with memory."""

    def __init__(self, spec: MixerSpec, shape: Shape) -> None:
        super().__init__(spec, shape, causal=True)
        self.window = shape.window

    def forward(self, x: Tensor) -> Tensor:
        state, out, first = self.mix.start(x.shape[0], self.window), [], 0
        for part in torch.split(x, self.window, 1):
            y, state = self.mix(part, Context(Coords.span(part.shape[1], first, x.device)), state)
            out.append(y)
            first += part.shape[1]
        return torch.cat(out, 1)


Cell = type[nn.LSTMCell] | type[nn.GRUCell] | type[nn.RNNCell]


class Unrolled(nn.Module):
    """A recurrent cell as a loop over tokens; with `steps`, that many steps for all tokens at once."""

    def __init__(self, kind: Cell, shape: Shape, steps: int | None = None) -> None:
        super().__init__()
        self.cell, self.steps = kind(shape.width, shape.width), steps

    def forward(self, x: Tensor) -> Tensor:
        return self._in_turn(x) if self.steps is None else self._at_once(x)

    def _in_turn(self, x: Tensor) -> Tensor:
        state, out = None, []
        for token in x.unbind(1):
            state = self.cell(token, state)
            out.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(out, 1)

    def _at_once(self, x: Tensor) -> Tensor:
        """A hop: what each token passes to the next, when all step together."""
        before = nn.functional.pad(x, (0, 0, 1, -1)).flatten(0, 1)
        state = (before, before) if isinstance(self.cell, nn.LSTMCell) else before
        y = self.cell(x.flatten(0, 1), state)
        out: Tensor = (y[0] if isinstance(y, tuple) else y).view_as(x)
        return out


class Convolved(nn.Module):
    """torch's convolution over the tokens, each with its neighbors."""

    def __init__(self, shape: Shape, dilation: int = 1) -> None:
        super().__init__()
        self.layer = nn.Conv1d(shape.width, shape.width, KERNEL, padding=dilation * (KERNEL // 2), dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x.mT).mT
        return y


@torch.no_grad()
def _settle(layer: nn.Module) -> None:
    """Weights as a trained layer has them: not so small that a gradient is lost, not so large that a softmax is hard."""
    for parameter in layer.parameters():
        parameter.normal_(std=parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.02)


def _mixer(
    name: str, about: str, group: str, theory: Theory, spec: Callable[[Shape], MixerSpec], *, looked_at: bool = False
) -> Contender:
    def layer(shape: Shape, i: int = 0) -> nn.Module:
        return MixerLayer(spec(shape), shape, layer=i, looked_at=looked_at)

    def plain(shape: Shape) -> nn.Module:
        made = spec(shape)
        return MixerLayer(made.twin() or made, shape, looked_at=True)

    return Contender(name, about, group, theory, layer, plain, layer, spec=spec)


def _recurrent(name: str, spec: RecurrentLayer, cell: Cell) -> Contender:
    return Contender(
        name, f"{name.upper()}, torch's kernel", "before attention", Theory(1, 1, 1, 1),
        lambda shape, _: MixerLayer(spec, shape, causal=True), lambda shape: Unrolled(cell, shape),
        lambda shape, _: Unrolled(cell, shape, steps=1), causal=True, spec=lambda _: spec,
    )  # fmt: skip


def _convolved(name: str, about: str, path: Power, dilation: Callable[[int], int]) -> Contender:
    def layer(shape: Shape, i: int = 0) -> nn.Module:
        return Convolved(shape, dilation(i))

    return Contender(name, about, "before attention", Theory(1, 1, 0, path), layer, layer, layer)


def _root(n: int) -> int:
    """A power of two near √n, so that it divides lengths that are powers of two."""
    return 1 << (n.bit_length() // 2)


def _xl_memory(shape: Shape) -> nn.Module:
    return Segments(XLMemory(shape.heads, memory_length=shape.window, position=Distance()), shape)


FULL = "fused"
"""Full attention on its default path, which all others are compared with."""
TILED = Theory(2, 1, 0, 0)
CONTENDERS: dict[str, Contender] = {
    c.name: c
    for c in (
        _mixer(FULL, "full attention, torch's fused kernel", "full", TILED, lambda s: Full(s.heads)),
        _mixer(
            "plain", "full attention, scores stored", "full", Theory(2, 2, 0, 0), lambda s: Full(s.heads), looked_at=True
        ),
        _mixer("flash", "full attention by our tiles (FlashAttention)", "full", TILED, lambda s: Flash(s.heads)),
        _mixer(
            "local", "window (Longformer)", "sparse", Theory(1, 1, 0, 1), lambda s: Local(s.heads, reach=s.window // 2)
        ),
        _mixer(
            "bigbird", "blocks: window, ends, random (BigBird)", "sparse", Theory(1, 1, 0, 0),
            lambda s: BigBird(s.heads, block=max(s.window // 8, 1)),
        ),
        _mixer(
            "strided", "stride √n (Sparse Transformer)", "sparse", Theory(1.5, 1.5, 0, 0),
            lambda s: Sparse(s.heads, Strided(_root(s.n))),
        ),
        _mixer(
            "fixed", "blocks of √n (Sparse Transformer)", "sparse", Theory(1.5, 1.5, 0, 0),
            lambda s: Sparse(s.heads, Fixed(_root(s.n))),
        ),
        _mixer(
            "lsh", "hashed, two rounds (Reformer)", "sparse", Theory(1, 1, 0, None),
            lambda s: Lsh(s.heads, chunk=max(s.window // 8, 4)),
        ),
        _mixer("performer", "random features (Performer)", "linear", Theory(1, 1, 0, 0), lambda s: Performer(s.heads)),
        _mixer(
            "linear_attention", "features elu + 1 (Katharopoulos et al. 2020)", "linear", Theory(1, 1, 0, 0),
            lambda s: LinearAttention(s.heads),
        ),
        _mixer(
            "linformer", "keys projected to a rank (Linformer)", "linear", Theory(1, 1, 0, 0),
            lambda s: Linformer(s.heads, rank=s.window // 2),
        ),
        Contender(
            "xl_memory", "segments with memory (Transformer-XL)", "linear", Theory(1, 1, 1, None),
            lambda shape, _: _xl_memory(shape), _xl_memory, None, causal=True,
        ),
        _recurrent("lstm", LSTM(), nn.LSTMCell),
        _recurrent("gru", GRU(), nn.GRUCell),
        _recurrent("rnn", RNN(), nn.RNNCell),
        _convolved("conv", f"torch's Conv1d, kernel {KERNEL}", 1, lambda _: 1),
        _convolved("dilated", "torch's Conv1d, dilation 2ⁱ in layer i", "log", lambda i: 2**i),
    )
}  # fmt: skip


def select_contenders(names: tuple[str, ...]) -> list[Contender]:
    """The contenders with these names, or all; full attention is always among them."""
    for name in names:
        if name not in CONTENDERS:
            raise UnknownName("contender", name, CONTENDERS)
    return [c for c in CONTENDERS.values() if not names or c.name in names or c.name == FULL]
