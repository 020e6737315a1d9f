"""Softmax attention, plain and fused.

softmax(Q·Kᵀ·scale + bias)·V (Vaswani et al. 2017, eq. 1); scale is 1/√d_k by default, where d_k is the width of a head. Both
ways give equal outputs and gradients; the plan decides which one runs. A query without a visible key gives zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import StateError
from regard.nn.attention.plan import Plan
from regard.nn.core.autograd import FunctionContext
from regard.nn.layers.dropout import dropout as drop

if TYPE_CHECKING:
    from regard.nn.positions.position import Position, Prepared

VECTOR = 16
"""Numbers of float32 in the widest vector register."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: Plan,
    *,
    scale: float,
    bias: Tensor | None = None,
    content: tuple[Position, Prepared] | None = None,
    dropout: float = 0.0,
    edit: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attend from q (b, h, n, e) to k, v (b, g, m, e), where g divides h; the plain path also returns the weights.

    `edit` may replace them. `bias` is added after scaling. `content` is a position whose `score` is added before scaling and
    whose `output_term`, if any, is added to the output.
    """
    if plan.fused:
        return _run_fused(q, k, v, plan, scale=scale, bias=bias), None
    scores = grouped_matmul(q * scale, k.transpose(-2, -1))
    if content is not None:
        scores = scores + content[0].score(q, k, content[1]) * scale
    if bias is not None:
        scores = scores + bias
    weights = masked_softmax(scores, plan.keep)
    if plan.empty and plan.keep is not None:
        weights = weights * plan.keep.any(-1, keepdim=True)
    weights = weights if edit is None else edit(weights)
    mixed = drop(weights, dropout)
    out = grouped_matmul(mixed, v)
    added = None if content is None else content[0].output_term(mixed, content[1])
    return out if added is None else out + added, weights


def masked_softmax(scores: Tensor, keep: Tensor | None) -> Tensor:
    """Softmax over the last dimension of the scores that `keep` allows; a row without any is uniform."""
    if scores.dtype == torch.bfloat16:
        return _SoftmaxInFloat32.apply(scores, keep)  # type: ignore[no-any-return, no-untyped-call]
    if keep is not None:
        scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


class _SoftmaxInFloat32(torch.autograd.Function):
    """`masked_softmax` of bfloat16 scores, computed in float32; only the bfloat16 result is kept for the backward pass.

    torch's kernels process rows shorter than a vector register one number at a time (in bfloat16 the odd ends of all rows):
    those are computed with operators over all rows at once.
    """

    @staticmethod
    def forward(ctx: FunctionContext, scores: Tensor, keep: Tensor | None) -> Tensor:
        scores = scores.float()
        if keep is not None:
            scores.masked_fill_(~keep, torch.finfo(scores.dtype).min)
        if scores.shape[-1] < VECTOR:
            shares = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
            weights = shares.div_(shares.sum(-1, keepdim=True)).bfloat16()
        else:
            weights = scores.softmax(-1).bfloat16()
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: FunctionContext, grad: Tensor) -> tuple[Tensor, None]:
        grad, weights = grad.float(), ctx.saved_tensors[0].float()
        if weights.shape[-1] < VECTOR:
            grad = grad.mul_(weights).sub_(weights.mul_(grad.sum(-1, keepdim=True)))
        else:
            grad = torch._softmax_backward_data(grad, weights, -1, torch.float32)
        return grad.bfloat16(), None


def fold(q: Tensor, sentences: int) -> Tensor:
    """Lay the hypotheses of a sentence out as its queries, (s·k, h, n, e) to (s, h, k·n, e), so that keys are not copied."""
    rows, h, n, e = q.shape
    if rows == sentences:
        return q
    if sentences == 0 or rows % sentences:
        raise StateError(
            f"{rows} rows of queries cannot be divided among the {sentences} sentences of a memory; "
            "when sentences leave, select the memory together with the state"
        )
    beam = rows // sentences
    return q.view(sentences, beam, h, n, e).transpose(1, 2).reshape(sentences, h, beam * n, e)


def unfold(out: Tensor, rows: int) -> Tensor:
    """Undo `fold`: (s, h, k·n, x) to (rows, h, n, x)."""
    sentences, h, queue, x = out.shape
    if rows == sentences:
        return out
    beam = rows // sentences
    n = queue // beam
    return out.view(sentences, h, beam, n, x).transpose(1, 2).reshape(rows, h, n, x)


def _run_fused(q: Tensor, k: Tensor, v: Tensor, plan: Plan, *, scale: float, bias: Tensor | None) -> Tensor:
    if bias is None:
        mask = plan.additive_mask(q.dtype)
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


def grouped_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Multiply a (b, h, n, x) by b (b, g, x, y): the heads of a group share one right-hand side, which is not copied."""
    rows, h, n, x = a.shape
    g = b.shape[1]
    if g == h:
        return a @ b
    return (a.reshape(rows, g, h // g * n, x) @ b).view(rows, h, n, b.shape[-1])
