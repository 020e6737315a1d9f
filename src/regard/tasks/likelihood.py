"""How likely a model finds examples: loss and perplexity a token, the score every task has."""

from __future__ import annotations

import math

import torch

from regard.data.bucket import Buckets
from regard.model.model import Net
from regard.tasks.task import Examples, Task

TOKENS = 4096
LARGEST = 700.0
"""The loss whose exponential is still a number."""


def likelihood(task: Task, net: Net, examples: Examples, *, tokens: int = TOKENS) -> dict[str, float]:
    """Negative log-likelihood a token, without smoothing, and its exponential."""
    total, count = 0.0, 0
    with torch.no_grad():
        for indices in Buckets(examples.lengths, tokens=tokens, seed=0).epoch(0):
            loss = task.loss(net, task.batch(examples, indices).to(net.device), 0.0)
            total, count = total + float(loss.plain), count + loss.tokens
    return {"loss": total / count, "perplexity": math.exp(min(total / count, LARGEST))}
