"""Averages of weights: moving, and over snapshots.

Each snapshot is a small folder, kept as long as a checkpoint refers to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.files.folder import discard, find_fault, read_files, write_folder
from regard.files.storage import Storage, explain_errors
from regard.files.tensors import pack, unpack
from regard.training.run.checkpoint import Checkpoints

FILE = "weights.safetensors"


class MovingAverage:
    """An exponential moving average (EMA) of the trained weights."""

    def __init__(self, net: nn.Module, share: float) -> None:
        self.share = share
        self.weights = {name: p.detach().clone() for name, p in net.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        pairs = ((self.weights[name], p.detach()) for name, p in net.named_parameters() if p.requires_grad)
        mine, theirs = zip(*pairs, strict=True)
        torch._foreach_lerp_(list(mine), list(theirs), 1.0 - self.share)


def average_weights(weights: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights, summed in double precision."""
    count, total = 0, dict[str, Tensor]()
    kinds = dict[str, torch.dtype]()
    for one in weights:
        count += 1
        for name, tensor in one.items():
            kinds[name] = tensor.dtype
            total[name] = tensor.double() if name not in total else total[name] + tensor.double()
    return {name: (tensor / count).to(kinds[name]) for name, tensor in total.items()}


class Snapshots:
    """The snapshots of a run."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        self.folder, self.storage = folder, storage

    def add(self, step: int, weights: Mapping[str, Tensor]) -> None:
        write_folder(self._path(step), {FILE: pack(weights)}, damaged=True, storage=self.storage)

    def find_fault(self, step: int) -> str | None:
        """Return the fault of the snapshot of a step; None if there is none."""
        return find_fault(self._path(step), self.storage)

    def average(self, steps: Collection[int]) -> dict[str, Tensor]:
        """The mean of the snapshots of these steps."""
        with explain_errors("read snapshots", self.folder, storage=self.storage):
            paths = [self._path(step) for step in sorted(steps)]
            return average_weights(unpack(read_files(path, self.storage)[FILE], path / FILE) for path in paths)

    def prune(self, checkpoints: Checkpoints) -> None:
        """Delete snapshots that no checkpoint refers to; none, if a checkpoint cannot be read."""
        try:
            names = {self._path(step).name for facts in checkpoints.facts() for step, _ in facts["snapshots"]}
        except (CheckpointError, KeyError, TypeError, ValueError):  # facts are read here without their checksum
            return
        with explain_errors("remove older snapshots", self.folder, storage=self.storage), suppress(FileNotFoundError):
            for name in self.storage.list(self.folder):
                if name.startswith(".step-"):  # left incomplete by a crash
                    self.storage.remove(self.folder / name)
                elif name.startswith("step-") and name not in names:
                    discard(self.folder / name, self.storage)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"
