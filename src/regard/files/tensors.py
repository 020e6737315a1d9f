"""Tensors as bytes: safetensors, never a pickle."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import CheckpointError
from regard.files.storage import DISK, Storage, explain_errors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

HEADER_LIMIT = 5_000_000
"""Maximum bytes of a safetensors header: enough for fifty thousand tensors."""
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
PICKLE = "loading a pickle can execute arbitrary code; convert it to safetensors where you trust it"


ALIGNMENT = 64
"""Bytes of a cache line, on which the numbers of a file begin."""


def pack(tensors: Mapping[str, Tensor], *, ordered: int = 0) -> bytes:
    """Pack tensors as a safetensors file. A tensor with several names is written once; `unpack` ties it again.

    The file is the one that the library would write, which needs three times the memory. It sorts the tensors; with `ordered`,
    the first so many come first, in their order, and the numbers begin on a cache line.
    """
    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[tuple[object, ...], str] = {}
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and first.setdefault(same, name) != name:
            tied[name] = first[same]
        else:
            stored[name] = tensor.detach().cpu().contiguous()
    types = {name: TYPES.get(str(tensor.dtype).removeprefix("torch."), "") for name, tensor in stored.items()}
    if other := [name for name, kind in types.items() if not kind]:
        raise CheckpointError(f"{other[0]} cannot be stored: its numbers are of {stored[other[0]].dtype}")
    front = [name for name in list(tensors)[:ordered] if name in stored]
    order = [*front, *sorted(stored.keys() - {*front}, key=lambda name: (-ORDER.index(types[name]), name))]
    header: dict[str, object] = {"__metadata__": {"tied": json.dumps(tied)}} if tied else {}
    at = 0
    for name in order:
        end = at + stored[name].numel() * SIZES[types[name]]
        header[name] = {"dtype": types[name], "shape": [*stored[name].shape], "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT if ordered else -len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(_view_bytes(stored[name]) for name in order)])


def _view_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, which are not copied."""
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy().data


def unpack(data: bytes, path: Path) -> dict[str, Tensor]:
    """Unpack the tensors of a safetensors file; `path` is used in errors."""
    from pydantic import TypeAdapter
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors: dict[str, Tensor] = load(data)  # checks the header against the size before allocating
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
        raise CheckpointError(f"{path} is damaged: it is not a valid safetensors file ({said})") from None


SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
"""Bytes of an element by its type in a safetensors header."""
ORDER = ("BOOL", "U8", "I8", "I16", "F16", "BF16", "I32", "F32", "F64", "I64")
"""The types as the library sorts them, the last one first."""
TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16",
    "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""The names of torch's types in a safetensors file."""
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Numpy's types of floating-point numbers."""


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """Place of a tensor in a safetensors file: its type, its shape, and its first byte."""

    dtype: str
    shape: tuple[int, ...]
    start: int


def list_tensors(data: bytes | mmap, path: Path) -> dict[str, TensorEntry]:
    """The tensors of a safetensors file by name, without loading any; tied names share an entry. Needs no torch."""
    try:
        length = int.from_bytes(data[:8], "little")
        if not 0 < length <= min(HEADER_LIMIT, len(data) - 8):
            raise ValueError(f"its header would have {length} of {len(data)} bytes")
        header = json.loads(bytes(data[8 : 8 + length]))
        tied = json.loads((header.pop("__metadata__", None) or {}).get("tied", "{}"))
        out, places = {}, list[tuple[int, int]]()
        for name, entry in header.items():
            shape, (start, end) = tuple(map(int, entry["shape"])), map(int, entry["data_offsets"])
            if min((*shape, start), default=0) < 0 or end - start != math.prod(shape) * SIZES[entry["dtype"]]:
                raise ValueError(f"{name} does not have the size of its shape")
            if 8 + length + end > len(data):
                raise ValueError(f"{name} lies beyond the end")
            out[name] = TensorEntry(entry["dtype"], shape, 8 + length + start)
            places.append((start, end))
        places.sort()
        if [start for start, _ in places] + [len(data) - 8 - length] != [0] + [end for _, end in places]:
            raise ValueError("its tensors do not lie behind one another, from the header to the end of the file")
        return {**out, **{name: out[other] for name, other in tied.items()}}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: it is not a valid safetensors file ({error})") from None


def read_floats(data: bytes | mmap, entry: TensorEntry) -> NDArray[np.float32]:
    """A tensor of a safetensors file as float32; its entry comes from `list_tensors`. Needs no torch."""
    import numpy as np

    if entry.dtype not in FLOATS:
        raise CheckpointError(f"a weight should be floating point, is {entry.dtype}")
    values = np.frombuffer(data, FLOATS[entry.dtype], math.prod(entry.shape), entry.start)
    if entry.dtype == "BF16":  # the upper half of a float32
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32).reshape(entry.shape)


def read_tensors(path: Path | str) -> dict[str, Tensor]:
    """Read the tensors of one safetensors file."""
    path = Path(path)
    if path.suffix in PICKLES:
        raise CheckpointError(f"{path} is refused: {PICKLE}")
    with explain_errors(f"read {path.name}", path.parent):
        return unpack(DISK.read(path.resolve(), sys.maxsize), path)


def check_header(path: Path) -> None:
    """Check the length in the first bytes of a safetensors file, before a library allocates memory for its header."""
    with explain_errors(f"read {path.name}", path.parent):
        if fault := find_header_fault(path, path.stat().st_size, DISK):
            raise CheckpointError(f"{path} is damaged: it is {fault}")


def find_header_fault(path: Path, size: int, storage: Storage) -> str | None:
    """Check the header length in the first bytes of a safetensors file; returns what is wrong with it, or None."""
    start = storage.read(path, 8)
    length = int.from_bytes(start, "little")
    if len(start) == 8 and (length > HEADER_LIMIT or not 0 < length <= size - 8):
        return f"not a valid safetensors file (its header would have {length} of {size} bytes)"
    return None
