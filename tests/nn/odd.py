"""Small mixers, a position and wirings that each lean on one clause of the contracts, as Transformer-XL, hashing, linear
or recurrent mixers do. `in_tables` puts them where specs find them, for one test."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from regard.model.model_spec import ModelSpec
from regard.nn.attention.attend import fold, unfold
from regard.nn.blocks.block import Block, BlockLayer
from regard.nn.blocks.body import BODIES, Body, BodySpec, Stack, StackBody
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.wiring import WIRINGS, PreNorm, States, WiringSpec
from regard.nn.core.context import Context, Memory
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MIXERS, Act, Can, Mixer, MixerSpec, Site
from regard.nn.core.shape import split_heads
from regard.nn.core.state import State, moving
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers import Full
from regard.nn.positions.position import POSITIONS, Position, PositionSpec, distance, sinusoid
from regard.spec import Count, spec

LENGTH = 12


@spec
class Blur(MixerSpec):
    """The mean of all tokens up to each: only ever over whole rows, like a mixer that sorts them by hash."""

    can = Can(cross=False, stream=False, rewind=False, weights=False, positions=frozenset())

    def build(self, site: Site) -> Mixer:
        return BlurMixer(site)


class BlurMixer(Mixer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.out = nn.Linear(site.width, site.width)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        assert state is None
        kept = ctx.at.kept.unsqueeze(-1).to(x.dtype)
        return self.out((x * kept).cumsum(1) / kept.cumsum(1).clamp(min=1)), None


@spec
class Squeeze(MixerSpec):
    """Tokens summed by rows of a matrix as long as the model, one for all layers unless they have their `own`."""

    rank: Count = 3
    own: bool = False
    can = Can(
        causal=False, cross=False, stream=False, rewind=False, weights=False, packed=False, length="fixed",
        positions=frozenset(),
    )  # fmt: skip

    def build(self, site: Site) -> Mixer:
        return SqueezeMixer(self, site)

    def shares(self, site: Site) -> Mapping[str, Callable[[], nn.Module]]:
        return {} if self.own else {f"squeeze_{self.rank}": lambda: Rows(self.rank, site.length)}


class Rows(nn.Module):
    def __init__(self, rank: int, length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rank, length))


class SqueezeMixer(Mixer):
    def __init__(self, spec: Squeeze, site: Site) -> None:
        super().__init__(site)
        self.name = f"squeeze_{spec.rank}"
        self.rows = Rows(spec.rank, site.length) if spec.own else None

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        rows = ctx.shared[self.name] if self.rows is None else self.rows
        short: Tensor = rows.weight[:, : x.shape[1]] @ x  # type: ignore[index]
        return x + short.mean(1, keepdim=True), None


@spec
class Drift(MixerSpec):
    """A running sum with a loss of its own; starts from ones, and draws a direction anew at every second step."""

    can = Can(cross=False, rewind=False, weights=False, losses=True, final=True, positions=frozenset())

    def build(self, site: Site) -> Mixer:
        return DriftMixer(site)


@dataclasses.dataclass
class Sum(State):
    total: Tensor = moving()


@dataclasses.dataclass
class Drifting(State):
    """A state inside a state, a number that is no tensor, and something that is not there at first."""

    inner: Sum = moving()
    count: int = 0
    last: Tensor | None = moving(default=None)


class DriftMixer(Mixer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.scale = nn.Parameter(torch.empty(site.width))
        self.out = nn.Linear(site.width, site.width)
        self.way: Tensor
        self.register_buffer("way", torch.randn(site.width))

    def initialize(self) -> None:
        self.scale.fill_(1.0)
        self.out.bias.fill_(0.5)

    def before_step(self, step: int) -> None:
        if step % 2 == 0:
            self.way.normal_()

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        before = state.inner.total if isinstance(state, Drifting) else torch.zeros_like(x[:, 0])
        sums = before.unsqueeze(1) + x.cumsum(1)
        ctx.tape.loss(f"{self.site.path}.size", (self.scale * sums).square().mean())
        if isinstance(state, Drifting):  # a call consumes the state it is given
            state.inner.total, state.count, state.last = sums[:, -1], state.count + x.shape[1], x[:, -1]
        return self.out((self.scale * sums + self.way).tanh()), state

    def start(self, rows: int, capacity: int) -> State:
        return Drifting(Sum(self.scale.new_zeros(rows, self.site.width)))

    def state_numbers(self, n: int) -> float:
        return 2.0 * self.site.width


@spec
class Gaze(MixerSpec):
    """Stands in the mix place and looks at the encoder; remembers nothing of its own."""

    can = Can(cross=False, rewind=False, weights=False, memory=True, positions=frozenset())

    def build(self, site: Site) -> Mixer:
        return GazeMixer(site)


class GazeMixer(Mixer):
    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        assert state is None
        assert ctx.memory is not None
        keys, values = ctx.memory.keys, ctx.memory.values
        q = fold(x.unsqueeze(1), keys.shape[0])
        scores = (q @ keys.unsqueeze(1).mT).masked_fill(~ctx.memory.at.kept[:, None, None], -torch.inf)
        return unfold(scores.softmax(-1) @ values.unsqueeze(1), x.shape[0]).squeeze(1), None

    def start(self, rows: int, capacity: int) -> None:
        return None


@spec
class Widen(MixerSpec):
    """Leaves a stream of another width, as recurrent layers may."""

    width: Count
    can = Can(cross=False, stream=False, rewind=False, weights=False, positions=frozenset())

    def build(self, site: Site) -> Mixer:
        return WidenMixer(self, site)

    def leaves(self, width: int) -> int:
        return self.width


class WidenMixer(Mixer):
    def __init__(self, spec: Widen, site: Site) -> None:
        super().__init__(site)
        self.out = nn.Linear(site.width, spec.width)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        return self.out(x), None


@spec
class Headless(MixerSpec):
    """Says it takes positions, and has no heads to make them for."""

    can = Can()

    def build(self, site: Site) -> Mixer:
        return Mixer(site)


@spec
class Far(PositionSpec):
    """(q + v)·W r of each distance, with v for all layers and W of each (Transformer-XL without its u)."""

    acts = frozenset[Act]({"content"})
    projects = True

    def build(self, site: Site) -> Position:
        return FarPosition(site)


class FarPosition(Position):
    acts = Far.acts

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.width = site.width
        self.v = nn.Parameter(torch.empty(site.heads, site.head_width))

    def prepare(self, q: Coords, k: Coords) -> tuple[Tensor, Tensor]:
        codes = sinusoid(torch.arange(k.n), self.width, "halves", self.v.dtype)
        return codes, (-distance(q, k)).clamp(0, k.n - 1)

    def project(self, p: tuple[Tensor, Tensor], layer: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        codes, far = p
        return split_heads(layer(codes).unsqueeze(0), self.v.shape[0]), far

    def score(self, q: Tensor, k: Tensor, p: tuple[Tensor, Tensor]) -> Tensor:
        codes, far = p
        scores = (q + self.v.unsqueeze(1)) @ codes.mT
        return scores.gather(-1, far.unsqueeze(1).expand(*scores.shape[:3], -1))


@spec
class Twofold(WiringSpec):
    """Carries the stream twice and lets both out side by side; cannot carry losses."""

    dropout: float = 0.0
    norm = None
    ends: ClassVar[bool] = False

    def norms(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def enter(self, x: Tensor) -> Any:
        return x, x

    def leave(self, stream: Any) -> Tensor:
        return torch.cat(stream, -1)

    def leaves(self, width: int) -> int:
        return 2 * width

    def refusals(self, can: Can, where: str) -> list[str]:
        return [f"{where} has losses of its own, which a twofold stream cannot carry"] if can.losses else []

    def run(self, block: BlockLayer, stream: Any, ctx: Context, states: States) -> tuple[Any, States]:
        (a, b), new = stream, {}
        for name, part in block.parts():
            y, new[name] = part(b, ctx, states.get(name))
            a, b = b, a + y
        return (a, b), new


@spec
class Echo(BodySpec):
    """A body that is no stack: what it wrote last is read again, beside the mean of the memory."""

    width: Count
    causal: bool = True
    can = Can(rewind=False, packed=False, weights=False, memory=True)

    def build(self, site: Site) -> Body:
        return EchoBody(self, site)

    def leaves(self, width: int, memory: int = 0) -> int:
        return self.width


class EchoBody(Body):
    def __init__(self, spec: Echo, site: Site) -> None:
        super().__init__()
        self.inner = nn.Linear(site.width + spec.width + site.memory, spec.width)
        self.steps: list[int] = []

    def initialize(self) -> None:
        self.inner.bias.fill_(0.5)

    def before_step(self, step: int) -> None:
        self.steps.append(step)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        assert ctx.memory is not None
        last = state.total if isinstance(state, Sum) else x.new_zeros(x.shape[0], self.inner.out_features)
        kept = ctx.memory.at.kept.unsqueeze(-1).to(x.dtype)
        mean = (ctx.memory.values * kept).sum(1) / kept.sum(1).clamp(min=1)
        mean, out = mean.repeat_interleave(x.shape[0] // mean.shape[0], 0), []
        for token, there in zip(x.unbind(1), ctx.at.kept.expand(x.shape[0], -1).unbind(1), strict=True):
            new = self.inner(torch.cat([token, last, mean], -1)).tanh()
            last = torch.where(there.unsqueeze(-1), new, last)
            out.append(last)
        return torch.stack(out, 1), None if state is None else Sum(last)

    def start(self, rows: int, capacity: int) -> State:
        return Sum(self.inner.weight.new_zeros(rows, self.inner.out_features))

    def flops(self, n: int, m: int) -> float:
        return 2.0 * self.inner.weight.numel() + m / n

    def state_numbers(self, n: int) -> float:
        return self.inner.out_features


@spec
class Added(Stack):
    """A stack whose output is read as keys; values are that plus what entered (ConvS2S)."""

    def build(self, site: Site) -> Body:
        return AddedBody(self, site)


class AddedBody(StackBody):
    def encode(self, x: Tensor, ctx: Context) -> Memory:
        memory = super().encode(x, ctx)
        return dataclasses.replace(memory, values=memory.keys + x)


@pytest.fixture
def in_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, mixer in {
        "blur": Blur,
        "squeeze": Squeeze,
        "drift": Drift,
        "gaze": Gaze,
        "headless": Headless,
        "widen": Widen,
    }.items():
        monkeypatch.setitem(MIXERS._parts, kind, mixer)
    monkeypatch.setitem(BODIES._parts, "added", Added)
    monkeypatch.setitem(BODIES._parts, "echo", Echo)
    monkeypatch.setitem(POSITIONS._parts, "far", Far)
    monkeypatch.setitem(WIRINGS._parts, "twofold", Twofold)


def writer(mix: MixerSpec, *, tied: bool = True, **stack: Any) -> ModelSpec:
    """A decoder alone."""
    body = Stack(Block(mix=mix, feed=FeedForward(10)), depth=3, causal=True, **stack)
    return ModelSpec(8, LENGTH, Tokens(11), decoder=body, head=Vocab(tied=tied))


def reader(mix: MixerSpec, **stack: Any) -> ModelSpec:
    """An encoder alone."""
    body = Stack(Block(mix=mix, feed=FeedForward(10)), depth=3, **stack)
    return ModelSpec(8, LENGTH, Tokens(11), encoder=body)


def both(block: Block, *, wiring: WiringSpec | None = None) -> ModelSpec:
    """An encoder of full attention, wired as told, and a decoder of these blocks."""
    encoder = Stack(Block(mix=Full(2)), depth=2, wiring=wiring or PreNorm())
    return ModelSpec(8, LENGTH, Tokens(11), encoder=encoder, decoder=Stack(block, depth=2, causal=True))
