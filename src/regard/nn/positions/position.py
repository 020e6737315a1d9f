"""Position codes: one class per scheme, with small hooks.

    embed(x, at)                     is added to the stream      sinusoidal, learned
    table(at), rotate(x, table)      rotates queries and keys    rotary
    prepare(q, k), bias(p)           content-free, after scaling  bucketed (T5), ALiBi
    prepare(q, k), score, output_term   content terms, before scaling   relative (Shaw)
    project(p, layer)                the layer's projection      Transformer-XL's W_R

`table` and `prepare` run once per forward pass, and their results are shared. **The place where a position is set owns its
parameters**: in the embedding it acts on the stream, in a stack one module serves every layer, in a mixer each layer has its
own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.errors import ShapeError, SpecError
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Act, Site
from regard.nn.positions.rope_scaling import RopeScalingSpec
from regard.nn.positions.skew import DistanceSpan, relative_shift, relative_unshift
from regard.registry import Registry
from regard.spec import Count, Spec, spec

POSITIONS: Registry[type[PositionSpec]] = Registry("position")
Prepared = Any
"""Result of `table` or `prepare`. Only the position's own hooks read it, so each scheme has its own type."""


class PositionSpec(Spec):
    """Code for the positions of tokens."""

    registry = POSITIONS
    acts: ClassVar[frozenset[Act]]
    projects: ClassVar[bool] = False
    """True if each layer has a linear projection of the codes, which is passed to `project`."""

    def build(self, site: Site) -> Position:
        raise NotImplementedError


class Position(nn.Module):
    """The hooks, identity by default; a scheme overrides those it needs."""

    acts: frozenset[Act] = frozenset()

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        return x

    def table(self, at: Coords) -> Prepared:
        return None

    def rotate(self, x: Tensor, table: Prepared) -> Tensor:
        return x

    def prepare(self, q: Coords, k: Coords) -> Prepared:
        return None

    def project(self, p: Prepared, layer: Callable[[Tensor], Tensor]) -> Prepared:
        """Apply the projection of a layer to what was prepared for all layers, if the spec `projects`."""
        return p

    def bias(self, p: Prepared) -> Tensor | None:
        """Added to the scaled scores, (b | 1, h, n, m)."""
        return None

    def score(self, q: Tensor, k: Tensor, p: Prepared) -> Tensor:
        """Added to the scores before scaling, (b, h, n, m)."""
        raise NotImplementedError

    def output_term(self, weights: Tensor, p: Prepared) -> Tensor | None:
        """Added to the output, (b, h, n, e), if not None."""
        return None


def distance(q: Coords, k: Coords) -> Tensor:
    """Return key position minus query position, (b | 1, n, m)."""
    return k.pos.unsqueeze(1) - q.pos.unsqueeze(2)


# ------------------------------------------------------------------------------------------------- on the stream


def sinusoid(pos: Tensor, width: int, layout: str, dtype: torch.dtype) -> Tensor:
    """sin and cos of pos / 10000^(2i/d) (Vaswani et al. 2017, §3.5), as pairs or as two halves."""
    i = torch.arange((width + 1) // 2, device=pos.device, dtype=torch.float64)
    angle = pos.to(torch.float64).unsqueeze(-1) / 10000.0 ** (2 * i / width)
    if layout == "pairs":
        code = torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :width]
    else:
        code = torch.cat([angle.sin(), angle.cos()[..., : width // 2]], -1)
    return code.to(dtype)


@POSITIONS.add(also=("nope", "off"))
@spec
class NoPosition(PositionSpec):
    """No position code (NoPE, Kazemnejad et al. 2023); in a mixer it turns the stack's code off for that layer."""

    kind = "none"
    acts = frozenset[Act]()

    def build(self, site: Site) -> Position:
        return Position()


@POSITIONS.add(also=("sine", "absolute"))
@spec
class Sinusoidal(PositionSpec):
    """Fixed sinusoids added to the embedding; `halves` puts all sines first (Marian, tensor2tensor)."""

    layout: Literal["pairs", "halves"] = "pairs"
    acts = frozenset[Act]({"embed"})

    def build(self, site: Site) -> Position:
        return SinusoidalPosition(self, site)


class SinusoidalPosition(Position):
    acts = Sinusoidal.acts

    def __init__(self, spec: Sinusoidal, site: Site) -> None:
        super().__init__()
        self.layout, self.width = spec.layout, site.width
        self.waves = torch.empty(0, site.width)  # no buffer: `net.double()` would keep what float32 rounded

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        if at.first is None:
            return x + sinusoid(at.pos.clamp(min=0), self.width, self.layout, x.dtype)
        end = at.first + at.n
        waves = self.waves  # read once: another thread may change it
        if end > waves.shape[0] or waves.dtype != x.dtype or waves.device != x.device:
            steps = torch.arange(max(2 * end, 64), device=x.device)
            self.waves = waves = sinusoid(steps, self.width, self.layout, x.dtype)
        return x + waves[at.first : end]


@POSITIONS.add
@spec
class Learned(PositionSpec):
    """A learned vector per position, up to the length of the model (`shift` leaves unused rows in front, as in RoBERTa)."""

    shift: Annotated[int, Field(ge=0)] = 0
    acts = frozenset[Act]({"embed"})

    def build(self, site: Site) -> Position:
        return LearnedPosition(self, site)


class LearnedPosition(Position):
    acts = Learned.acts

    def __init__(self, spec: Learned, site: Site) -> None:
        super().__init__()
        self.path, self.shift = site.path, spec.shift
        self.weight = nn.Parameter(torch.empty(site.length + spec.shift, site.width))

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        room = self.weight.shape[0] - self.shift
        end = at.first + at.n if at.first is not None else int(at.pos.max()) + 1
        if end > room:
            raise ShapeError(
                f"{self.path} has {room} positions, asked for {end}; shorten the input or raise the length"
            )
        if at.first is not None:
            return x + self.weight[self.shift + at.first : self.shift + end]
        return x + nn.functional.embedding(at.pos.clamp(min=0) + self.shift, self.weight)


# ---------------------------------------------------------------------------------------- on queries and keys


@POSITIONS.add(also=("rope",))
@spec
class Rotary(PositionSpec):
    """Queries and keys rotated by angles that grow with position (Su et al. 2021); `share` of each head is rotated.

    `rope_scaling` makes the angles grow more slowly, for longer texts than in training.
    """

    base: Annotated[float, Field(gt=0)] = 10000.0
    layout: Literal["halves", "pairs"] = "halves"
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    rope_scaling: RopeScalingSpec | None = None
    acts = frozenset[Act]({"rotate"})

    def __post_init__(self) -> None:
        if self.rope_scaling is not None and self.base <= 1:
            raise SpecError(f"base should be above 1 for scaled angles, got {self.base}")

    def build(self, site: Site) -> Position:
        return RotaryPosition(self, site)


class RotaryPosition(Position):
    acts = Rotary.acts

    def __init__(self, spec: Rotary, site: Site) -> None:
        super().__init__()
        self.base, self.layout, self.rope_scaling = spec.base, spec.layout, spec.rope_scaling
        self.qk_factor = 1.0 if spec.rope_scaling is None else spec.rope_scaling.qk_factor
        self.turned = int(site.head_width * spec.share) // 2 * 2
        if not self.turned:
            raise SpecError(
                f"rotary positions rotate pairs of numbers in a head, and share={spec.share} of {site.head_width} has none; "
                "use fewer heads or a larger share"
            )

    def table(self, at: Coords) -> tuple[Tensor, Tensor]:
        i = torch.arange(0, self.turned, 2, device=at.pos.device, dtype=torch.float64)
        rates = self.base ** (-i / self.turned)
        if self.rope_scaling is not None:
            rates = self.rope_scaling.scale_rates(rates, self.base)
        angle = (at.pos.to(torch.float64).unsqueeze(-1) * rates).unsqueeze(1)
        return angle.cos() * self.qk_factor, angle.sin() * self.qk_factor  # (b | 1, 1, n, turned / 2)

    def rotate(self, x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = (t.to(x.dtype) for t in table)
        head, rest = x[..., : self.turned], x[..., self.turned :]
        a, b = head.chunk(2, -1) if self.layout == "halves" else (head[..., 0::2], head[..., 1::2])
        a, b = a * cos - b * sin, a * sin + b * cos
        turned = torch.cat([a, b], -1) if self.layout == "halves" else torch.stack([a, b], -1).flatten(-2)
        return torch.cat([turned, rest], -1) if rest.shape[-1] else turned


# ------------------------------------------------------------------------------------------------- on the scores


@POSITIONS.add
@spec
class ALiBi(PositionSpec):
    """Scores decrease linearly with distance, at a different rate for each head (Press et al. 2021)."""

    kind = "alibi"
    acts = frozenset[Act]({"bias"})

    def build(self, site: Site) -> Position:
        return ALiBiPosition(site)


class ALiBiPosition(Position):
    acts = ALiBi.acts

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.slopes: Tensor
        self.register_buffer("slopes", torch.tensor(alibi_slopes(site.heads)), persistent=False)

    def prepare(self, q: Coords, k: Coords) -> Tensor:
        return -distance(q, k).abs().unsqueeze(1) * self.slopes.view(1, -1, 1, 1)

    def bias(self, p: Tensor) -> Tensor:
        return p


def alibi_slopes(heads: int) -> list[float]:
    """2^(−8i/h) for a power of two; otherwise the next lower one's, then every second of the next higher one's."""
    whole = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / whole) for i in range(whole)]
    between = [2.0 ** (-4 * (2 * i + 1) / whole) for i in range(heads - whole)]
    return slopes + between


@POSITIONS.add(also=("t5",))
@spec
class Bucketed(PositionSpec):
    """A learned bias per head and distance bucket: exact for near keys, log-spaced up to `reach` (T5)."""

    buckets: Count = 32
    reach: Count = 128
    acts = frozenset[Act]({"bias"})

    def __post_init__(self) -> None:
        if self.buckets < 4 or self.buckets % 4:
            raise SpecError(f"buckets should be a multiple of four, got {self.buckets}")
        if self.reach <= self.buckets // 2:
            raise SpecError(f"reach should be more than half of the {self.buckets} buckets, got {self.reach}")

    def build(self, site: Site) -> Position:
        return BucketedPosition(self, site)


class BucketedPosition(Position):
    acts = Bucketed.acts

    def __init__(self, spec: Bucketed, site: Site) -> None:
        super().__init__()
        self.buckets, self.reach, self.both_sides = spec.buckets, spec.reach, not site.causal
        self.weight = nn.Parameter(torch.empty(spec.buckets, site.heads))

    def prepare(self, q: Coords, k: Coords) -> Tensor:
        bucket = self.bucket(distance(q, k))
        return nn.functional.embedding(bucket, self.weight).permute(0, 3, 1, 2)

    def bucket(self, after: Tensor) -> Tensor:
        """Return the bucket of a distance; if both sides are visible, half of the buckets are for keys after the query."""
        count = self.buckets
        base = torch.zeros_like(after)
        if self.both_sides:
            count //= 2
            base = (after > 0) * count
            far = after.abs()
        else:
            far = (-after).clamp(min=0)
        exact = count // 2
        log = (far.clamp(min=1) / exact).log() / math.log(self.reach / exact) * (count - exact)
        return base + torch.where(far < exact, far, (exact + log.to(far.dtype)).clamp(max=count - 1))

    def bias(self, p: Tensor) -> Tensor:
        return p


@POSITIONS.add(also=("shaw",))
@spec
class Relative(PositionSpec):
    """A learned vector per clipped distance, added to keys and (with `values`) to values (Shaw et al. 2018)."""

    reach: Count = 16
    values: bool = True
    acts = frozenset[Act]({"content"})

    def build(self, site: Site) -> Position:
        return RelativePosition(self, site)


class RelativePosition(Position):
    acts = Relative.acts

    def __init__(self, spec: Relative, site: Site) -> None:
        super().__init__()
        self.reach, self.causal = spec.reach, site.causal
        self.keys = nn.Parameter(torch.empty(2 * spec.reach + 1, site.head_width))
        self.values = nn.Parameter(torch.empty(2 * spec.reach + 1, site.head_width)) if spec.values else None

    def prepare(self, q: Coords, k: Coords) -> DistanceSpan | Tensor:
        """The row of the tables for each pair; where positions count up and none is out of reach, the span of the distances.

        Forward and backward, a skew then takes less than half the time of a gather. Clipped distances would have to be
        repeated first, which takes longer than a gather.
        """
        span = DistanceSpan.of(q, k, causal=self.causal)
        if span is not None and span.rows(self.reach) is not None:
            return span
        return distance(q, k).clamp(-self.reach, self.reach) + self.reach

    def score(self, q: Tensor, k: Tensor, p: DistanceSpan | Tensor) -> Tensor:
        """Compute q·a_r for every pair: a product with the vectors, which is skewed, or from which each pair picks its own."""
        if isinstance(p, DistanceSpan):
            return relative_shift(q @ self.keys[p.rows(self.reach)].t(), p.keys)
        b, h, n, _ = q.shape
        return (q @ self.keys.t()).gather(-1, p.unsqueeze(1).expand(b, h, n, -1))

    def output_term(self, weights: Tensor, p: DistanceSpan | Tensor) -> Tensor | None:
        """Sum the weights per distance, then multiply by the vectors."""
        if self.values is None:
            return None
        if isinstance(p, DistanceSpan):
            return relative_unshift(weights, p.last - p.first + 1) @ self.values[p.rows(self.reach)]
        b, h, n, _ = weights.shape
        by_distance = weights.new_zeros(b, h, n, 2 * self.reach + 1)
        by_distance = by_distance.scatter_add(-1, p.unsqueeze(1).expand_as(weights), weights)
        return by_distance @ self.values
