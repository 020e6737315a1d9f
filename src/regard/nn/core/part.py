"""Part: a module that adjusts itself for training."""

from __future__ import annotations

from torch import nn


class Part(nn.Module):
    """Base of mixers, bodies, embeddings and heads."""

    def initialize(self) -> None:
        """Adjust parameters after the initialization scheme has run; called without gradients."""

    def before_step(self, step: int) -> None:
        """Called before each training step. What changes in training (random features, a penalty) depends on `step` alone."""
