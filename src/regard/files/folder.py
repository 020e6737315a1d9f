"""Folders written atomically, with checksums.

Model folders and checkpoints are complete or absent.

`manifest.json`, written last, holds the size and SHA-256 of every other file. A folder is written under another name and
renamed into place, so that a reader finds the old one or the new one at every moment, even after a power cut:

    .best.partial   is written; its files, its manifest and its own list of names are synced
    best            is renamed .best.previous, if there is one: a reader that finds no `best` takes this
    .best.partial   is renamed best, and the folder around it is synced
    .best.previous  is removed
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from regard.errors import CheckpointError, RegardError, SpecError
from regard.files.storage import DISK, Storage, explain_errors, make_folder
from regard.files.tensors import PICKLE, PICKLES, find_header_fault, unpack
from regard.spec import Spec, spec

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST, WEIGHTS = "manifest.json", "model.safetensors"
TOKENIZER, SOURCE_TOKENIZER = "tokenizer.json", "tokenizer.source.json"
MANIFEST_LIMIT = 1_000_000
JSON_LIMIT = 10_000_000
"""Maximum bytes of a configuration; some list a hundred thousand labels."""
BESIDE_LIMIT = 200_000_000
"""Maximum bytes of a model folder beside the weights: tokenizers, configuration, card."""


@spec
class Entry(Spec):
    """Size and checksum of a file."""

    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@spec
class Manifest(Spec):
    """The files of a folder, by name."""

    files: dict[str, Entry]


@dataclass(frozen=True)
class Folder:
    """A verified model folder: the contents of its files when they were verified."""

    path: Path
    files: Mapping[str, bytes]
    mapped: mmap | None = None
    """The weights, if they were read into pages of their own; then they are not among the files."""

    def __contains__(self, name: str) -> bool:
        return name in self.files or (name == WEIGHTS and self.mapped is not None)

    @property
    def weights(self) -> bytes | mmap:
        """The weights file."""
        return self[WEIGHTS] if self.mapped is None else self.mapped

    def __getitem__(self, name: str) -> bytes:
        if name not in self.files:
            raise CheckpointError(f"{self.path} has no {name}; it contains {', '.join(self.files)}")
        return self.files[name]

    def json(self, name: str) -> Any:
        if len(self[name]) > JSON_LIMIT:
            raise CheckpointError(f"{self.path / name} is refused: a configuration has at most {JSON_LIMIT} bytes")
        return parse_json(self[name], self.path / name)

    def tensors(self, name: str = WEIGHTS) -> dict[str, Tensor]:
        return unpack(self[name], self.path / name)


def write_folder(
    path: Path | str, files: Mapping[str, bytes], *, damaged: bool = False, storage: Storage = DISK
) -> None:
    """Write a folder with these files, replacing an existing one. Once this returns, it survives a power cut.

    With `damaged`, a folder whose manifest is missing or cannot be read is replaced, too, if it has no other files.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow a link at the very place we replace)
    manifest = _manifest(files)
    needed = len(manifest) + sum(map(len, files.values()))
    partial, previous = _beside(path)
    with explain_errors(f"write {path.name}", path.parent, needed=needed, storage=storage):
        make_folder(storage, path.parent)
        recover(path, storage)
        replaces = _can_replace(path, storage, known=files if damaged else ())
        try:
            storage.mkdir(partial)
            for name, data in files.items():
                storage.write(partial / name, data)
            for name in files:
                storage.sync(partial / name)
            storage.write(partial / MANIFEST, manifest)
            storage.sync(partial / MANIFEST)
            storage.sync(partial)
            if replaces:
                storage.rename(path, previous)
            storage.rename(partial, path)
            storage.sync(path.parent)
            if replaces:
                storage.remove(previous)
        except OSError:
            with suppress(OSError):  # otherwise it is undone before the next write, and readers ignore it
                recover(path, storage)
            raise


def recover(path: Path, storage: Storage = DISK) -> None:
    """Undo or finish an interrupted write of a folder."""
    partial, previous = _beside(path)
    names = storage.list(path.parent)
    if partial.name in names:
        storage.remove(partial)
    if previous.name in names and path.name in names:
        storage.sync(path.parent)  # the new one must survive a power cut before the old one goes
        storage.remove(previous)
    elif previous.name in names:
        storage.rename(previous, path)


def discard(path: Path, storage: Storage = DISK) -> None:
    """Remove a folder; for readers it disappears at once."""
    partial, _ = _beside(path)
    storage.rename(path, partial)
    storage.remove(partial)


def find_foreign_files(path: Path, storage: Storage = DISK) -> list[str]:
    """Files that the manifest of a folder does not list; none if the manifest is damaged, since it may have listed them."""
    names = storage.list(path)
    if MANIFEST not in names:
        return names
    try:
        return sorted({*names} - {MANIFEST, *_read_manifest(path, storage)})
    except CheckpointError:
        return []


def read_folder(path: Path | str, *, storage: Storage = DISK, map_weights: bool = False) -> Folder:
    """Read and verify a model folder. Nothing outside it is read, and nothing in it is executed.

    With `map_weights` the weights are read into pages where that is possible, which an engine can release one by one.
    """
    path = Path(path)
    with explain_errors(f"read {path.name}", path.parent, storage=storage):
        try:
            return _read_model(path, storage, map_weights)
        except RegardError:  # it may have been replaced while we read it: try once more
            return _read_model(path, storage, map_weights)


def read_files(path: Path, storage: Storage = DISK, *, beside: int = sys.maxsize) -> dict[str, bytes]:
    """Read the files of a folder and verify them against its manifest; all faults are in one error.

    `beside` limits the bytes of all files but the weights: a sparse file can be huge and take no space on disk.
    """
    return _read_contents(path, storage, beside)[0]


def _read_contents(
    path: Path, storage: Storage, beside: int, *, map_weights: bool = False
) -> tuple[dict[str, bytes], mmap | None]:
    """The files of a folder; the weights apart, if they are mapped."""
    _check_no_link(path)
    files: dict[str, bytes] = {}
    mapped: mmap | None = None
    faults, left = [], beside
    for name, entry in _read_manifest(path, storage).items():
        try:
            if name.endswith(".safetensors") and (fault := find_header_fault(path / name, entry.size, storage)):
                faults.append(f"{name} is {fault}")
                continue
            if map_weights and name == WEIGHTS and entry.size:
                mapped = storage.map(path / name)
            limit = 1 + (entry.size if name == WEIGHTS else min(entry.size, left))
            data = storage.read(path / name, limit) if mapped is None or name != WEIGHTS else mapped
        except OSError as error:
            faults.append(_describe_error(name, error))
            continue
        left -= 0 if name == WEIGHTS else len(data)
        if left < 0:
            raise CheckpointError(f"{path} is refused: its files other than {WEIGHTS} have more than {beside} bytes")
        faults += _differences(name, entry, len(data), hashlib.sha256(data).hexdigest())
        if not faults and isinstance(data, bytes):
            files[name] = data
    _raise_faults(path, faults)
    return files, mapped


def verify(path: Path, storage: Storage = DISK) -> None:
    """Verify a folder against its manifest as `read_files` does, without reading whole files into memory."""
    faults = []
    for name, entry in _read_manifest(path, storage).items():
        try:
            faults += _differences(name, entry, *storage.digest(path / name))
        except OSError as error:
            faults.append(_describe_error(name, error))
    _raise_faults(path, faults)


def find_fault(path: Path, storage: Storage = DISK) -> str | None:
    """Return the fault of a folder that should be there and be what its manifest says; None if there is none.

    An interrupted write is undone or finished first.
    """
    with explain_errors(f"read {path.name}", path.parent, storage=storage):
        try:
            recover(path, storage)
            if path.name not in storage.list(path.parent):
                return f"{path} is missing"
            verify(path, storage)
        except FileNotFoundError:
            return f"{path} is missing"
        except CheckpointError as error:
            return str(error)
    return None


def read_file(folder: Path, name: str, limit: int = sys.maxsize) -> bytes:
    """Read a file of a folder that others wrote, of at most `limit` bytes."""
    with explain_errors(f"read {name}", folder):
        data = DISK.read(file_in(folder, name), limit if limit == sys.maxsize else limit + 1)
    if len(data) > limit:
        raise CheckpointError(f"{folder / name} is refused: it has more than {limit} bytes")
    return data


def file_in(folder: Path, name: str) -> Path:
    """Resolve a file of a folder. A link may lead within the folder, or into the cache of a download.

    The Hugging Face library keeps files in `blobs/` and fills `snapshots/REVISION/` with links to them; links to anything
    else outside the folder are refused.
    """
    home, path = Path(os.path.realpath(folder)), folder / name
    place = Path(os.path.realpath(path))
    stores = [home, home.parents[1] / "blobs"] if home.parent.name == "snapshots" else [home]
    if not any(place.is_relative_to(store) for store in stores):
        raise CheckpointError(f"{path} is refused: it is a link to a file outside the folder")
    with explain_errors(f"read {name}", folder):
        if not stat.S_ISREG(place.stat().st_mode):
            raise CheckpointError(f"{path} is refused: it is not a regular file")
    return place


def parse_json(data: bytes, path: Path) -> Any:
    """Parse a JSON file."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: it is not JSON ({error})") from None


def _read_model(path: Path, storage: Storage, map_weights: bool) -> Folder:
    _, previous = _beside(Path(os.path.abspath(path)))  # noqa: PTH100
    try:
        names, place = storage.list(path), path.resolve() if path.is_symlink() else path  # a link that the user named
    except NotADirectoryError:
        raise SpecError(f"{path} is a file; a model is a folder with a {MANIFEST}") from None
    except FileNotFoundError:
        _check_no_link(previous)
        try:
            names, place = storage.list(previous), previous
        except FileNotFoundError:
            raise SpecError(f"there is no model folder {path}") from None
    pickles = [name for name in names if Path(name).suffix in PICKLES]
    if pickles and not any(name.endswith(".safetensors") for name in names):
        raise CheckpointError(f"{path} is refused: its weights are pickles ({', '.join(pickles)}); {PICKLE}")
    if MANIFEST not in names:
        raise CheckpointError(f"{path} has no {MANIFEST}: it is not a Regard model folder, or was not finished")
    can_map = map_weights and os.name == "posix"
    return Folder(path, *_read_contents(place, storage, BESIDE_LIMIT, map_weights=can_map))


def _check_no_link(path: Path) -> None:
    """Refuse a link where we expect a folder of our own."""
    if path.is_symlink():
        raise CheckpointError(f"{path} is a link, and links are not followed; use its target instead")


def _beside(path: Path) -> tuple[Path, Path]:
    """The names of a folder while it is written, and while it is replaced."""
    return path.parent / f".{path.name}.partial", path.parent / f".{path.name}.previous"  # with_name() refuses `/`


def _manifest(files: Mapping[str, bytes]) -> bytes:
    entries = {name: Entry(len(data), hashlib.sha256(data).hexdigest()) for name, data in sorted(files.items())}
    return Manifest(entries).json().encode()


def _read_manifest(path: Path, storage: Storage) -> dict[str, Entry]:
    """Read the manifest of a folder, which may only list plain files of that folder."""
    place = path / MANIFEST
    try:
        data = storage.read(place, MANIFEST_LIMIT + 1)
    except OSError as error:
        raise CheckpointError(f"{path} is damaged: {_describe_error(MANIFEST, error)}") from None
    if len(data) > MANIFEST_LIMIT:
        raise CheckpointError(f"{place} is damaged: a manifest has at most {MANIFEST_LIMIT} bytes")
    try:
        files = Manifest.parse(parse_json(data, place)).files
    except SpecError as error:
        raise CheckpointError(f"{place} is damaged: {error}") from None
    outside = [name for name in files if not is_plain_name(name)]
    if outside:
        raise CheckpointError(
            f"{place} is refused: it names {', '.join(map(repr, outside))}, not plain files in the same folder"
        )
    return files


def is_plain_name(name: str) -> bool:
    """True if a name can only be a file of the folder itself; JSON can also spell halves of characters, which no name has."""
    surrogates = any("\ud800" <= letter <= "\udfff" for letter in name)
    return name not in ("", ".", "..") and not set(name) & set("/\\\0") and not surrogates


def _differences(name: str, entry: Entry, size: int, sha256: str) -> list[str]:
    """List the differences of a file from its manifest."""
    if size != entry.size:
        return [f"{name} should have {entry.size} bytes, has {'more' if size > entry.size else size}"]
    return [] if sha256 == entry.sha256 else [f"{name} has changed since it was written (its SHA-256 differs)"]


def _raise_faults(path: Path, faults: Sequence[str]) -> None:
    if faults:
        raise CheckpointError(f"{path} is damaged: {'; '.join(faults)}")


def _describe_error(name: str, error: OSError) -> str:
    """Tell why a file counts as damaged; errors that are not about the file itself are raised again."""
    if error.errno == errno.ENOENT:
        return f"{name} is missing"
    if error.errno == errno.ELOOP:
        return f"{name} is a link, and links are not followed"
    if error.errno in (errno.EINVAL, errno.EIO, errno.ENAMETOOLONG):
        return f"{name} cannot be read ({error.strerror})"
    raise error


def _can_replace(path: Path, storage: Storage, known: Collection[str]) -> bool:
    """True if there is a folder to replace. A folder with files that we did not write is refused."""
    try:
        names = storage.list(path)
    except FileNotFoundError:
        return False
    try:
        listed = {MANIFEST, *_read_manifest(path, storage)} if MANIFEST in names else set()
    except CheckpointError:
        if not known:
            raise
        listed = {MANIFEST}
    if foreign := sorted({*names} - listed - {*known}):
        raise SpecError(
            f"{path} contains {', '.join(foreign[:3])}, which Regard did not write; move it or choose another folder"
        )
    return True
