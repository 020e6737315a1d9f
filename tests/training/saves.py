"""Checkpoints on a disk in memory, small enough to be saved and lost in every way there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from regard.training.run.checkpoint import Checkpoints
from tests.faulty import Memory, PowerCut

HERE = Path("/run/checkpoints")


def groups(step: int) -> dict[str, dict[str, Tensor]]:
    return {"weights": {"w": torch.full((3,), float(step))}, "optimizer": {"m": torch.tensor([step, -step])}}


def save(storage: Memory, *steps: int, keep: int = 2) -> Memory:
    for step in steps:
        Checkpoints(HERE, keep=keep, storage=storage).save(step, groups(step), {"epoch": step})
    return storage


def loaded_step(storage: Memory) -> int | None:
    """The step a run would go on from, after making sure that all of it is what was saved."""
    loaded = Checkpoints(HERE, storage=storage).load_newest()
    if loaded is None:
        return None
    assert loaded.facts == {"epoch": loaded.step}
    for name, tensors in groups(loaded.step).items():
        for key, tensor in tensors.items():
            assert torch.equal(loaded.groups[name][key], tensor)
    return loaded.step


def disks(
    before: Memory, act: Callable[[Memory], object], make: type[Memory] = Memory
) -> Iterator[tuple[bool, Memory]]:
    """Every disk that a power cut during or right after `act` may leave, and whether `act` had returned."""
    done, cut = False, 0
    while not done:
        storage = make(cut=cut)
        storage.root = before.copy().root
        try:
            act(storage)
            done = True
        except PowerCut:
            cut += 1
        for disk in storage.after_power_cut():
            yield done, disk
