"""A file system in memory that forgets what was not synced and fails when told to.

Like a real one it keeps two truths: what a running process sees, and what a power cut would leave. A file's bytes are
safe once the file was synced, names once their folder was. Of the changes to a folder's names since then any first part
may survive, each folder for itself (an atomic rename is one change); unsynced bytes may be lost, torn or come back as zeros.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


class PowerCut(BaseException):
    """The machine stops here. Nothing in the product may catch it."""


@dataclass
class Bytes:
    data: bytes
    synced: bytes | None = None


@dataclass
class Names:
    now: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        change(self.now)
        self.pending.append(change)


Node = Bytes | Names
Change = Callable[[dict[str, Node]], object]
Fault = Callable[[int, str], int | None]
"""From the number of a call and its name to the errno it fails with, if it does."""

UNSYNCED: dict[str, Callable[[bytes], bytes]] = {
    "lost": lambda data: b"",
    "torn": lambda data: data[: len(data) // 2],
    "zeros": lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    "whole": lambda data: data,
}


class Memory:
    """A `Storage` whose power is cut before call number `cut`, or whose calls fail as `fault` says."""

    def __init__(self, *, cut: int | None = None, fault: Fault = lambda number, call: None, room: int = 1234) -> None:
        self.root = Names()
        self.cut, self.fault, self.room = cut, fault, room
        self.calls: list[str] = []

    def write(self, path: Path, data: bytes) -> None:
        failed = self._call("write", path)
        folder = self._folder(path.parent)
        if path.name in folder.now:
            raise _error(errno.EEXIST, path)
        file = Bytes(data[: len(data) // 2] if failed else data)  # a write that fails has often begun
        folder.change(lambda names: names.update({path.name: file}))
        if failed:
            raise _error(failed, path)

    def read(self, path: Path, limit: int) -> bytes:
        self._check("read", path)
        node = self._node(path)
        if not isinstance(node, Bytes):
            raise _error(errno.EINVAL, path)
        return node.data[:limit]

    def map(self, path: Path) -> None:
        self._check("map", path)

    def digest(self, path: Path) -> tuple[int, str]:
        data = self.read(path, sys.maxsize)
        return len(data), hashlib.sha256(data).hexdigest()

    def sync(self, path: Path) -> None:
        self._check("sync", path)
        node = self._node(path)
        if isinstance(node, Bytes):
            node.synced = node.data
        else:
            node.synced, node.pending = dict(node.now), []

    def mkdir(self, path: Path) -> None:
        self._check("mkdir", path)
        folder = self._folder(path.parent)
        if path.name in folder.now:
            raise _error(errno.EEXIST, path)
        made = Names()
        folder.change(lambda names: names.update({path.name: made}))

    def rename(self, old: Path, new: Path) -> None:
        self._check("rename", old)
        assert old.parent == new.parent, "across folders a rename is not modelled"
        folder, moved = self._folder(old.parent), self._node(old)
        there = folder.now.get(new.name)
        if isinstance(there, Names) and there.now:
            raise _error(errno.ENOTEMPTY, new)
        folder.change(lambda names: (names.pop(old.name, None), names.update({new.name: moved})))

    def remove(self, path: Path) -> None:
        node = self._node(path)
        if isinstance(node, Names):
            for name in list(node.now):
                self.remove(path / name)
        self._check("remove", path)
        self._folder(path.parent).change(lambda names: names.pop(path.name, None))

    def list(self, path: Path) -> list[str]:
        self._check("list", path)
        return sorted(self._folder(path).now)

    def free(self, path: Path) -> int:
        return self.room

    def files(self) -> dict[str, bytes]:
        """Every file a process sees, by its path; folders end in a slash."""
        found: dict[str, bytes] = {}

        def walk(node: Node, path: str) -> None:
            if isinstance(node, Bytes):
                found[path] = node.data
                return
            found[path + "/"] = b""
            for name, inner in sorted(node.now.items()):
                walk(inner, f"{path}/{name}")

        walk(self.root, "")
        return found

    def copy(self) -> Memory:
        """The same files, all synced, with no faults: a machine shut down and started in order."""
        return _started(self.root, lambda names: names.now, lambda file: file.data)

    def after_power_cut(self) -> Iterator[Memory]:
        """Every different disk that a power cut now may leave."""
        folders = [node for node in self._nodes() if node.pending]
        seen = set()
        for lengths in itertools.product(*(range(len(folder.pending) + 1) for folder in folders)):
            survives = {id(folder): length for folder, length in zip(folders, lengths, strict=True)}
            for spoil in UNSYNCED.values():
                disk = _started(
                    self.root,
                    lambda names: _replayed(names, survives.get(id(names), 0)),  # noqa: B023
                    lambda file: spoil(file.data) if file.synced is None else file.synced,  # noqa: B023
                )
                key = tuple(disk.files().items())
                if key not in seen:
                    seen.add(key)
                    yield disk

    def _nodes(self) -> Iterator[Names]:
        """Every folder that a process sees or a power cut may bring back."""
        found: dict[int, Names] = {}

        def walk(node: Node) -> None:
            if isinstance(node, Names) and id(node) not in found:
                found[id(node)] = node
                for length in range(len(node.pending) + 1):
                    for inner in _replayed(node, length).values():
                        walk(inner)

        walk(self.root)
        yield from found.values()

    def _call(self, call: str, path: Path) -> int | None:
        number = len(self.calls)
        if number == self.cut:
            raise PowerCut(f"before {call} {path}")
        self.calls.append(f"{call} {path}")
        return self.fault(number, call)

    def _check(self, call: str, path: Path) -> None:
        failed = self._call(call, path)
        if failed:
            raise _error(failed, path)

    def _node(self, path: Path) -> Node:
        node: Node = self.root
        for part in path.parts[1:]:
            if isinstance(node, Bytes):
                raise _error(errno.ENOTDIR, path)
            if part not in node.now:
                raise _error(errno.ENOENT, path)
            node = node.now[part]
        return node

    def _folder(self, path: Path) -> Names:
        node = self._node(path)
        if isinstance(node, Bytes):
            raise _error(errno.ENOTDIR, path)
        return node


def _replayed(folder: Names, length: int) -> dict[str, Node]:
    names = dict(folder.synced)
    for change in folder.pending[:length]:
        change(names)
    return names


def _started(root: Names, names: Callable[[Names], dict[str, Node]], data: Callable[[Bytes], bytes]) -> Memory:
    def copy(node: Node) -> Node:
        if isinstance(node, Bytes):
            kept = data(node)
            return Bytes(kept, kept)
        inner = {name: copy(child) for name, child in names(node).items()}
        return Names(inner, dict(inner))

    memory, top = Memory(), copy(root)
    assert isinstance(top, Names)
    memory.root = top
    return memory


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


@contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """No file can become larger than this, whoever writes it: the write that would do so fails half done."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def no_descriptors(spare: int = 0) -> Iterator[None]:
    """No file can be opened beyond so many: all other descriptors that this process may have are taken."""
    import resource

    before, free = resource.getrlimit(resource.RLIMIT_NOFILE), os.open(os.devnull, os.O_RDONLY)
    os.close(free)  # the lowest that is free
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
