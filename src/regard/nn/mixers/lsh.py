"""LSH attention: within the buckets of a random hash.

Reformer (Kitaev et al. 2020, §2).

Keys are the queries scaled to unit length, so similar tokens attend to each other, and argmax[xR ; −xR] for a random R likely
puts them into the same bucket. Tokens are sorted by bucket, then by position, and cut into chunks; they attend to their own
chunk and the one before:

    bucket   0 0 0 1 │ 1 1 2 2 │ 2 2 3 3        only tokens of their own bucket,
    place    1 4 7 0 │ 5 9 2 3 │ 8 A 6 B        and only earlier ones if causal

A token attends to itself only if there is no other. A hash may separate a pair, so there are several rounds. A pair that
meets in c of them counts 1/c in each, so that all rounds together are one softmax over all tokens that met.

Chunk borders depend on the buckets of all tokens: a later token is never seen, but may move a border. For given buckets it is
strictly causal; it cannot run token by token.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.core.context import Context
from regard.nn.core.coords import PAD
from regard.nn.core.mixer import MIXERS, Act, Can, Mixer, MixerSpec, Site, check_positions
from regard.nn.core.shape import merge_heads, sizes, split_heads, width_of_head
from regard.nn.core.state import State
from regard.nn.layers.dropout import dropout as drop
from regard.nn.positions.position import Position, PositionSpec
from regard.registry import kind_of
from regard.spec import Count, Heads, Share, spec

ITSELF = -1e5
"""A token's score for itself: below all others, above hidden keys."""
MANY = 128
"""More buckets than this are hashed as a product of two smaller hashes by default."""


@MIXERS.add(also=("reformer",))
@spec
class Lsh(MixerSpec):
    """Attention within buckets of a hash, in chunks, over several rounds; by default there are 2·length/chunk buckets.

    A tuple of `buckets` is a product of hashes: (32, 32) makes 1024. With `redraw` the hash changes at each training
    step. `loose` follows `transformers`: tokens see everything in their chunk and the one before, the first chunk sees the
    last, and a pair counts fully in every round.
    """

    heads: Heads
    chunk: Count = 64
    buckets: Count | tuple[Count, ...] | None = None
    rounds: Count = 2
    redraw: bool = True
    loose: bool = False
    head_width: Count | None = None
    bias: bool = False
    dropout: Share = 0.0
    position: PositionSpec | None = None
    can = Can(cross=False, stream=False, rewind=False, itself=False, packed=False, positions=frozenset[Act]({"rotate"}))

    def __post_init__(self) -> None:
        counts = self.buckets if isinstance(self.buckets, tuple) else (self.buckets or 1,)
        if counts != (1,) and (not counts or any(count % 2 for count in counts)):
            raise SpecError(f"buckets should be even numbers, or 1, got {self.buckets}")

    def build(self, site: Site) -> LshMixer:
        return LshMixer(self, site)

    def head_shape(self, width: int) -> tuple[int, int]:
        return self.heads, width_of_head(width, self.heads, self.head_width)

    def hashes(self, length: int) -> tuple[int, ...]:
        """Return the number of buckets of each factor of the hash."""
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
        """Draw a new hash with this many rounds, which may be more than in training."""
        h, e, old, half = self.rotations.shape
        self.rotations = torch.randn(h, e, rounds or old, half).to(self.rotations)

    def before_step(self, step: int) -> None:
        if self.redraw:
            self.draw()

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        _, n, _ = sizes(x, "b n d", d=self.site.width)
        assert state is None
        q, v = split_heads(self.q(x), self.heads), split_heads(self.v(x), self.heads)
        bucket = ctx.choose(f"{self.site.path}.buckets", lambda: self._hash(q.detach()))
        ctx.tape.keep(f"{self.site.path}.buckets", bucket)
        position = self.position or ctx.position
        if position is not None and "rotate" in position.acts:  # the hash depends on content, not on positions
            q = position.rotate(q, ctx.once((position, "table", ctx.at), lambda: position.table(ctx.at)))
        chunk = min(self.chunk, n)
        room = (0, 0, 0, -n % chunk)
        pos = F.pad(ctx.at.pos, room[2:], value=PAD).unsqueeze(1).expand(*q.shape[:2], -1)
        bucket = F.pad(bucket, room[2:]).masked_fill(pos.unsqueeze(2) < 0, math.prod(self.hashes))
        out = self._attend(F.pad(q, room), F.pad(v, room), pos, Sorted(bucket, chunk, math.prod(self.hashes) + 1), ctx)
        return self.out(self.pass_heads(merge_heads(out[:, :, :n]), ctx)), None

    def _hash(self, q: Tensor) -> Tensor:
        """Return the bucket of every token in every round, (b, h, rounds, n)."""
        z = torch.einsum("bhne,hers->bhrns", q, self.rotations.to(q.dtype))
        bucket, scale = torch.zeros(z.shape[:-1], dtype=torch.int32, device=q.device), 1
        for count, part in zip(self.hashes, torch.split(z, [count // 2 for count in self.hashes], -1), strict=True):
            if count > 1:
                bucket += scale * torch.cat([part, -part], -1).argmax(-1).int()
                scale *= count
        return bucket

    def _attend(self, q: Tensor, v: Tensor, pos: Tensor, by: Sorted, ctx: Context) -> Tensor:
        """Attend within chunks, restore the order, and combine the rounds; (b, h, n, e)."""
        there, at = pos >= 0, by.arrange(pos)
        keep = by.look(at).unsqueeze(-2) >= 0
        if self.site.causal:
            keep = keep & (at.unsqueeze(-1) >= by.look(at).unsqueeze(-2))
        sq, who = by.arrange(q), by.cut(by.order.flatten(2))
        k = sq * (sq.square().mean(-1, keepdim=True) + 1e-6).rsqrt() / math.sqrt(self.head_width)
        scores = sq @ by.look(k).mT
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        scores = scores.masked_fill(who.unsqueeze(-1) == by.look(who).unsqueeze(-2), ITSELF)
        if not self.loose:
            keep = keep & by.find_pairs()
            scores = scores - by.count_meetings().to(scores.dtype).log() if self.rounds > 1 else scores
        scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        mixed = drop(weights, self.dropout if self.training else 0.0)
        y = by.restore(mixed.to(v.dtype) @ by.look(by.arrange(v)))
        share = there[:, :, None, :, None].to(scores.dtype)
        if self.rounds > 1:
            share = share * by.restore(scores.logsumexp(-1, keepdim=True)).softmax(2)
        ctx.tape.plan(self.site.path, f"hashed: {self.rounds} rounds, chunks of {by.chunk}")
        if ctx.tape.wants(f"{self.site.path}.weights"):
            self._record_weights(
                weights * by.cut(share.squeeze(-1).gather(-1, by.order).flatten(2)).unsqueeze(-1), who, by, ctx
            )
        return (y * share.to(y.dtype)).sum(2)

    def _record_weights(self, weights: Tensor, who: Tensor, by: Sorted, ctx: Context) -> None:
        """Record the weights of all rounds, laid out over the tokens, for the requested rows."""
        n, total, tape = ctx.at.n, by.order.shape[-1], ctx.tape
        name = f"{self.site.path}.weights"
        chosen, heads = tape.choose(name, heads=who.shape[1], rows=n)
        rows = torch.arange(n) if chosen is None else torch.arange(n)[chosen]
        slot = torch.full((total,), len(rows)).index_put((rows,), torch.arange(len(rows))).to(who.device)
        index = slot[who].unsqueeze(-1) * total + by.look(who).unsqueeze(-2)
        flat = weights.new_zeros(*who.shape[:2], (len(rows) + 1) * total)
        dense = flat.scatter_add(2, index.flatten(2), weights.flatten(2)).view(*who.shape[:2], -1, total)[:, :, :-1, :n]
        tape.keep(name, dense if heads is None else dense[:, heads], chosen=True)

    def flops(self, n: int, m: int) -> float:
        """Each round hashes a token and compares it with two chunks."""
        seen = n if n <= self.chunk else 2 * self.chunk
        each = self.heads * self.head_width * (sum(self.hashes) // 2 * 2.0 + 4.0 * seen)
        return super().flops(n, m) + self.rounds * each


class Sorted:
    """Tokens in the order of their buckets, round after round, cut into chunks."""

    def __init__(self, bucket: Tensor, chunk: int, buckets: int) -> None:
        rounds, n = bucket.shape[2:]
        self.rounds, self.chunk, self.alone = rounds, chunk, n == chunk
        self.order = bucket.argsort(dim=-1, stable=True)  # (b, h, rounds, n)
        self.back = self.order.argsort(-1)
        # One number for round, bucket and chunk: a token attends to tokens with the same number or one less.
        which = buckets * torch.arange(rounds, device=bucket.device).unsqueeze(1) + bucket
        code = which * (n // chunk + 1) + self.back // chunk
        self.code = code.int() if rounds * buckets * (n // chunk + 1) < 2**31 else code

    def cut(self, t: Tensor) -> Tensor:
        """(b, h, rounds · n, …) to (b, h, rounds · chunks, chunk, …)."""
        return t.reshape(*t.shape[:2], -1, self.chunk, *t.shape[3:])

    def arrange(self, t: Tensor) -> Tensor:
        """(b, h, n, …) sorted, round after round, and cut."""
        index = self.order.flatten(2)
        return self.cut(t.gather(2, index if t.dim() == 3 else index.unsqueeze(-1).expand(-1, -1, -1, t.shape[3])))

    def look(self, t: Tensor) -> Tensor:
        """Return what each chunk attends to: the chunk before and itself; a single chunk has none before it."""
        return t if self.alone else torch.cat([t.roll(1, 2), t], 3)

    def restore(self, t: Tensor) -> Tensor:
        """(b, h, rounds · chunks, chunk, x) to the order of the text, (b, h, rounds, n, x)."""
        b, h, rounds, n = self.back.shape
        return t.reshape(b, h, rounds, n, -1).gather(3, self.back.unsqueeze(-1).expand(-1, -1, -1, -1, t.shape[-1]))

    def find_pairs(self) -> Tensor:
        """Return the pairs that meet, (b, h, rounds · chunks, chunk, seen)."""
        return self._pairs(self.cut(self.code.gather(-1, self.order).flatten(2)))

    def count_meetings(self) -> Tensor:
        """Count the rounds in which each pair meets, at least one."""
        times = sum(self._pairs(self.arrange(self.code[:, :, r])).to(torch.int16) for r in range(self.rounds))
        return torch.as_tensor(times).clamp(min=1)

    def _pairs(self, code: Tensor) -> Tensor:
        return (code.unsqueeze(-1) - self.look(code).unsqueeze(-2)) >> 1 == 0
