"""Optimizers by name, and their state as named tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.registry import Registry
from regard.spec import Count, Share, Spec, spec

OPTIMIZERS: Registry[type[OptimizerSpec]] = Registry("optimizer")

ParamGroup = dict[str, Any]
"""Parameters with their settings, as torch keeps them."""
Betas = tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]]


class OptimizerSpec(Spec):
    """An optimizer. The learning rate comes from the schedule."""

    registry = OPTIMIZERS
    states: ClassVar[int] = 2
    """Numbers that are kept for each weight."""
    mup: ClassVar[bool] = False
    """True if updates are as large as the gradient's sign, so that the rates of muP fit."""

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        raise NotImplementedError


@OPTIMIZERS.add
@spec
class Adam(OptimizerSpec):
    """Adam (Kingma & Ba 2014), with the settings of the Transformer paper."""

    betas: Betas = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-9
    mup = True

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(net.parameters(), lr=0.0, betas=self.betas, eps=self.eps, fused=can_fuse(net))


@OPTIMIZERS.add
@spec
class AdamW(OptimizerSpec):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2017), none on biases and norms."""

    betas: Betas = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Share = 0.01
    kind = "adamw"
    mup = True

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        groups = split_decay(list(net.parameters()), self.weight_decay)
        return torch.optim.AdamW(groups, lr=0.0, betas=self.betas, eps=self.eps, fused=can_fuse(net))


@OPTIMIZERS.add
@spec
class Sgd(OptimizerSpec):
    """Stochastic gradient descent."""

    states = 0

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(net.parameters(), lr=0.0)


def split_decay(parameters: Sequence[Tensor], decay: float) -> list[ParamGroup]:
    """Parameter groups: matrices with weight decay, biases and norms without."""
    matrices, others = ([p for p in parameters if (p.dim() > 1) is wanted] for wanted in (True, False))
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def can_fuse(net: nn.Module) -> bool:
    """True if torch has a fused optimizer step for the devices of this model."""
    return all(p.device.type in ("cpu", "cuda") for p in net.parameters())


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)


def set_rate_factors(
    net: nn.Module, optimizer: torch.optim.Optimizer, factors: Mapping[str, float], *, same_decay: bool = False
) -> None:
    """Multiply the learning rate of each weight by its own factor, by splitting the parameter groups.

    With `same_decay`, weights decay as if they had no factor.
    """
    names, groups = {parameter: name for name, parameter in net.named_parameters()}, []
    for group in optimizer.param_groups:
        alike: dict[float, list[Tensor]] = {}
        for parameter in group["params"]:
            alike.setdefault(factors[names[parameter]], []).append(parameter)
        for factor, members in alike.items():
            new = {**group, "params": members, "factor": group.get("factor", 1.0) * factor}
            if same_decay and "weight_decay" in group:
                new["weight_decay"] = group["weight_decay"] / factor
            groups.append(new)
    optimizer.param_groups[:] = groups


def trained_tensors(net: nn.Module) -> dict[str, Tensor]:
    """The tensors that training changes: all but the frozen ones, which the initial model has."""
    frozen = {name for name, p in net.named_parameters() if not p.requires_grad}
    return {name: t for name, t in net.state_dict().items() if name not in frozen}


def optimizer_state(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter name: `decoder.blocks.0.mix.q.weight/exp_avg`."""
    out = {}
    for name, parameter in net.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            out[f"{name}/{key}"] = value
    return out


def restore_optimizer(net: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore what `optimizer_state` returned."""
    names = {parameter: name for name, parameter in net.named_parameters()}
    state = dict[int, dict[str, Tensor]]()
    for i, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        prefix = f"{names[parameter]}/"
        own = {full.removeprefix(prefix): value.clone() for full, value in tensors.items() if full.startswith(prefix)}
        state |= {i: own} if own else {}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of the iteration: five turns bring any singular value between 0.01 and 1 close to 1."""
UPDATE_RMS = 0.2
"""Root mean square of AdamW's updates, relative to the learning rate (Liu et al. 2025)."""


@OPTIMIZERS.add
@spec
class Muon(OptimizerSpec):
    """Muon (Jordan et al. 2024): orthogonalized momentum for the linear maps of the layers, AdamW for the rest.

    Updates are scaled to the size of AdamW's (Liu et al. 2025), so both share one learning rate.
    """

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    turns: Count = 5
    betas: Betas = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Share = 0.01

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        bodies = [part for name, part in net.named_children() if name in ("encoder", "decoder")]
        maps = {m.weight for body in bodies for m in body.modules() if isinstance(m, nn.Linear)}
        matrices = [p for p in net.parameters() if p in maps]
        rest = split_decay([p for p in net.parameters() if p not in maps], self.weight_decay)
        groups: list[ParamGroup] = [
            {"params": matrices, "weight_decay": self.weight_decay, "turns": self.turns},
            *rest,
        ]
        return _Muon([g for g in groups if g["params"]], self, can_fuse(net))


class _Muon(torch.optim.Optimizer):
    """Groups with `turns` use orthogonalized momentum; the others, with their state, are handed to AdamW."""

    def __init__(self, groups: Sequence[ParamGroup], spec: Muon, can_fuse: bool) -> None:
        plain = [group for group in groups if "turns" not in group]
        self.adam = torch.optim.AdamW(plain, lr=0.0, betas=spec.betas, eps=spec.eps, fused=can_fuse)
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

    def _orthogonal_step(self, group: ParamGroup) -> None:
        alike: dict[torch.Size, list[tuple[Tensor, Tensor, Tensor]]] = {}
        for p in group["params"]:
            if p.grad is not None:
                past = self.state[p].setdefault("momentum", torch.zeros_like(p))
                alike.setdefault(p.shape, []).append((p, p.grad, past))
        for shape, members in alike.items():  # one product for all matrices of a shape
            weights, grads, pasts = map(list, zip(*members, strict=True))
            torch._foreach_lerp_(pasts, grads, 1 - self.momentum)
            ahead = torch._foreach_lerp(grads, pasts, self.momentum)  # Nesterov momentum
            steps = orthogonalize(torch.stack(ahead), group["turns"]).unbind()
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, steps, alpha=-group["lr"] * UPDATE_RMS * math.sqrt(max(shape)))


def orthogonalize(x: Tensor, turns: int) -> Tensor:
    """Bring all singular values of matrices (b, m, n) close to 1, by a Newton-Schulz iteration."""
    a, b, c = QUINTIC
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(turns):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT
