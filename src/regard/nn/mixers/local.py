"""Local attention: a window, and a few global tokens.

Longformer (Beltagy et al. 2020, §3.1). Tagged tokens see all tokens and are seen by all. Time and memory grow with n, not n².

    reach=1, the second token tagged:        1 1 . . .        with dilation=2, neighbors are two positions apart
                                             1 1 1 1 1
                                             . 1 1 1 .
                                             . 1 1 1 1
                                             . 1 . 1 1

With `own` projections, a tagged token attends to the others with separate queries, keys and values (initialized as copies);
the others attend to it like to any neighbor. Tags are part of the coordinates; a stack sets them with `tags: first` for
classification or `tags: segment` for every token of a question.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import StateError
from regard.nn.attention.banded import FarKeys, Lanes, TokenSubset, attend_to_neighbors, run_compacted, zero_padding
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords, last_of
from regard.nn.core.mask import Rule, Tagged, Window
from regard.nn.core.mixer import MIXERS, Can, Mixer, Site
from regard.nn.core.shape import merge_heads, sizes, split_heads
from regard.nn.core.state import KeyValues, State
from regard.nn.mixers.full import Full, FullMixer
from regard.nn.mixers.softmax import SoftmaxAttention
from regard.spec import Count, spec

TILE = 128
"""Queries per tile: more would compute more masked pairs, fewer would take more calls."""


@MIXERS.add(also=("longformer", "sliding_window", "window"))
@spec
class Local(SoftmaxAttention):
    """Softmax attention over `reach` neighbors on each side (only before, if causal) and over tagged tokens."""

    reach: Count
    dilation: Count = 1
    own: bool = False
    """Tagged tokens have projections of their own."""
    tile: Count = TILE
    """Queries per tile; this affects speed only."""
    can = Can(cross=False, rewind=False)

    def build(self, site: Site) -> LocalMixer:
        return LocalMixer(self, site)

    def twin(self) -> Full | None:
        return None if self.own else Full(**self.dials(), mask=self.mask)

    @property
    def uses_tags(self) -> bool:
        return True

    @property
    def mask(self) -> Rule:
        """The mask under which full attention equals this one, without `own` maps."""
        return Window(self.reach, self.dilation) | Tagged()


@dataclasses.dataclass
class Nearby(State):
    """Keys and values of recent tokens (at most twice the reach) and of all tagged tokens."""

    recent: KeyValues
    tagged: KeyValues

    def cut(self, n: int) -> Nearby:
        raise StateError(f"Nearby cannot go back to {n} tokens; run them again from the start")


class LocalMixer(FullMixer):
    def __init__(self, spec: Local, site: Site) -> None:
        super().__init__(spec, site, spec.mask)
        self.reach, self.dilation, self.span = spec.reach, spec.dilation, spec.reach * spec.dilation
        self.ahead = 0 if site.causal else spec.reach
        self.tile = spec.tile
        self.own = spec.own
        if spec.own:
            for name in "qkv":
                like: nn.Linear = getattr(self, name)
                setattr(self, f"own_{name}", nn.Linear(like.in_features, like.out_features, bias=bool(spec.bias)))

    def initialize(self) -> None:
        if self.own:
            for name in "qkv":
                getattr(self, f"own_{name}").load_state_dict(getattr(self, name).state_dict())

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        _, n, _ = sizes(x, "b n d", d=self.site.width)
        assert state is None or isinstance(state, Nearby)
        name = f"{self.site.path}.weights"
        some = ctx.tape.wants_rows(name) and state is None and not self.own and not ctx.at.padded
        tiled = n > self.tile and (some or not ctx.tape.wants(name))
        if tiled:
            out = run_compacted(ctx, lambda ctx, x: self._mix(x, ctx, state, True), x)
        else:
            out = self._mix(x, ctx, state, False)
        return self.out(self.pass_heads(out, ctx)), state

    def _mix(self, x: Tensor, ctx: Context, state: Nearby | None, tiled: bool) -> Tensor:
        position, here = self.position or ctx.position, ctx.at
        q, k, v = self._query(x), self._key(x), split_heads(self.v(x), self.kv_heads)
        q, k = (self._rotate(t, ctx, here, position) for t in (q, k))
        mine, tags = (k, v), None
        if here.tag is not None:
            tags = ctx.once(("tags", here), lambda: TokenSubset.of(_is_tagged(here), here))
        tagged = None if tags is None else KeyValues(tags.take(k), tags.take(v), tags.at)
        at, before = here, 0
        if state is not None:
            before = state.recent.at.n
            k, v, at, tagged = self._remember(state, k, v, ctx, tagged, tiled)
        beside = self._beside(tagged, ctx, at) if tagged is not None and (tiled or before) else None
        if tiled:
            out, weights = self._tiles(q, k, v, ctx, at, beside), None
            if ctx.tape.wants(f"{self.site.path}.weights"):
                self._record_rows(q, k, ctx, at, position)
        elif beside is None:
            out, weights = self._attend(q, k, v, ctx, at, position)
        else:
            both = beside.at.extend(beside.rest)
            k, v = torch.cat([beside.k, k], 2), torch.cat([beside.v, v], 2)
            out, weights = self._attend(q, k, v, ctx, both, position)
        if tags is not None and (tiled or self.own):
            out = self._far(x, q, *mine, ctx, tags, out, weights)
        return zero_padding(merge_heads(out), here)

    def _tiles(self, q: Tensor, k: Tensor, v: Tensor, ctx: Context, at: Coords, beside: FarKeys | None) -> Tensor:
        n, tape, position = q.shape[2], ctx.tape.for_tiles(), self.position or ctx.position
        open_ended = (
            self.site.causal or not at.padded
        )  # padding comes last in rows without gaps, and no token looks ahead
        alike = at.first is not None and not at.packed and open_ended and beside is None and self.dilation == 1
        if self.dilation > 1:
            lanes = Lanes(self.dilation, q.shape[0], before=k.shape[2] - n, n=n)
            q, k, v, at = lanes.deal(q), lanes.deal(k), lanes.deal(v), ctx.once((lanes, at), lambda: lanes.stand(at))
            beside = None if beside is None else lanes.repeat(beside, ctx)

        def look(q: Tensor, k: Tensor, v: Tensor, here: Coords, there: Coords) -> Tensor:
            return self._attend(q, k, v, replace(ctx, at=here, tape=tape), there, position)[0]

        out = attend_to_neighbors(
            q, k, v, ctx, at, look, tile=self.tile, back=self.reach, ahead=self.ahead, alike=alike, beside=beside
        )  # fmt: skip
        ctx.tape.plan(self.site.path, f"tiles of {self.tile} and their neighbors; {' '.join(tape.plans.values())}")
        return out if self.dilation == 1 else lanes.collect(out)

    def _beside(self, tagged: KeyValues, ctx: Context, at: Coords) -> FarKeys:
        rest = at if at.tag is None else ctx.once(("untagged", at), lambda: at.hide(_is_tagged(at)))
        return FarKeys(tagged.k, tagged.v, tagged.at, rest, lambda _: tagged.at.n)

    def _far(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        ctx: Context,
        tags: TokenSubset,
        out: Tensor,
        near: Tensor | None,
    ) -> Tensor:
        """Attend from tagged tokens to all others, and replace their outputs (and recorded weights)."""
        position = self.position or ctx.position
        if self.own:
            q, k, v = self._own("q", tags.take(x)), self._own("k", x), self._own("v", x)
            q, k = self._rotate(q, ctx, tags.at, position), self._rotate(k, ctx, ctx.at, position)
        else:
            q = tags.take(q)
        quiet = replace(ctx, at=tags.at, tape=Tape())
        far, weights = self._attend(q, k, v, quiet, ctx.at, position, weights=near is not None)
        if near is not None and weights is not None:
            ctx.tape.keep(f"{self.site.path}.weights", tags.scatter(weights, near))
        return tags.scatter(far, out)

    def _own(self, name: str, x: Tensor) -> Tensor:
        y = split_heads(getattr(self, f"own_{name}")(x), self.heads if name == "q" else self.kv_heads)
        norm = {"q": self.q_norm, "k": self.k_norm}.get(name)
        return y if norm is None else norm(y)

    def _remember(
        self, state: Nearby, k: Tensor, v: Tensor, ctx: Context, tagged: KeyValues | None, tiled: bool
    ) -> tuple[Tensor, Tensor, Coords, KeyValues | None]:
        """Return keys and values of recent and current tokens, their coordinates, and the tagged ones."""
        recent, n = state.recent, k.shape[2]
        if tagged is not None:
            if recent.at.n:
                raise StateError(
                    f"{self.site.path} remembers {self.span} tokens, and a tagged token attends to all before it; "
                    "give the tagged tokens in the first chunk"
                )
            state.tagged = tagged
        if tiled and recent.at.padded:
            self._forget(recent, ctx)
        at = ctx.extend_coords(recent.at)
        if n <= self.span:
            k, v = recent.add(k, v, at)
        else:
            used = recent.at.n
            k, v = (torch.cat([old[:, :, :used], new], 2) for old, new in ((recent.k, k), (recent.v, v)))
            recent.k, recent.v, recent.at = k, v, at
        if at.n >= 2 * self.span:
            self._forget(recent, ctx)
        if not at.padded and at.n > self.span + n:
            whole, near = at, self.span + n
            k, v, at = k[:, :, -near:], v[:, :, -near:], ctx.once(("last", whole, near), lambda: whole.last(near))
        return k, v, at, state.tagged if state.tagged.at.n else None

    def _forget(self, recent: KeyValues, ctx: Context) -> None:
        """Keep the last `span` tokens of each row, compacted, with space for as many again."""
        at, span = recent.at, self.span
        k, v = (t[:, :, : at.n] for t in (recent.k, recent.v))
        if at.padded:
            columns = ctx.once(("recent", at, span), lambda: last_of(at.kept, span))
            recent.at = ctx.once(("recent", columns), lambda: at.take(columns))
            k, v = (torch.take_along_dim(t, columns.clamp(min=0)[:, None, :, None], 2) for t in (k, v))
        else:
            recent.at = ctx.once(("last", at, span), lambda: at.last(span))
            k, v = k[:, :, -span:], v[:, :, -span:]
        recent.k, recent.v = (t if t.requires_grad else F.pad(t, (0, 0, 0, 2 * span - t.shape[2])) for t in (k, v))

    def start(self, rows: int, capacity: int) -> State:
        recent, tagged = (
            KeyValues.empty(self.k.weight, rows, self.kv_heads, self.head_width, room)
            for room in (min(capacity, 2 * self.span), 0)
        )
        return Nearby(recent, tagged)

    def flops(self, n: int, m: int) -> float:
        return Mixer.flops(self, n, m) + 4.0 * min(self.reach + self.ahead + 1, n) * self.heads * self.head_width

    def state_numbers(self, n: int) -> float:
        return 2.0 * self.kv_heads * self.head_width * min(n, self.span)


def _is_tagged(at: Coords) -> Tensor:
    assert at.tag is not None
    return at.tag > 0
