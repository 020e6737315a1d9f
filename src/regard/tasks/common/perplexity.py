"""How likely a model finds examples: loss and perplexity a token, the score every task has."""

from __future__ import annotations

import math
from collections import Counter

import torch

from regard.model.net import Net
from regard.tasks.common.capabilities import compute_loss, order_batches
from regard.tasks.common.task import Examples, Task

LARGEST = 700.0
"""The loss whose exponential is still a number."""


def likelihood(task: Task, net: Net, examples: Examples, *, tokens: int | None = None) -> dict[str, float]:
    """Negative log-likelihood a token, without smoothing, its exponential, and per cent right of what the task counts."""
    total, count, state = 0.0, 0, None
    right, of = Counter[str](), Counter[str]()
    with torch.no_grad():
        for indices in order_batches(task, examples, tokens=tokens, seed=0, evaluate=True).epoch(0):
            batch = task.batch(examples, indices).to(net.device)
            loss = compute_loss(task, net, batch, state=state)
            state = loss.state
            total, count = total + float(loss.plain), count + loss.tokens
            for name, (hits, tries) in loss.counts.items():
                right[name] += hits
                of[name] += tries
    scores = {name: 100.0 * right[name] / of[name] for name in of}
    return {"loss": total / count, "perplexity": math.exp(min(total / count, LARGEST)), **scores}
