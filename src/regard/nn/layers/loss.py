"""Label-smoothed loss fused with the output projection.

It runs in chunks of rows, so the full logits are never stored.

Each target gives 1 − ε to the true token and spreads ε over the whole vocabulary, the true token included (Szegedy et al.
2016; torch's convention, not fairseq's, which spreads ε over the other v − 1). The loss of one row is therefore

    L = (1 − ε)·(lse − z_true) + ε·(lse − mean z)

Because logits of a chunk are thrown away, their gradient is formed at once and carried to the inputs in the forward pass.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.core.autograd import FunctionContext
from regard.nn.core.shape import device_kind

IGNORE = -100
"""A target that is ignored."""
CHUNK = 1 << 20
"""Number of logits in memory at once: few enough for the cache (1 << 22 was a sixth slower on one core)."""


def smoothed_loss(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Sum the smoothed loss over rows of x (r, d) with `target` (r,), and the plain loss (without gradient)."""
    return _Fused.apply(x, weight, bias, target, smoothing)  # type: ignore[no-any-return, no-untyped-call]


def plain_smoothed_loss(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The twin of `smoothed_loss`, with all logits at once."""
    logits = F.linear(x, weight, bias)
    loss = F.cross_entropy(logits, target, ignore_index=IGNORE, label_smoothing=smoothing, reduction="sum")
    plain = F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="sum")
    return loss, plain.detach()


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionContext, x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        if torch.is_autocast_enabled(device_kind(x)):
            x, weight = (t.to(torch.get_autocast_dtype(device_kind(x))) for t in (x, weight))
        v, kind = weight.shape[0], torch.promote_types(x.dtype, torch.float32)
        wants = any(ctx.needs_input_grad[:3])
        grad_x = torch.empty_like(x) if wants else None
        grad_w = torch.zeros_like(weight, dtype=kind) if ctx.needs_input_grad[1] else None  # a frozen table has none
        grad_b = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        total, plain = x.new_zeros((), dtype=torch.float64), x.new_zeros((), dtype=torch.float64)
        middle = weight.mean(0, dtype=kind)  # the mean of all logits is one product with it
        lift = 0.0 if bias is None else bias.mean()
        counts, rows, share = target != IGNORE, max(CHUNK // v, 1), smoothing / v
        all_count = bool(counts.all())
        for i in range(0, x.shape[0], rows):
            part, count = x[i : i + rows], counts[i : i + rows]
            index = target[i : i + rows].masked_fill(~count, 0).unsqueeze(1)
            logits = F.linear(part, weight).to(kind)
            if bias is not None:
                logits += bias
            true, top = logits.gather(1, index).squeeze(1), logits.amax(1)
            probs = torch.softmax(logits, 1, out=logits)  # in place
            lse = top - probs.amax(1).log()  # as exact as a log-softmax: the largest share is at least 1 / v
            nll, even = lse - true, lse - part.to(kind) @ middle - lift
            plain += torch.where(count, nll, 0).sum()
            total += torch.where(count, (1 - smoothing) * nll + smoothing * even, 0).sum()
            if grad_x is None:
                continue
            # softmax − (1 − ε)·onehot here; −ε/v, the same for every token, is added below without a pass over the logits
            weigh, grad = count.to(kind), probs
            if not all_count:
                grad.mul_(weigh.unsqueeze(1))
            grad.scatter_add_(1, index, ((smoothing - 1) * weigh).unsqueeze(1))
            if grad_b is not None:
                grad_b += grad.sum(0) - share * weigh.sum()
            grad = grad.to(x.dtype)
            spread = (smoothing * weigh).unsqueeze(1) * middle
            grad_x[i : i + rows] = grad @ weight - spread.to(x.dtype)
            if grad_w is not None:
                grad_w.addmm_(grad.t(), part) if grad_w.dtype == grad.dtype else grad_w.add_(grad.t() @ part)
        if grad_w is not None:
            grad_w -= share * (counts.to(kind) @ x.to(kind))
        ctx.save_for_backward(grad_x, grad_w, grad_b)
        total, plain = total.to(kind), plain.to(kind)
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    def backward(ctx: FunctionContext, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grads = (None if g is None else g * scale.to(g.dtype) for g in ctx.saved_tensors)
        return (*grads, None, None)
