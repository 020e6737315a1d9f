"""Attention, once: softmax(Q·Kᵀ·scale + bias)·V, plain and fused (Vaswani et al. 2017, eq. 1).

Both ways give equal outputs and gradients; which one runs is the plan's business. A query with nothing to see gives zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import StateError
from regard.nn.attention.plan import Plan
from regard.nn.layers.dropout import dropout as drop

if TYPE_CHECKING:
    from regard.nn.positions.position import Position


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

    `bias` is added after scaling; `content` is a position whose `score` joins before it and whose `blend`, if it has one,
    adds to the output.
    """
    if plan.fused:
        return _fused(q, k, v, plan, scale=scale, bias=bias), None
    scores = grouped(q * scale, k.transpose(-2, -1))
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
    out = grouped(mixed, v)
    added = None if content is None else content[0].blend(mixed, content[1])
    return out if added is None else out + added, weights


def fold(q: Tensor, sentences: int) -> Tensor:
    """Hypotheses queue up as queries of their sentence: (s·k, h, n, e) to (s, h, k·n, e), so that keys need no copies."""
    rows, h, n, e = q.shape
    if rows == sentences:
        return q
    if sentences == 0 or rows % sentences:
        raise StateError(
            f"{rows} rows of queries cannot be shared out among the {sentences} sentences of a memory; "
            "when sentences leave, select the memory together with the state"
        )
    beam = rows // sentences
    return q.view(sentences, beam, h, n, e).transpose(1, 2).reshape(sentences, h, beam * n, e)


def unfold(out: Tensor, rows: int) -> Tensor:
    """What `fold` did, undone: (s, h, k·n, x) to (rows, h, n, x)."""
    sentences, h, queue, x = out.shape
    if rows == sentences:
        return out
    beam = rows // sentences
    n = queue // beam
    return out.view(sentences, h, beam, n, x).transpose(1, 2).reshape(rows, h, n, x)


def _fused(q: Tensor, k: Tensor, v: Tensor, plan: Plan, *, scale: float, bias: Tensor | None) -> Tensor:
    if bias is None:
        mask = plan.added(q.dtype)
    else:
        keep = (
            torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
            if plan.causal
            else plan.keep
        )
        mask = bias if keep is None else bias.masked_fill(~keep, -torch.inf)
    causal = plan.causal and bias is None
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale, is_causal=causal, enable_gqa=grouped)


def grouped(a: Tensor, b: Tensor) -> Tensor:
    """a (b, h, n, x) @ b (b, g, x, y): each of the g groups of heads shares one right-hand side, without copying it."""
    rows, h, n, x = a.shape
    g = b.shape[1]
    if g == h:
        return a @ b
    return (a.reshape(rows, g, h // g * n, x) @ b).view(rows, h, n, b.shape[-1])
