"""Weights set aside for averaging: one small folder each, kept as long as a checkpoint speaks of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from regard.errors import CheckpointError
from regard.files.folder import contents, discard, write_folder
from regard.files.storage import Storage, explained
from regard.files.tensors import pack, unpack
from regard.training.checkpoint import Checkpoints
from regard.training.optimizer import mean

FILE = "weights.safetensors"


class Snapshots:
    """The snapshots of a run."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        self.folder, self.storage = folder, storage

    def add(self, step: int, weights: Mapping[str, Tensor]) -> None:
        write_folder(self._path(step), {FILE: pack(weights)}, storage=self.storage)

    def mean(self, steps: Collection[int]) -> dict[str, Tensor]:
        """The average of the snapshots of these steps."""
        with explained("read snapshots", self.folder, storage=self.storage):
            paths = [self._path(step) for step in sorted(steps)]
            return mean(unpack(contents(path, self.storage)[FILE], path / FILE) for path in paths)

    def prune(self, checkpoints: Checkpoints) -> None:
        """Delete those that no checkpoint speaks of; none, as long as one of these cannot be read."""
        try:
            names = {self._path(step).name for facts in checkpoints.facts() for step, _ in facts["snapshots"]}
        except CheckpointError:
            return
        with explained("remove older snapshots", self.folder, storage=self.storage), suppress(FileNotFoundError):
            for name in self.storage.list(self.folder):
                if name.startswith(".step-"):  # left half done by a crash
                    self.storage.remove(self.folder / name)
                elif name.startswith("step-") and name not in names:
                    discard(self.folder / name, self.storage)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"
