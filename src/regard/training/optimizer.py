"""Optimisers by name, their state as named tensors, and moving averages of the weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.registry import Registry
from regard.spec import Share, Spec, spec

OPTIMIZERS: Registry[type[OptimizerSpec]] = Registry("optimizer")

Betas = tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]]


class OptimizerSpec(Spec):
    """How gradients become steps. The rate comes from the schedule."""

    registry = OPTIMIZERS

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        raise NotImplementedError


@OPTIMIZERS.add
@spec
class Adam(OptimizerSpec):
    """Kingma & Ba 2014, with the numbers of the Transformer paper."""

    betas: Betas = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-9

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(net.parameters(), lr=0.0, betas=self.betas, eps=self.eps, fused=fused(net))


@OPTIMIZERS.add
@spec
class AdamW(OptimizerSpec):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2017), none on biases and norms."""

    betas: Betas = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Share = 0.01
    kind = "adamw"

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        groups = decays(list(net.parameters()), self.weight_decay)
        return torch.optim.AdamW(groups, lr=0.0, betas=self.betas, eps=self.eps, fused=fused(net))


def decays(parameters: Sequence[Tensor], decay: float) -> list[dict[str, Any]]:
    """Groups of an optimiser: matrices, which decay, and biases and norms, which do not."""
    matrices, others = ([p for p in parameters if (p.dim() > 1) is wanted] for wanted in (True, False))
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def fused(net: nn.Module) -> bool:
    """Whether torch has one kernel for the whole step on the devices of this model."""
    return all(p.device.type in ("cpu", "cuda") for p in net.parameters())


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)


def set_factors(net: nn.Module, optimizer: torch.optim.Optimizer, factors: Mapping[str, float]) -> None:
    """Let each weight learn at its own part of the rate: every group is divided by how fast its members are."""
    names, groups = {parameter: name for name, parameter in net.named_parameters()}, []
    for group in optimizer.param_groups:
        alike: dict[float, list[Tensor]] = {}
        for parameter in group["params"]:
            alike.setdefault(factors[names[parameter]], []).append(parameter)
        groups += [{**group, "params": members, "factor": factor} for factor, members in alike.items()]
    optimizer.param_groups[:] = groups


def moving(net: nn.Module) -> dict[str, Tensor]:
    """What training changes of a model's weights file: all but frozen weights, which the model it started from has."""
    frozen = {name for name, p in net.named_parameters() if not p.requires_grad}
    return {name: t for name, t in net.state_dict().items() if name not in frozen}


def optimizer_tensors(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter name: `decoder.blocks.0.mix.q.weight/exp_avg`."""
    out = {}
    for name, parameter in net.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            out[f"{name}/{key}"] = value
    return out


def restore_optimizer(net: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    names = {parameter: name for name, parameter in net.named_parameters()}
    state = dict[int, dict[str, Tensor]]()
    for i, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        prefix = f"{names[parameter]}/"
        own = {full.removeprefix(prefix): value.clone() for full, value in tensors.items() if full.startswith(prefix)}
        state |= {i: own} if own else {}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


class Average:
    """An exponential moving average of the weights that learn."""

    def __init__(self, net: nn.Module, share: float) -> None:
        self.share = share
        self.weights = {name: p.detach().clone() for name, p in net.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        pairs = ((self.weights[name], p.detach()) for name, p in net.named_parameters() if p.requires_grad)
        mine, theirs = zip(*pairs, strict=True)
        torch._foreach_lerp_(list(mine), list(theirs), 1.0 - self.share)


def mean(weights: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The plain average of several sets of weights, summed in double precision."""
    count, total = 0, dict[str, Tensor]()
    kinds = dict[str, torch.dtype]()
    for one in weights:
        count += 1
        for name, tensor in one.items():
            kinds[name] = tensor.dtype
            total[name] = tensor.double() if name not in total else total[name] + tensor.double()
    return {name: (tensor / count).to(kinds[name]) for name, tensor in total.items()}
