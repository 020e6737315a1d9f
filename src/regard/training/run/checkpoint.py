"""Checkpoints: what a run needs to continue exactly.

    checkpoints/step-00000200/   weights.safetensors, optimizer.safetensors, ... one file per group of tensors
                                 facts.json           the step, and everything else that is not a tensor
                                 run.json, recipe.yaml, vocabulary.*   copies, from which a run folder is repaired
                                 manifest.json        size and SHA-256 of each file, written last

`regard.files.folder` writes each of them atomically; this module decides which to keep and which to load. The caller holds the
lock of the run.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import CheckpointError, SpecError
from regard.files.folder import MANIFEST, discard, parse_json, read_files, recover, verify, write_folder
from regard.files.storage import DISK, Storage, explain_errors
from regard.files.tensors import pack, unpack
from regard.spec import Plain

if TYPE_CHECKING:
    from torch import Tensor

NAME = re.compile(r"step-(\d{8,})")
UNFINISHED = re.compile(r"\.(step-\d{8,})\.(partial|previous)")
FACTS = "facts.json"
TENSORS = ".safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint, with messages about how it was chosen."""

    step: int
    groups: dict[str, dict[str, Tensor]]
    facts: Plain
    files: dict[str, bytes]
    """Copies of files that describe the run."""
    messages: list[str]


class Checkpoints:
    """The checkpoints of one run; the newest `keep` of them stay."""

    def __init__(self, folder: Path | str, *, keep: int = 2, storage: Storage = DISK) -> None:
        if keep < 1:
            raise SpecError(f"at least 1 checkpoint must be kept, got keep={keep}")
        self.folder, self.keep, self.storage = Path(folder), keep, storage

    def save(
        self,
        step: int,
        groups: Mapping[str, Mapping[str, Tensor]],
        facts: Mapping[str, object],
        files: Mapping[str, bytes] | None = None,
    ) -> Path:
        """Write a checkpoint. Once this returns, it survives a power cut; if it raises, the previous one is intact."""
        path = self._path(step)
        write_folder(path, {**(files or {}), **_files(step, groups, facts)}, damaged=True, storage=self.storage)
        self.prune(step)
        return path

    def prune(self, step: int) -> None:
        """Remove the checkpoints before that of this step which are not to be kept, once it is read back and verified."""
        with explain_errors("remove older checkpoints", self.folder, storage=self.storage):
            surplus = [s for s in self.steps() if s < step][self.keep - 1 :]
            if surplus:
                verify(self._path(step), self.storage)
            for old in surplus:
                discard(self._path(old), self.storage)

    def load_newest(self) -> Checkpoint | None:
        """The newest intact checkpoint, or None if there is none yet; damaged ones are renamed."""
        said: list[str] = []
        with explain_errors("read checkpoints", self.folder, storage=self.storage):
            for base in {match[1] for match in map(UNFINISHED.fullmatch, self._names()) if match}:
                recover(self.folder / base, self.storage)
            for step in self.steps():
                try:
                    found = self._read(step)
                except CheckpointError as error:
                    said.append(f"{error}; renamed to {self._rename_damaged(step).name}")
                    continue
                return replace(found, messages=[*said, f"continuing from {self._path(step)}"])
            damaged = [name for name in self._names() if name.endswith(".corrupt")]
        if damaged:
            faults = "; ".join(said) or f"only damaged ones are left ({', '.join(damaged)})"
            raise CheckpointError(f"no checkpoint in {self.folder} can be used: {faults}. Start over with --fresh")
        return None

    def load(self, step: int) -> Checkpoint | None:
        """The checkpoint of a step, or None if there is none or it is damaged."""
        with explain_errors("read checkpoints", self.folder, storage=self.storage):
            try:
                return self._read(step) if step in self.steps() else None
            except CheckpointError:
                return None

    def read_copies(self) -> tuple[Path, dict[str, bytes]] | None:
        """The newest intact checkpoint with copies of the files that describe the run, and these files."""
        with explain_errors("read checkpoints", self.folder, storage=self.storage):
            for path in map(self._path, self.steps()):
                try:
                    verify(path, self.storage)
                except CheckpointError:
                    continue
                names = [name for name in self.storage.list(path) if not name.endswith(TENSORS)]
                if copies := [name for name in names if name not in (FACTS, MANIFEST)]:
                    return path, {name: self.storage.read(path / name, sys.maxsize) for name in copies}
        return None

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, newest first."""
        found = (NAME.fullmatch(name) for name in self._names())
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def facts(self) -> list[Plain]:
        """The facts of every checkpoint, newest first."""
        with explain_errors("read checkpoints", self.folder, storage=self.storage):
            return [
                self._parse_facts(step, self.storage.read(self._path(step) / FACTS, 1 << 24)) for step in self.steps()
            ]

    def _names(self) -> list[str]:
        try:
            return self.storage.list(self.folder)
        except FileNotFoundError:
            return []

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _read(self, step: int) -> Checkpoint:
        path = self._path(step)
        files = read_files(path, self.storage)
        facts = self._parse_facts(step, files.pop(FACTS, b"null"))
        tensors = {name: files.pop(name) for name in list(files) if name.endswith(TENSORS)}
        groups = {name.removesuffix(TENSORS): unpack(data, path / name) for name, data in tensors.items()}
        return Checkpoint(step, groups, facts, files, [])

    def _parse_facts(self, step: int, data: bytes) -> Plain:
        path = self._path(step)
        said = parse_json(data, path / FACTS)
        if not isinstance(said, dict) or set(said) != {"step", "facts"} or said["step"] != step:
            raise CheckpointError(f"{path} is damaged: its {FACTS} is not that of step {step}")
        facts: Plain = said["facts"]
        return facts

    def _rename_damaged(self, step: int) -> Path:
        path, taken = self._path(step), self._names()
        names = itertools.chain([f"{path.name}.corrupt"], (f"{path.name}.{n}.corrupt" for n in itertools.count(2)))
        aside = path.with_name(next(name for name in names if name not in taken))
        self.storage.rename(path, aside)
        return aside


def _files(step: int, groups: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, object]) -> dict[str, bytes]:
    said = json.dumps({"step": step, "facts": facts}, indent=2, ensure_ascii=False).encode()
    return {name + TENSORS: pack(tensors) for name, tensors in groups.items()} | {FACTS: said}
