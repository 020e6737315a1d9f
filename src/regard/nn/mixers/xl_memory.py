"""XL memory: attention over earlier segments.

Transformer-XL (Dai et al. 2019); with compression of older memories, Compressive Transformer (Rae et al. 2019).

    ┌ compressed ┐┌─ recent: `memory_length` ─┐┌── current segment ──┐
      ▪  ▪  ▪  ▪     ·  ·  ·  ·  ·  ·  ·  ·      x  x  x  x  x  x  x       keys and values: all of it
      └─┬─┘                                      └────── q ───────┘        queries: the segment only
     one of `rate`, when they leave           then the oldest leave, and the segment becomes recent

The memory holds inputs of the layer, detached: keys and values are recomputed for each segment, and gradients stay within
it. Without a state this is full attention. The position of a compressed memory is its index.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from regard.nn.attention.attend import attend
from regard.nn.attention.plan import Needs, plan
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords, last_of
from regard.nn.core.mask import Everything, Rule
from regard.nn.core.mixer import MIXERS, Can, Site
from regard.nn.core.shape import merge_heads, sizes, split_heads
from regard.nn.core.state import NOWHERE, State, join_padded, moving
from regard.nn.mixers.compress import CompressionSpec, Compressor, OldMemories, masked_mean, number_slots
from regard.nn.mixers.full import Full, FullMixer
from regard.nn.mixers.softmax import SoftmaxAttention
from regard.nn.positions.relative import Distance
from regard.spec import Count, spec

__all__ = ["Distance", "XLMemory", "XLMemoryMixer", "XLState"]


@MIXERS.add(also=("transformer_xl", "compressive", "memory"))
@spec
class XLMemory(SoftmaxAttention):
    """Softmax attention that also sees the `memory_length` tokens before the segment; no weight depends on that number."""

    kind = "xl_memory"

    memory_length: Count
    compress: CompressionSpec | None = None
    mask: Rule | None = None
    can = Can(cross=False, rewind=False, grads=False, losses=True)

    def build(self, site: Site) -> XLMemoryMixer:
        return XLMemoryMixer(self, site)

    def twin(self) -> Full | None:
        return Full(**self.dials(), mask=self.mask) if self.compress is None else None


@dataclasses.dataclass
class XLState(State):
    """Inputs of earlier tokens, oldest first, with coordinates: the first `slots` are compressed, the rest recent."""

    x: Tensor = moving()
    at: Coords = moving()
    slots: int = 0
    used: Tensor | None = moving(default=None)
    """Attention that each recent memory received, if the compression needs it."""

    def join(self, other: Self) -> Self:
        """Slots stay before recent memories; in both, the shorter rows are padded in front."""
        rows, more, (a, b) = self.x.shape[0], other.x.shape[0], (self.slots, other.slots)
        slots = join_padded(self.x[:, :a], other.x[:, :b], 1, left=True)
        recent = join_padded(self.x[:, a:], other.x[:, b:], 1, left=True)
        at = self.at.join(other.at, rows, more, left=True)
        if a or b:
            first = self.at.part(slice(0, a)).join(other.at.part(slice(0, b)), rows, more, left=True)
            at = first.extend(self.at.part(slice(a, None)).join(other.at.part(slice(b, None)), rows, more, left=True))
        used = None if self.used is None or other.used is None else join_padded(self.used, other.used, 1, left=True)
        return dataclasses.replace(self, x=torch.cat([slots, recent], 1), at=at, slots=max(a, b), used=used)


class XLMemoryMixer(FullMixer):
    def __init__(self, spec: XLMemory, site: Site) -> None:
        super().__init__(spec, site, spec.mask)
        self.memory_length, self.slots = spec.memory_length, 0 if spec.compress is None else spec.compress.slots
        self.compressor: Compressor | None = None if spec.compress is None else spec.compress.build(site.width)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        if state is None:
            return super().forward(x, ctx)
        assert isinstance(state, XLState)
        sizes(x, "b n d", d=self.site.width)
        at, seen = ctx.extend_coords(state.at), torch.cat([state.x, x], 1)
        position, uses = self.position or ctx.position, self.compressor is not None and self.compressor.uses
        q = self._rotate(self._query(x), ctx, ctx.at, position)
        k, v = self._rotate(self._key(seen), ctx, at, position), split_heads(self.v(seen), self.kv_heads)
        out, weights = self._attend(q, k, v, ctx, at, position, weights=uses)
        new = XLState(seen.detach(), at, state.slots)
        if uses:
            assert weights is not None
            new.used = _sum_attention(state, weights.detach(), ctx.at)
        return self.out(self.pass_heads(merge_heads(out), ctx)), self._forget(new, x, ctx)

    def _forget(self, state: XLState, x: Tensor, ctx: Context) -> XLState:
        """Drop or compress memories that are no longer recent."""
        if state.at.padded:
            state, leave = self._align_right(state, ctx)
        else:
            surplus = max(state.at.n - state.slots - self.memory_length, 0)
            leave = surplus - surplus % self._rate  # whole groups only: up to rate − 1 more stay recent
        if self.compressor is not None:
            return self._compress(state, leave, self.compressor, x, ctx) if leave else state
        keep = state.at.n - leave
        return XLState(state.x[:, leave:], ctx.once(("last", state.at, keep), lambda: state.at.last(keep)))

    def _align_right(self, state: XLState, ctx: Context) -> tuple[XLState, int]:
        """Shift rows of different lengths such that each loses its own oldest columns, in whole groups.

        Both those that leave and those that stay are moved to the right; padding stands before them.
        """
        at, slots = state.at, state.slots

        def sort() -> tuple[Tensor, Tensor, Coords, int]:
            there = at.kept[:, slots:]
            number, count = there.cumsum(1), there.sum(1, keepdim=True)
            surplus = (count - self.memory_length).clamp(min=0)
            leaves = there & (number <= surplus - surplus % self._rate)
            parts = [last_of(those, int(those.sum(1).max())) for those in (leaves, there & ~leaves)]
            columns = torch.cat(parts, 1)
            whole = torch.cat(
                [torch.arange(slots, device=columns.device).expand(len(columns), -1), _offset_columns(columns, slots)],
                1,
            )
            return columns, whole, at.take(whole), parts[0].shape[1]

        columns, whole, stand, leave = ctx.once(("shifted", at, slots, self.memory_length, self._rate), sort)
        x = torch.take_along_dim(state.x, whole.clamp(min=0).unsqueeze(-1), 1)
        used = state.used
        if used is not None:
            used = torch.take_along_dim(used, columns.clamp(min=0), 1).where(columns >= 0, 0.0)
        return XLState(x, stand, slots, used), leave

    @property
    def _rate(self) -> int:
        return 1 if self.compressor is None else self.compressor.rate

    def _compress(self, state: XLState, leave: int, compressor: Compressor, x: Tensor, ctx: Context) -> XLState:
        slots, at, left = state.slots, state.at, state.slots + leave
        used = None if state.used is None else state.used[:, :leave]
        old = OldMemories(state.x[:, slots:left], at.part(slice(slots, left)), used)
        small, small_at = compressor(old)
        if compressor.loss is not None and self.training and torch.is_grad_enabled():
            auto = compressor.loss == "autoencode"
            loss = (
                compressor.autoencoding_loss(old, small) if auto else self._attention_loss(x, old, small, small_at, ctx)
            )
            ctx.tape.loss(f"{self.site.path}.compress", loss)
        kept = min(slots + small.shape[1], self.slots)
        memories = torch.cat([state.x[:, :slots], small.detach()], 1)
        recent, used = state.x[:, left:], None if state.used is None else state.used[:, leave:]
        if at.padded:
            all_slots = at.part(slice(0, slots)).extend(small_at)
            columns = last_of(all_slots.kept, kept)
            memories = torch.take_along_dim(memories, columns.clamp(min=0).unsqueeze(-1), 1)
            rest = at.last(at.n - left)
            return XLState(
                torch.cat([memories, recent], 1), number_slots(all_slots.take(columns), rest).extend(rest), kept, used
            )

        def stand() -> Coords:
            rest, all_slots = at.last(at.n - left), at.part(slice(0, slots)).extend(small_at)
            return number_slots(all_slots.last(kept), rest).extend(rest)

        plain = at.contiguous and not at.packed  # then slots have the same positions in every layer
        return XLState(
            torch.cat([memories[:, memories.shape[1] - kept :], recent], 1),
            ctx.once(("compressed", at, left, kept), stand) if plain else stand(),
            kept,
            used,
        )

    def _attention_loss(self, x: Tensor, old: OldMemories, small: Tensor, at: Coords, ctx: Context) -> Tensor:
        """Compare this segment's attention to old and to compressed memories, by content alone (§3.2, algorithm 2).

        Only the compressed memories receive a gradient: queries, old memories and the layer's weights are constants.
        """
        q = _call_frozen(self.q_norm, split_heads(_call_frozen(self.q, x.detach()), self.heads))

        def look(memory: Tensor, there: Coords) -> Tensor:
            k = _call_frozen(self.k_norm, split_heads(_call_frozen(self.k, memory), self.kv_heads))
            v = split_heads(_call_frozen(self.v, memory), self.kv_heads)
            how = plan(Everything(), ctx.at, there, Needs(dtype=q.dtype))
            return attend(q, k, v, how, scale=self.scale)[0]

        off = (look(old.x, old.at) - look(small, at)).square().mean((1, 3))
        return masked_mean(off, ctx.at.kept)

    def start(self, rows: int, capacity: int) -> State:
        return XLState(self.k.weight.new_empty(rows, 0, self.site.width), NOWHERE)

    def flops(self, n: int, m: int) -> float:
        """FLOPs for a segment of `n` tokens with a full memory, whose keys, values and codes are recomputed."""
        remembered = float(self.memory_length + self.slots)
        maps = [part for part in (self.k, self.v, self.r) if part is not None]
        recomputed = sum(2.0 * part.weight.numel() for part in maps) * remembered / n
        looks = 4.0 * remembered * self.heads * self.head_width + self._by_distance(remembered)
        compressions = 0.0
        if (
            self.compressor is not None
        ):  # its layers were counted per token; they run once per `rate` tokens, a decoder never
            each = {name: 2.0 * p.numel() for name, p in self.compressor.named_parameters() if p.dim() > 1}
            compressions = sum(v for name, v in each.items() if name.startswith("maps.")) / self._rate - sum(
                each.values()
            )
        return super().flops(n, m) + recomputed + looks + compressions

    def state_numbers(self, n: int) -> float:
        rate = 1 if self.compressor is None else self.compressor.rate
        return float(
            self.site.width * (min(n, self.memory_length) + min(max(n - self.memory_length, 0) // rate, self.slots))
        )


def _offset_columns(columns: Tensor, by: int) -> Tensor:
    """Shift column numbers by `by`; −1 stays −1."""
    return torch.where(columns >= 0, columns + by, columns)


def _sum_attention(state: XLState, weights: Tensor, at: Coords) -> Tensor:
    """Sum the attention that recent memories and current tokens received, over all heads and queries."""
    drawn = (weights * at.kept.unsqueeze(1).unsqueeze(-1)).sum((1, 2))[:, state.slots :]
    if state.used is not None:
        drawn[:, : state.used.shape[1]] += state.used
    return drawn


def _call_frozen(part: nn.Module | None, x: Tensor) -> Tensor:
    """Apply a linear layer without a gradient for its weights; the input receives one."""
    if part is None:
        return x
    return functional_call(part, {name: p.detach() for name, p in part.named_parameters()}, (x,))  # type: ignore[no-any-return]
