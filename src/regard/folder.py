"""Folders that are whole or not there: model folders, and the checkpoints of a run.

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
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter

from regard.errors import CheckpointError, RegardError, SpecError
from regard.spec import Spec, spec
from regard.storage import DISK, Storage, explained, make_folder

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"
MANIFEST_LIMIT = 1_000_000
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


@spec
class Entry(Spec):
    """What a file must be to be believed."""

    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@spec
class Manifest(Spec):
    """The files of a folder, by name."""

    files: dict[str, Entry]


@dataclass(frozen=True)
class Folder:
    """A model folder that proved whole: what its files held when they were verified."""

    path: Path
    files: Mapping[str, bytes]

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def __getitem__(self, name: str) -> bytes:
        if name not in self.files:
            raise CheckpointError(f"{self.path} holds no {name}; there is {', '.join(self.files)}")
        return self.files[name]

    def json(self, name: str) -> Any:
        return parse_json(self[name], self.path / name)

    def tensors(self, name: str = "model.safetensors") -> dict[str, Tensor]:
        return unpack(self[name], self.path / name)


def write_folder(path: Path | str, files: Mapping[str, bytes], *, storage: Storage = DISK) -> None:
    """Write a folder with these files, in place of the one that may be there. When it returns, it is there to stay."""
    path = Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow a link at the very place we replace)
    manifest = _manifest(files)
    needed = len(manifest) + sum(map(len, files.values()))
    partial, previous = _beside(path)
    with explained(f"write {path.name}", path.parent, needed=needed, storage=storage):
        make_folder(storage, path.parent)
        recover(path, storage)
        replaces = _ours(path, storage)
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
            with suppress(OSError):  # what cannot be undone now is undone before the next write, and no reader minds it
                recover(path, storage)
            raise


def recover(path: Path, storage: Storage = DISK) -> None:
    """Undo or finish what a writer left half done around a folder."""
    partial, previous = _beside(path)
    names = storage.list(path.parent)
    if partial.name in names:
        storage.remove(partial)
    if previous.name in names and path.name in names:
        storage.sync(path.parent)  # the new one must be there to stay before the old one goes
        storage.remove(previous)
    elif previous.name in names:
        storage.rename(previous, path)


def discard(path: Path, storage: Storage = DISK) -> None:
    """Remove a folder; to a reader it is gone at once."""
    partial, _ = _beside(path)
    storage.rename(path, partial)
    storage.remove(partial)


def read_folder(path: Path | str, *, storage: Storage = DISK) -> Folder:
    """A model folder, verified. Nothing outside it is read, and nothing in it is run."""
    path = Path(path)
    with explained(f"read {path.name}", path.parent, storage=storage):
        try:
            return _read_model(path, storage)
        except RegardError:  # it may have been replaced while we read it: only what is wrong twice is wrong
            return _read_model(path, storage)


def contents(path: Path, storage: Storage = DISK) -> dict[str, bytes]:
    """The files of a folder as its manifest vouches for them; every fault is in one error."""
    files, faults = {}, []
    for name, entry in _listed(path, storage).items():
        try:
            data = storage.read(path / name, entry.size + 1)
        except OSError as error:
            faults.append(_unreadable(name, error))
            continue
        if len(data) != entry.size:
            came = "more" if len(data) > entry.size else str(len(data))
            faults.append(f"{name} should have {entry.size} bytes, has {came}")
        elif hashlib.sha256(data).hexdigest() != entry.sha256:
            faults.append(f"{name} is not what was written (its SHA-256 differs)")
        files[name] = data
    if faults:
        raise CheckpointError(f"{path} is damaged: {'; '.join(faults)}")
    return files


def parse_json(data: bytes, path: Path) -> Any:
    """What a JSON file says."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: it is not JSON ({error})") from None


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the bytes of a safetensors file. One that goes by several names is written once; `unpack` ties it again."""
    from safetensors.torch import save

    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[tuple[object, ...], str] = {}
    memories: set[int] = set()
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and first.setdefault(same, name) != name:
            tied[name] = first[same]
            continue
        packed = tensor.detach().cpu().contiguous()
        if packed.untyped_storage().data_ptr() in memories:  # another view of the same memory: not a tie, a copy
            packed = packed.clone()
        memories.add(packed.untyped_storage().data_ptr())
        stored[name] = packed
    data: bytes = save(stored, {"tied": json.dumps(tied)} if tied else None)
    return data


def unpack(data: bytes, path: Path) -> dict[str, Tensor]:
    """The tensors in the bytes of a safetensors file; `path` is what an error calls it."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors: dict[str, Tensor] = load(data)  # checks the header against the size before it makes room for anything
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        tied = TypeAdapter(dict[str, str]).validate_json((header.get("__metadata__") or {}).get("tied", "{}"))
        return {**tensors, **{name: tensors[other] for name, other in tied.items()}}
    except (
        SafetensorError,
        KeyError,
        ValueError,
        TypeError,
        RuntimeError,
    ) as error:  # the last two: shapes out of range
        said = str(error).partition("\n")[0]
        raise CheckpointError(f"{path} is damaged: it is not a safetensors file we can read ({said})") from None


def read_tensors(path: Path | str) -> dict[str, Tensor]:
    """The tensors of one safetensors file, ours or anyone's."""
    path = Path(path)
    if path.suffix in PICKLES:
        raise CheckpointError(f"{path} is refused: {_PICKLE}")
    with explained(f"read {path.name}", path.parent):
        return unpack(DISK.read(path.resolve(), sys.maxsize), path)


_PICKLE = "opening a pickle can run any code it names; save the weights as safetensors where you trust them"


def _read_model(path: Path, storage: Storage) -> Folder:
    _, previous = _beside(Path(os.path.abspath(path)))  # noqa: PTH100
    try:
        names, place = storage.list(path), path
    except NotADirectoryError:
        raise SpecError(f"{path} is a file; a model is a folder with a {MANIFEST}") from None
    except FileNotFoundError:
        try:
            names, place = storage.list(previous), previous
        except FileNotFoundError:
            raise SpecError(f"there is no model folder {path}") from None
    pickles = [name for name in names if Path(name).suffix in PICKLES]
    if pickles and not any(name.endswith(".safetensors") for name in names):
        raise CheckpointError(f"{path} is refused: its weights are pickles ({', '.join(pickles)}); {_PICKLE}")
    if MANIFEST not in names:
        raise CheckpointError(f"{path} has no {MANIFEST}: it is not a model folder of ours, or was never finished")
    return Folder(path, contents(place, storage))


def _beside(path: Path) -> tuple[Path, Path]:
    """The names a folder has while it is written, and while it is replaced."""
    return path.with_name(f".{path.name}.partial"), path.with_name(f".{path.name}.previous")


def _manifest(files: Mapping[str, bytes]) -> bytes:
    entries = {name: Entry(len(data), hashlib.sha256(data).hexdigest()) for name, data in sorted(files.items())}
    return Manifest(entries).json().encode()


def _listed(path: Path, storage: Storage) -> dict[str, Entry]:
    """What the manifest of a folder lists. It is believed only where it speaks of plain files in that folder."""
    place = path / MANIFEST
    try:
        data = storage.read(place, MANIFEST_LIMIT + 1)
    except OSError as error:
        raise CheckpointError(f"{path} is damaged: {_unreadable(MANIFEST, error)}") from None
    if len(data) > MANIFEST_LIMIT:
        raise CheckpointError(f"{place} is damaged: no manifest of ours has over {MANIFEST_LIMIT} bytes")
    try:
        files = Manifest.parse(parse_json(data, place)).files
    except SpecError as error:
        raise CheckpointError(f"{place} is damaged: {error}") from None
    outside = [name for name in files if name in ("", ".", "..") or set(name) & set("/\\\0")]
    if outside:
        raise CheckpointError(
            f"{place} is refused: it names {', '.join(map(repr, outside))}, not plain files beside it"
        )
    return files


def _unreadable(name: str, error: OSError) -> str:
    """Why a file counts as damaged; an error that says nothing about the file itself is raised again."""
    if error.errno == errno.ENOENT:
        return f"{name} is missing"
    if error.errno == errno.ELOOP:
        return f"{name} is a link, and links are not followed"
    if error.errno in (errno.EINVAL, errno.EIO, errno.ENAMETOOLONG):
        return f"{name} cannot be read ({error.strerror})"
    raise error


def _ours(path: Path, storage: Storage) -> bool:
    """Whether there is a folder to replace. One that holds anything we did not write is never touched."""
    try:
        names = storage.list(path)
    except FileNotFoundError:
        return False
    known = {MANIFEST, *_listed(path, storage)} if MANIFEST in names else set()
    foreign = sorted(set(names) - known)
    if foreign:
        raise SpecError(
            f"{path} holds {', '.join(foreign[:3])}, which we did not write; move it or choose another folder"
        )
    return True
