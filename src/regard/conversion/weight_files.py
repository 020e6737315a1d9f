"""Weight files of a folder, read by their headers.

`model.safetensors`, or several files that `model.safetensors.index.json` lists; or pickles, which are opened
only if trusted. An index may name only files in its own folder.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import CheckpointError
from regard.files.folder import JSON_LIMIT, WEIGHTS, file_in, is_plain_name, parse_json, read_file
from regard.files.storage import explain_errors
from regard.files.tensors import check_header

INDEX = f"{WEIGHTS}.index.json"
PICKLE, PICKLES = "pytorch_model.bin", "pytorch_model.bin.index.json"
REAL = {"F64", "F32", "F16", "BF16"}


@dataclasses.dataclass(frozen=True)
class WeightEntry:
    """A weight in a file."""

    file: Path
    shape: tuple[int, ...]
    dtype: str

    @property
    def real(self) -> bool:
        """True if it holds floating-point numbers."""
        return self.dtype in REAL


class StoredWeights(Mapping[str, WeightEntry]):
    """Weights by name: on disk, or in memory if they had to be read to be listed."""

    def __init__(self, entries: Mapping[str, WeightEntry], memory: Mapping[str, Tensor] | None = None) -> None:
        self._entries, self._memory = dict(entries), memory

    def __getitem__(self, name: str) -> WeightEntry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """Read these weights; keys are new names, values the stored ones."""
        if self._memory is not None:
            return {name: self._memory[own] for name, own in names.items()}
        out = {}
        for file in dict.fromkeys(self[own].file for own in names.values()):
            with _open(file) as weights:
                out.update({name: weights.get_tensor(own) for name, own in names.items() if self[own].file == file})
        return out


def list_weights(folder: Path, *, trust: bool = False) -> StoredWeights:
    """The weights that the files of a folder hold."""
    if (folder / WEIGHTS).exists():
        return StoredWeights(_read_headers(folder / WEIGHTS))
    if (folder / INDEX).exists():
        return _read_index(folder)
    if (folder / PICKLE).exists():
        return _read_pickles([folder / PICKLE], trust)
    if (folder / PICKLES).exists():
        return _read_pickles(_index_files(folder / PICKLES), trust)
    raise CheckpointError(f"{folder} has no {WEIGHTS}; without weights there is nothing to convert")


def _read_index(folder: Path) -> StoredWeights:
    """The weights of several files, as the index lists them."""
    path = folder / INDEX
    entries: dict[str, WeightEntry] = {}
    said = _weight_map(path)
    for file in _index_files(path):
        entries |= {name: entry for name, entry in _read_headers(file).items() if said.get(name) == file.name}
    if lost := [name for name in said if name not in entries]:
        raise CheckpointError(f"{folder} is damaged: {INDEX} lists {', '.join(lost)}, which its files do not hold")
    return StoredWeights(entries)


def _index_files(index: Path) -> list[Path]:
    """The files that an index lists, all in its folder."""
    names = sorted(set(_weight_map(index).values()))
    if outside := [name for name in names if not is_plain_name(name)]:
        raise CheckpointError(
            f"{index} is refused: it names {', '.join(map(repr, outside))}, not plain files in the same folder"
        )
    with explain_errors(f"read what {index.name} lists", index.parent):
        missing = [name for name in names if not (index.parent / name).exists()]
    if missing:
        raise CheckpointError(f"{index.parent} is incomplete: {', '.join(missing)} is missing")
    return [index.parent / name for name in names]


def _weight_map(index: Path) -> dict[str, str]:
    said = parse_json(read_file(index.parent, index.name, JSON_LIMIT), index)
    found = said.get("weight_map") if isinstance(said, dict) else None
    if not isinstance(found, dict) or not all(isinstance(file, str) for file in found.values()):
        raise CheckpointError(f"{index} is damaged: it should have a weight_map from names to files")
    return found


def _read_headers(file: Path) -> dict[str, WeightEntry]:
    with _open(file) as weights:
        slices = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118  it is no mapping
        return {name: WeightEntry(file, tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}


def _open(file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    place = file_in(file.parent, file.name)
    check_header(place)
    with explain_errors(f"read {file.name}", file.parent):
        try:
            return safe_open(place, framework="pt")
        except (SafetensorError, OSError, ValueError, MemoryError, RuntimeError) as error:
            said = str(error).partition("\n")[0]
            if number := _find_number(error, said):
                raise OSError(number, os.strerror(number), str(file)) from None
            if type(error) is RuntimeError:
                raise
            raise CheckpointError(f"{file} is damaged: it is not a valid safetensors file ({said})") from None


def _find_number(error: Exception, said: str) -> int | None:
    """The number of the system's error, which torch tells in words: unable to open file … Too many open files (24)."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"^unable to .+ \((\d+)\)$", said)
    return int(found[1]) if found else None


def _read_pickles(files: list[Path], trust: bool) -> StoredWeights:
    from regard.conversion.pickle_weights import read

    places = [file_in(file.parent, file.name) for file in files]
    memory = {name: tensor for place in places for name, tensor in read(place, trust).items()}
    words = {"torch.float64": "F64", "torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16"}
    file = files[0]
    entries = {
        name: WeightEntry(file, tuple(tensor.shape), words.get(str(tensor.dtype), str(tensor.dtype)))
        for name, tensor in memory.items()
    }
    return StoredWeights(entries, memory)
