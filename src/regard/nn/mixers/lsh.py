"""Attention among tokens that a random hash puts into one bucket (Reformer, Kitaev et al. 2020, §2).

Keys are the queries at unit length, so who looks alike looks at one another, and argmax[xR ; −xR] for a random R likely gives
them the same bucket. Sorted by bucket, then by place, tokens are cut into chunks, and look in their own and in the one before:

    bucket   0 0 0 1 │ 1 1 2 2 │ 2 2 3 3        only at those of their own bucket,
    place    1 4 7 0 │ 5 9 2 3 │ 8 A 6 B        and only at earlier places where causal

A token looks at itself only if there is nobody else. The hash may part a pair, so there are several rounds. A pair that
meets in c of them counts 1/c in each: all rounds together are one softmax over everybody ever met.

Where a chunk ends depends on the buckets of all tokens, later ones included: a later token, though never seen, may move a
border. For given buckets it is strictly causal; it cannot run token by token.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.context import Context
from regard.nn.coords import PAD
from regard.nn.dropout import dropout as drop
from regard.nn.mixer import Act, Can, Mixer, MixerSpec, Site, check_positions
from regard.nn.position import Position, PositionSpec
from regard.nn.shape import merge_heads, sizes, split_heads
from regard.nn.state import State
from regard.registry import kind_of
from regard.spec import Count, Share, spec

ITSELF = -1e5
"""A token's score for itself: below any other, above what is not seen."""
MANY = 128
"""More buckets than this are hashed as a product of two smaller hashes, unless told otherwise."""


@spec
class Lsh(MixerSpec):
    """Attention within buckets of a hash, in chunks, over several rounds; there are 2·length/chunk buckets unless told.

    A tuple of `buckets` is a product of hashes: (32, 32) makes 1024. With `redraw` the hash is another at each training
    step. `loose` does as `transformers` does: all see all in a chunk and the one before, the first looks back at the
    last, and a pair counts in full each time it meets.
    """

    heads: Count
    chunk: Count = 64
    buckets: Count | tuple[Count, ...] | None = None
    rounds: Count = 2
    redraw: bool = True
    loose: bool = False
    head_width: Count | None = None
    bias: bool = False
    dropout: Share = 0.0
    position: PositionSpec | None = None
    can = Can(cross=False, stream=False, rewind=False, packed=False, positions=frozenset[Act]({"turn"}))

    def __post_init__(self) -> None:
        told = self.buckets if isinstance(self.buckets, tuple) else (self.buckets or 1,)
        if told != (1,) and (not told or any(count % 2 for count in told)):
            raise SpecError(f"buckets should be even, or one for all, got {self.buckets}")

    def build(self, site: Site) -> LshMixer:
        return LshMixer(self, site)

    def head_shape(self, width: int) -> tuple[int, int]:
        if self.head_width is None and width % self.heads:
            raise SpecError(f"heads={self.heads} should divide the width {width}, or head_width be set")
        return self.heads, self.head_width or width // self.heads

    def hashes(self, length: int) -> tuple[int, ...]:
        """How many buckets each factor of the hash has."""
        if isinstance(self.buckets, tuple):
            return self.buckets
        count = self.buckets or (1 if length <= self.chunk else 2 * math.ceil(length / self.chunk))
        if self.buckets is not None or count <= MANY:
            return (count,)
        first = 2 * round(math.sqrt(count) / 2)
        return first, 2 * math.ceil(count / first / 2)


class LshMixer(Mixer):
    def __init__(self, spec: Lsh, site: Site) -> None:
        super().__init__(site)
        self.heads, self.head_width = h, e = spec.head_shape(site.width)
        self.chunk, self.redraw, self.loose, self.dropout = spec.chunk, spec.redraw, spec.loose, spec.dropout
        self.hashes = spec.hashes(site.length)
        self.q, self.v = (nn.Linear(site.width, h * e, bias=spec.bias) for _ in range(2))
        self.out = nn.Linear(h * e, site.width, bias=spec.bias)
        self.position: Position | None = None
        if spec.position is not None:
            check_positions(spec, site, spec.position.acts, kind_of(type(spec.position)))
            self.position = spec.position.build(site.at("position", heads=h, head_width=e))
        self.rotations: Tensor
        self.register_buffer("rotations", torch.randn(h, e, spec.rounds, sum(self.hashes) // 2))

    @property
    def rounds(self) -> int:
        return self.rotations.shape[2]

    def draw(self, rounds: int | None = None) -> None:
        """Another hash, of as many rounds as told: there may be more in use than there were in training."""
        h, e, old, half = self.rotations.shape
        self.rotations = torch.randn(h, e, rounds or old, half).to(self.rotations)

    def tick(self, step: int) -> None:
        if self.redraw:
            self.draw()

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        _, n, _ = sizes(x, "b n d", d=self.site.width)
        assert state is None
        q, v = split_heads(self.q(x), self.heads), split_heads(self.v(x), self.heads)
        bucket = ctx.choose(f"{self.site.path}.buckets", lambda: self._hash(q.detach()))
        position = self.position or ctx.position
        if position is not None and "turn" in position.acts:  # the hash is of what they say, not of where they stand
            q = position.turn(q, ctx.once((position, "table", ctx.at), lambda: position.table(ctx.at)))
        chunk = min(self.chunk, n)
        room = (0, 0, 0, -n % chunk)
        at = F.pad(ctx.at.pos, room[2:], value=PAD).unsqueeze(1)
        bucket = F.pad(bucket, room[2:]).masked_fill(at.unsqueeze(2) < 0, math.prod(self.hashes))
        out = self._attend(F.pad(q, room), F.pad(v, room), at, bucket, chunk, ctx)
        return self.out(merge_heads(out[:, :, :n])), None

    def _hash(self, q: Tensor) -> Tensor:
        """The bucket of every token in every round, (b, h, rounds, n)."""
        z = torch.einsum("bhne,hers->bhrns", q, self.rotations.to(q.dtype))
        bucket, scale = torch.zeros(z.shape[:-1], dtype=torch.int32, device=q.device), 1
        for count, part in zip(self.hashes, z.split([count // 2 for count in self.hashes], -1), strict=True):
            if count > 1:
                bucket += scale * torch.cat([part, -part], -1).argmax(-1).int()
                scale *= count
        return bucket

    def _attend(self, q: Tensor, v: Tensor, at: Tensor, bucket: Tensor, chunk: int, ctx: Context) -> Tensor:
        """Sort, look within chunks, sort back, and join the rounds. Here n is a multiple of the chunk."""
        b, h, n, e = q.shape
        order = bucket.argsort(-1, stable=True)
        chunks = n // chunk

        def arrange(t: Tensor) -> Tensor:
            """(b, h, n, …) in the order of every round, in chunks: (b, h, rounds · chunks, chunk, …)."""
            index = order.flatten(2)
            index = index if t.dim() == 3 else index.unsqueeze(-1).expand(-1, -1, -1, t.shape[3])
            return t.gather(2, index).view(b, h, -1, chunk, *t.shape[3:])

        def back(t: Tensor) -> Tensor:
            """With the chunk before in front of each; one chunk alone has nothing before it."""
            return t if chunks == 1 else torch.cat([t.roll(1, 2), t], 3)

        who, place = order.view(b, h, -1, chunk), arrange(at.expand(b, h, n))
        keep = (back(place) >= 0).unsqueeze(-2)
        if self.site.causal:
            keep = keep & (place.unsqueeze(-1) >= back(place).unsqueeze(-2))
        met = None if self.loose else self._met(bucket, order, chunk, arrange, back)
        if met is not None:
            own, often = met
            keep = keep & own
        ...
