"""Weights set aside for averaging: one small folder each, kept as long as a checkpoint speaks of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from torch import Tensor

from regard.folder import contents, discard, pack, unpack, write_folder
from regard.storage import Storage
from regard.training.optim import mean

FILE = "weights.safetensors"


class Snapshots:
    """The snapshots of a run."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        self.folder, self.storage = folder, storage

    def add(self, step: int, weights: Mapping[str, Tensor]) -> None:
        write_folder(self._path(step), {FILE: pack(weights)}, storage=self.storage)

    def mean(self, steps: Collection[int]) -> dict[str, Tensor]:
        """The average of the snapshots of these steps."""
        return mean(unpack(contents(path, self.storage)[FILE], path / FILE) for path in map(self._path, sorted(steps)))

    def prune(self, wanted: Collection[int]) -> None:
        """Delete those nobody wants any more."""
        if not self.folder.exists():
            return
        names = {self._path(step).name for step in wanted}
        for name in self.storage.list(self.folder):
            if name.startswith(".step-"):  # left half done by a crash
                self.storage.remove(self.folder / name)
            elif name.startswith("step-") and name not in names:
                discard(self.folder / name, self.storage)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"
