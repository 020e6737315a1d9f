"""Plans: how attention runs, and why.

A plan is made once per forward pass for each distinct rule, from static facts, with the reason in words.

    fused    torch's scaled_dot_product_attention: no (n, m) matrix is ever stored
    plain    matrix product, softmax, matrix product: needed for weights, content terms and dropout

No tensor is read to decide, so a plan costs nothing and never waits for a device. `regard show` and the tape print the
reason, so that the slow path is never taken silently.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from regard.nn.core.coords import Coords
from regard.nn.core.mask import Causal, Everything, Rule, visible

SHORT_BF16 = 192
"""Below about this many keys the fused bfloat16 kernel loses to plain products: on one CPU at 128 keys, no longer at 256."""


@dataclasses.dataclass(frozen=True)
class Needs:
    """Requirements of one call in addition to the output of attention."""

    weights: bool = False
    content: bool = False
    """Score terms that depend on queries or weights (Shaw, Transformer-XL)."""
    bias_grad: bool = False
    """A learned bias is being trained; the fused CPU kernel gives no gradient for it."""
    dropout: bool = False
    dtype: torch.dtype = torch.float32


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """`keep` is the mask to apply, (b | 1, 1, n | 1, m); `causal` means that a triangle replaces it."""

    fused: bool
    reason: str
    causal: bool = False
    keep: Tensor | None = None
    empty: bool = False
    """Some query may have no visible key."""
    _added: dict[torch.dtype, Tensor] = dataclasses.field(default_factory=dict, repr=False)

    def additive_mask(self, dtype: torch.dtype) -> Tensor | None:
        """Return the mask as numbers to add, once for all layers; the fused kernel would store one per call."""
        if self.keep is not None and dtype not in self._added:
            zeros = torch.zeros(self.keep.shape, dtype=dtype, device=self.keep.device)
            self._added[dtype] = zeros.masked_fill_(~self.keep, -torch.inf)
        return self._added.get(dtype)


def plan(rule: Rule, q: Coords, k: Coords, needs: Needs) -> Plan:
    """Choose how to run attention of queries at `q` over keys at `k` under `rule`."""
    fused, why = _how(k.n, needs)
    if rule == Everything() and not k.padded and not (q.packed and k.packed):
        return Plan(fused, f"{why}; no mask")
    if rule == Causal() and _ends_together(q, k):
        if q.n == 1 and not k.padded:
            return Plan(fused, f"{why}; the newest token sees all")
        if q.n == k.n:  # padding comes last, where the triangle hides it
            return Plan(fused, f"{why}; causal triangle", causal=fused, keep=None if fused else _triangle(q))
    keep = visible(rule, q, k)
    empty = not (rule == Everything() and k.contiguous and not k.packed)
    return Plan(fused, f"{why}; mask of coordinates", keep=None if keep is None else keep.unsqueeze(1), empty=empty)


def _how(m: int, needs: Needs) -> tuple[bool, str]:
    if needs.weights:
        return False, "plain: the weights are recorded"
    if needs.content:
        return False, "plain: positions enter the scores"
    if needs.bias_grad:
        return False, "plain: the bias is being trained"
    if needs.dropout:
        return False, "plain: attention dropout"
    if needs.dtype == torch.bfloat16 and m < SHORT_BF16:
        return False, "plain: short rows in bfloat16"
    return True, "fused"


def _ends_together(q: Coords, k: Coords) -> bool:
    """True if the queries are the last of the keys, both without gaps: a causal rule is then a triangle."""
    return q.first is not None and k.first is not None and q.first + q.n == k.first + k.n and not (q.packed or k.packed)


def _triangle(at: Coords) -> Tensor:
    return torch.ones(1, 1, at.n, at.n, dtype=torch.bool, device=at.pos.device).tril()
