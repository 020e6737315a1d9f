"""Find the batch size that fits into memory.

A short forward pass shows how many bytes each token keeps for the backward pass. Bytes are counted, not read from the size of
the process, which the allocator rounds and other programs disturb.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.bucket import POOL
from regard.data.scratch import blocks
from regard.model.net import Net
from regard.tasks.common.task import Examples, Task
from regard.tasks.common.training_hooks import augment, order_batches
from regard.training.recipe import Train

SHARE = 0.6
"""Share of the free memory that training may use."""
MARGIN = 1.5
"""Factor for what a pass needs temporarily: gradients in flight, buffers of operators."""
STATES = 4
"""Numbers per weight: itself, its gradient, and two of the optimizer."""
LEAST, MOST, PASSES = 256, 1 << 16, 50
"""Minimum and maximum tokens of a batch; minimum number of steps per epoch."""


def measure_batch_tokens(net: Net, task: Task, examples: Examples, train: Train, free: int) -> int:
    """The batch size in tokens that fits into `free` bytes, measured on batches with the longest example."""
    seen = augment(task, examples, train.seed, 0)
    which, length, corpus = find_longest(seen)

    def probe(size: int) -> Tensor:
        if len(seen) > POOL:  # without a search through all batches
            rows = np.append(which, np.arange(min(size // max(length, 1), len(seen)) - 1))
        else:
            batches = order_batches(task, seen, tokens=size, seed=train.seed).epoch(0)
            rows = next(batch for batch in batches if which in batch)
        return task.loss(net, task.batch(seen, rows).to(net.device), train.label_smoothing).total

    with torch.random.fork_rng(devices=[]):
        return fit_batch_tokens(net, probe, free, corpus=corpus)


def find_longest(examples: Examples) -> tuple[int, int, int]:
    """Return which example is the longest, its length, and the sum of all lengths."""
    which, length, total = 0, -1, 0
    for some in blocks(len(examples)):
        longest = np.asarray(examples.lengths[some]).reshape(some.stop - some.start, -1).max(axis=1)
        total += int(longest.sum())
        if longest.max() > length:
            which, length = some.start + int(longest.argmax()), int(longest.max())
    return which, length, total


def fit_batch_tokens(net: nn.Module, probe: Callable[[int], Tensor], free: int, *, corpus: int) -> int:
    """The largest power of two that fits into `free` bytes; `probe(n)` returns the loss of a batch of n tokens.

    A batch has at most a fiftieth of the corpus: with larger ones, an epoch would have too few steps.
    """
    small, large = (_kept(net, probe, size) for size in (LEAST, 2 * LEAST))
    each = max(large - small, 1) / LEAST
    fixed = STATES * sum(p.numel() * p.element_size() for p in net.parameters())
    room = max((free * SHARE - fixed) / (each * MARGIN), LEAST)
    limit = min(room, MOST, max(corpus // PASSES, LEAST))
    return int(1 << (int(limit).bit_length() - 1))


def _kept(net: nn.Module, probe: Callable[[int], Tensor], size: int) -> int:
    """Bytes that a forward pass over this many tokens keeps for the backward pass, without weights."""
    weights = {p.untyped_storage().data_ptr() for p in net.parameters()}
    seen: dict[int, tuple[int, Tensor]] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes(), tensor  # kept alive, so that its address is not reused
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        probe(size)
    return sum(size for size, _ in seen.values())
