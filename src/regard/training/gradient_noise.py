"""Gradient noise: Gaussian noise that falls with the step.

Neelakantan et al. 2015. The variance falls with the square root of the step, as for the Neural GPU (Kaiser & Sutskever 2015).
The noise is a function of seed and step: it is the same in all processes of a run, and in one that was resumed.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


@torch.no_grad()
def add_gradient_noise(net: nn.Module, scale: float, *, seed: int, step: int) -> None:
    """Add noise with the standard deviation `scale` / step^¼ to every gradient there is."""
    drawn = np.random.SeedSequence(seed, spawn_key=(step,)).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(drawn[0] >> np.uint64(1)))
    for parameter in net.parameters():
        if parameter.grad is not None:
            noise = torch.randn(parameter.grad.shape, generator=generator, dtype=torch.float32)
            parameter.grad.add_(noise.to(parameter.grad), alpha=scale / step**0.25)
