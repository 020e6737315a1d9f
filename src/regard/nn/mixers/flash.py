"""Flash: full attention in tiles, with linear memory.

FlashAttention (Dao et al. 2022): equal to `Full`, in memory that grows with n instead of n².

It has the same settings and weights as `Full`. Masks, biases, content terms, dropout and grouped heads are computed per tile;
exact weights are computed for the rows and heads that a tape requests.
"""

from __future__ import annotations

from torch import Tensor

from regard.nn.attention.attend import fold, unfold
from regard.nn.attention.tiled import TiledProblem, compute_weights, tiled_attention
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MIXERS, Site
from regard.nn.mixers.full import Full, FullMixer
from regard.nn.positions.position import Position
from regard.spec import Count, spec


@MIXERS.add(also=("flash_attention",))
@spec
class Flash(Full):
    """Softmax attention in tiles of `tile` queries × `tile` keys; nothing of n × m is stored, forward or backward."""

    tile: Count = 128

    def build(self, site: Site) -> FlashMixer:
        return FlashMixer(self, site)

    def twin(self) -> Full:
        return Full(**self.dials(), mask=self.mask)


class FlashMixer(FullMixer):
    def __init__(self, spec: Flash, site: Site) -> None:
        super().__init__(spec, site, spec.mask)
        self.tile = spec.tile

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        ctx: Context,
        at: Coords,
        position: Position | None,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        problem = TiledProblem(
            self.rule, ctx.at, at, self.scale, layer=self.r, tile=self.tile,
            position=position if position is not None and position.acts & {"bias", "content"} else None,
            dropout=self.dropout if self.training else 0.0,
        )  # fmt: skip
        rows, q = q.shape[0], fold(q, k.shape[0])
        out, tape, name = tiled_attention(q, k, v, problem), ctx.tape, f"{self.site.path}.weights"
        tape.plan(self.site.path, f"flash: tiles of {self.tile}; masks and biases of one tile at a time")
        seen = None
        if weights or tape.wants(name):
            whole = weights or q.shape[0] != rows  # folded hypotheses have other row numbers
            chosen = (None, None) if whole else tape.choose(name, heads=q.shape[1], rows=q.shape[2])
            seen = compute_weights(q, k, problem, *chosen)
            seen = unfold(seen, rows)
            tape.keep(name, seen, chosen=not whole)
        return unfold(out, rows), seen
