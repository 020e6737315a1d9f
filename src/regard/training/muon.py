"""Muon (Jordan et al. 2024): momentum made orthogonal before it is taken as a step, so that no direction of a matrix dominates.

The linear maps of the layers learn this way; embeddings, heads, norms and biases by AdamW. Steps are scaled to the size that
AdamW's would have (Liu et al. 2025), so both share one learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.spec import Count, Share, spec
from regard.training.optimizer import OPTIMIZERS, Betas, OptimizerSpec, decays, fused

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of the iteration: in five turns they take any singular value from 0.01 to 1 to somewhere near 1."""
SIZE = 0.2
"""Root mean square of AdamW's steps, as a part of the learning rate (Liu et al. 2025)."""


@OPTIMIZERS.add
@spec
class Muon(OptimizerSpec):
    """Orthogonal steps for the layers' linear maps, AdamW for the rest."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    turns: Count = 5
    betas: Betas = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Share = 0.01

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        bodies = [part for name, part in net.named_children() if name in ("encoder", "decoder")]
        maps = {m.weight for body in bodies for m in body.modules() if isinstance(m, nn.Linear)}
        matrices = [p for p in net.parameters() if p in maps]
        rest = decays([p for p in net.parameters() if p not in maps], self.weight_decay)
        groups: list[dict[str, Any]] = [
            {"params": matrices, "weight_decay": self.weight_decay, "turns": self.turns},
            *rest,
        ]
        return _Muon([g for g in groups if g["params"]], self, fused(net))


class _Muon(torch.optim.Optimizer):
    """Groups that have `turns` step by orthogonal momentum; the others are lent to AdamW with their state."""

    def __init__(self, groups: Sequence[dict[str, Any]], spec: Muon, fused: bool) -> None:
        plain = [group for group in groups if "turns" not in group]
        self.adam = torch.optim.AdamW(plain, lr=0.0, betas=spec.betas, eps=spec.eps, fused=fused)
        super().__init__(groups, self.adam.defaults)
        self.momentum = spec.momentum

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.adam.param_groups = [group for group in self.param_groups if "turns" not in group]
        self.adam.state = self.state
        self.adam.step()
        for group in self.param_groups:
            if "turns" in group:
                self._orthogonal_step(group)

    def _orthogonal_step(self, group: dict[str, Any]) -> None:
        alike: dict[torch.Size, list[tuple[Tensor, Tensor, Tensor]]] = {}
        for p in group["params"]:
            if p.grad is not None:
                past = self.state[p].setdefault("momentum", torch.zeros_like(p))
                alike.setdefault(p.shape, []).append((p, p.grad, past))
        for shape, members in alike.items():  # one product for all matrices of a shape
            weights, grads, pasts = map(list, zip(*members, strict=True))
            torch._foreach_lerp_(pasts, grads, 1 - self.momentum)
            ahead = torch._foreach_lerp(grads, pasts, self.momentum)  # Nesterov's look ahead
            steps = orthogonal(torch.stack(ahead), group["turns"]).unbind()
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, steps, alpha=-group["lr"] * SIZE * math.sqrt(max(shape)))


def orthogonal(x: Tensor, turns: int) -> Tensor:
    """Matrices (b, m, n) with the same singular vectors and all singular values near 1, by Newton and Schulz's iteration."""
    a, b, c = QUINTIC
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(turns):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT
