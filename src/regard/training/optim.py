"""Optimisers by name, their state as named tensors, and moving averages of the weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.registry import Table
from regard.spec import Share, Spec, spec

OPTIMIZERS: Table[type[OptimizerSpec]] = Table("optimizer")

Betas = tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]]


class OptimizerSpec(Spec):
    """How gradients become steps. The rate comes from the schedule."""

    table = OPTIMIZERS

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        raise NotImplementedError


@spec
class Adam(OptimizerSpec):
    """Kingma & Ba 2014, with the numbers of the Transformer paper."""

    betas: Betas = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-9

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(net.parameters(), lr=0.0, betas=self.betas, eps=self.eps, fused=_fused(net))


@spec
class AdamW(OptimizerSpec):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2017), none on biases and norms."""

    betas: Betas = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    decay: Share = 0.01
    kind = "adamw"

    def build(self, net: nn.Module) -> torch.optim.Optimizer:
        matrices = [p for p in net.parameters() if p.dim() > 1]
        others = [p for p in net.parameters() if p.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": self.decay}, {"params": others, "weight_decay": 0.0}]
        groups = [g for g in groups if g["params"]]
        return torch.optim.AdamW(groups, lr=0.0, betas=self.betas, eps=self.eps, fused=_fused(net))


OPTIMIZERS.add(Adam, AdamW)


def _fused(net: nn.Module) -> bool:
    return all(p.device.type in ("cpu", "cuda") for p in net.parameters())


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


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
    """An exponential moving average of the weights."""

    def __init__(self, net: nn.Module, share: float) -> None:
        self.share = share
        self.weights = {name: p.detach().clone() for name, p in net.named_parameters()}

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        mine, theirs = zip(*((self.weights[name], p.detach()) for name, p in net.named_parameters()), strict=True)
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
