"""Gradients: noise on them, and their norms by layer.

The noise is that of Neelakantan et al. 2015: Gaussian, with a variance that falls with the square root of the step, as for the
Neural GPU (Kaiser & Sutskever 2015). It is a function of seed and step: the same in all processes of a run, and in one that was
resumed.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from regard.model.net import Net

LAYER = re.compile(r"((?:encoder|decoder)\.blocks\.\d+|[^.]+)(?:\.|$)")
"""A block of a stack, or a part of the model outside them."""


@torch.no_grad()
def add_gradient_noise(net: nn.Module, scale: float, *, seed: int, step: int) -> None:
    """Add noise with the standard deviation `scale` / step^¼ to every gradient there is."""
    drawn = np.random.SeedSequence(seed, spawn_key=(step,)).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(drawn[0] >> np.uint64(1)))
    for parameter in net.parameters():
        if parameter.grad is not None:
            noise = torch.randn(parameter.grad.shape, generator=generator, dtype=torch.float32)
            parameter.grad.add_(noise.to(parameter.grad), alpha=scale / step**0.25)


class LayerNorms:
    """Measures one step: made after the gradients are there, `finish`ed after the weights have changed."""

    @torch.no_grad()
    def __init__(self, net: Net) -> None:
        self._net = net
        self._before = {name: p.detach().clone() for name, p in net.named_parameters() if p.grad is not None}
        self.gradients = _by_layer((name, p.grad) for name, p in net.named_parameters() if p.grad is not None)

    @torch.no_grad()
    def finish(self) -> dict[str, dict[str, float]]:
        """The norm of the gradient before clipping, and of the update relative to the weights, by layer."""
        weights = _by_layer(self._before.items())
        now = dict(self._net.named_parameters())
        moved = _by_layer((name, now[name] - before) for name, before in self._before.items())
        updates = {layer: moved[layer] / weights[layer] for layer in moved if weights[layer]}
        return {"gradients": self.gradients, "updates": updates}


def _by_layer(tensors: Iterable[tuple[str, Tensor | None]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for name, tensor in tensors:
        found = LAYER.match(name)
        if found is not None and tensor is not None:
            sums[found[1]] += float(tensor.double().square().sum())
    return {layer: float(f"{math.sqrt(total):.4g}") for layer, total in sums.items()}
