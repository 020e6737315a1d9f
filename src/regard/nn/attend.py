"""Attention, once: softmax(Q·Kᵀ·scale + bias)·V, plain and fused (Vaswani et al. 2017, eq. 1).

Both ways give equal outputs and gradients; which one runs is the plan's business. A query with nothing to see gives zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.dropout import dropout as drop
from regard.nn.plan import Plan

if TYPE_CHECKING:
    from regard.nn.position import Position


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: Plan,
    *,
    scale: float,
    bias: Tensor | None = None,
    content: tuple[Position, Any] | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """Attend from q (b, h, n, e) to k, v (b, g, m, e), where g divides h; the weights come along on the plain path.

    `bias` is added after scaling; `content` is a position whose `score` joins before it and whose `blend` adds to the output.
    """
    if plan.fused:
        return _fused(q, k, v, plan, scale=scale, bias=bias), None
    scores = _grouped(q * scale, k.transpose(-2, -1))
    if content is not None:
        scores = scores + content[0].score(q, k, content[1]) * scale
    if bias is not None:
        scores = scores + bias
    if plan.keep is not None:
        scores = scores.masked_fill(~plan.keep, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if plan.empty and plan.keep is not None:
        weights = weights * plan.keep.any(-1, keepdim=True)
    mixed = drop(weights, dropout)
    out = _grouped(mixed, v)
    if content is not None:
        out = out + content[0].blend(mixed, content[1])
    return out, weights


def _fused(q: Tensor, k: Tensor, v: Tensor, plan: Plan, *, scale: float, bias: Tensor | None) -> Tensor:
    mask = plan.keep
    if bias is not None:
        keep = (
            torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril() if plan.causal else mask
        )
        mask = bias if keep is None else bias.masked_fill(~keep, -torch.inf)
    causal = plan.causal and bias is None
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale, is_causal=causal, enable_gqa=grouped)


def _grouped(a: Tensor, b: Tensor) -> Tensor:
    """a (b, h, n, x) @ b (b, g, x, y): each of the g groups of heads shares one right-hand side, without copying it."""
    rows, h, n, x = a.shape
    g = b.shape[1]
    if g == h:
        return a @ b
    return (a.reshape(rows, g, h // g * n, x) @ b).view(rows, h, n, b.shape[-1])
