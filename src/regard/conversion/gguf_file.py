"""The GGUF container: metadata and tensors.

    magic, version, counts │ key: value … │ tensor: name, shape, kind, place … │ the bytes of the tensors

The header is parsed here, not by the `gguf` package, because it cannot be trusted: every length is checked against the rest of
the file, and against fixed limits, before anything is allocated. Dequantization is left to the package.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engine.engine_plan import MINIMUM, SCALE
from regard.errors import CheckpointError, SpecError, name_extra
from regard.files.storage import explain_errors
from regard.files.user_file import open_user_file

KINDS = ("F32", "F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K")
"""Supported number formats, by their names in GGUF."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)
_DIMS = 4
_BLOCKS = 1 << 16  # dequantized at a time
HEADER, TEXT, ENTRIES = 64_000_000, 1_000_000, 4_000_000
"""Limits: bytes of a header, bytes of a text in it, entries of a list. The file size is no limit: a sparse file can be huge."""


@dataclass(frozen=True)
class GgufTensor:
    """Place and format of a tensor; its shape has the slowest dimension first, as in torch."""

    kind: str
    shape: tuple[int, ...]
    start: int
    size: int


class GgufFile:
    """A file with a valid header: `said` is its metadata, `tensors` what it stores."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_user_file(path, CheckpointError) as file, explain_errors(f"read {path.name}", path.parent):
            if not os.fstat(file.fileno()).st_size:
                raise CheckpointError(f"{path} is damaged: it is empty")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        cursor = _Cursor(self._data, path)
        if cursor.take(4) != b"GGUF":
            raise CheckpointError(f"{path} is not a GGUF file: it does not begin with 'GGUF'")
        version = cursor.number("I")
        if version not in _VERSIONS:
            raise CheckpointError(
                f"{path} has GGUF version {version}; only {_VERSIONS} in little-endian order are read"
            )
        tensors, pairs = cursor.count(least=24), cursor.count(least=13)
        self.said: dict[str, Any] = {}
        for _ in range(pairs):
            key = cursor.text()
            if key in self.said:
                raise cursor.damaged(f"it says {key!r} twice")
            self.said[key] = cursor.value(cursor.number("I"))
        self.tensors = self._table(cursor, tensors)

    def read(self, name: str) -> NDArray[np.float32]:
        """The numbers of a tensor, dequantized."""
        stored = self.tensors[name]
        quants, constants = _library()
        kind = constants.GGMLQuantizationType[stored.kind]
        block, bytes_a_block = constants.GGML_QUANT_SIZES[kind]
        raw = np.frombuffer(self._data, np.uint8, stored.size, stored.start).reshape(-1, bytes_a_block)
        out = np.empty((len(raw), block), np.float32)
        for i in range(0, len(raw), _BLOCKS):  # one long row at a time: the package is slow on many short ones
            some = raw[i : i + _BLOCKS]
            out[i : i + _BLOCKS] = quants.dequantize(some.reshape(1, -1), kind).reshape(len(some), block)
        return out.reshape(stored.shape)

    def read_blocks(self, name: str) -> dict[str, NDArray[Any]] | None:
        """A matrix in blocks of 32 as the native engine reads them: its numbers, scales and minima, by suffix.

        None: it is stored otherwise, or its scales have no exact equivalent.
        """
        stored = self.tensors[name]
        if stored.kind not in BLOCKS or len(stored.shape) != 2:
            return None
        raw = np.frombuffer(self._data, np.uint8, stored.size, stored.start)
        found = BLOCKS[stored.kind](raw)
        if not all(np.isfinite(part).all() for suffix, part in found.items() if suffix):
            return None
        return {suffix: part.reshape(stored.shape[0], -1) for suffix, part in found.items()}

    def _table(self, cursor: _Cursor, count: int) -> dict[str, GgufTensor]:
        found: dict[str, tuple[int, tuple[int, ...], int]] = {}
        for _ in range(count):
            name, dims = cursor.text(), cursor.number("I")
            if name in found or not 1 <= dims <= _DIMS:
                raise cursor.damaged(f"the tensor {name!r} comes twice or has {dims} dimensions")
            shape = tuple(cursor.number("Q") for _ in range(dims))[::-1]
            found[name] = cursor.number("I"), shape, cursor.number("Q")
        step = self.said.get("general.alignment", 32)
        if not isinstance(step, int) or not 1 <= step <= 1 << 20:
            raise cursor.damaged(f"it aligns tensors to {step!r} bytes")
        start = -(-cursor.at // step) * step
        return _stored(found, start, len(self._data), self.path)


def _stored(
    found: dict[str, tuple[int, tuple[int, ...], int]], start: int, end: int, path: Path
) -> dict[str, GgufTensor]:
    """The place of each tensor; all faults are in one error."""
    _, constants = _library()
    kinds = {kind.value: kind for kind in constants.GGMLQuantizationType}
    out, faults, total = dict[str, GgufTensor](), [], 0
    for name, (number, shape, offset) in found.items():
        kind = kinds.get(number)
        if kind is None or kind.name not in KINDS:
            faults.append(f"{name} is stored as {kind.name if kind else number}")
            continue
        block, bytes_a_block = constants.GGML_QUANT_SIZES[kind]
        size = math.prod(shape) // block * bytes_a_block
        if 0 in shape or shape[-1] % block:
            faults.append(f"{name} has the shape {shape}, which {kind.name} cannot store")
        elif start + offset + size > end or offset % 4:
            faults.append(f"{name} should lie at {start + offset} with {size} bytes; the file ends at {end}")
        out[name] = GgufTensor(kind.name, shape, start + offset, size)
        total += size
    if total > end:  # tensors that share bytes would take far more room than the file has
        faults.append(f"its tensors need {total} bytes, the file has {end}")
    if faults:
        raise CheckpointError(f"{path} cannot be read ({', '.join(KINDS)} can): {'; '.join(faults)}")
    return out


def _split_q8_0(raw: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Blocks of a scale and 32 bytes."""
    blocks = raw.reshape(-1, 34)
    return {"": blocks[:, 2:].copy().view(np.int8), SCALE: blocks[:, :2].copy().view("<f2")}


def _split_q4_0(raw: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Blocks of a scale and 32 numbers of 4 bits, from which 8 is subtracted."""
    blocks = raw.reshape(-1, 18)
    scale = blocks[:, :2].copy().view("<f2")
    with np.errstate(over="ignore"):
        return {"": blocks[:, 2:].copy(), SCALE: scale, MINIMUM: scale * np.float16(-8)}


def _split_q4_1(raw: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Blocks of a scale, a minimum and 32 numbers of 4 bits."""
    blocks = raw.reshape(-1, 20)
    return {
        "": blocks[:, 4:].copy(),
        SCALE: blocks[:, :2].copy().view("<f2"),
        MINIMUM: blocks[:, 2:4].copy().view("<f2"),
    }


def _split_q4_k(raw: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Eight blocks with a common scale and minimum, by which their own ones of 6 bits are multiplied."""
    blocks = raw.reshape(-1, 144)
    shared = blocks[:, :4].copy().view("<f2").astype(np.float32)
    s = blocks[:, 4:16]
    scale = np.concatenate([s[:, :4] & 63, (s[:, 8:] & 15) | (s[:, :4] >> 6 << 4)], 1)
    least = np.concatenate([s[:, 4:8] & 63, (s[:, 8:] >> 4) | (s[:, 4:8] >> 6 << 4)], 1)
    pairs = blocks[:, 16:].reshape(-1, 4, 32)  # byte i: number i of one block and, above, of the next
    numbers = np.stack([pairs & 15, pairs >> 4], 2)
    return {
        "": numbers[..., :16] | (numbers[..., 16:] << 4),
        SCALE: shared[:, :1] * scale,
        MINIMUM: -(shared[:, 1:] * least),
    }


BLOCKS = {"Q8_0": _split_q8_0, "Q4_0": _split_q4_0, "Q4_1": _split_q4_1, "Q4_K": _split_q4_k}
"""Functions that divide formats of 4 and 8 bits into numbers, scales and minima."""


class _Cursor:
    """Reads a header from front to back, never beyond its end."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path, self.at = data, path, 0
        self.end = min(len(data), HEADER)

    def take(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise self.damaged(f"{size} bytes should come at {self.at}, and {self._ends()}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def count(self, least: int) -> int:
        """The number of entries that follow, each of at least `least` bytes."""
        n = int(self.number("Q"))
        if n * least > self.end - self.at:
            raise self.damaged(f"{n} entries cannot follow at {self.at}, {self._ends()}")
        if n > ENTRIES:
            raise self.damaged(f"{n} entries follow at {self.at}; the limit is {ENTRIES}")
        return n

    def _ends(self) -> str:
        return f"it ends at {len(self.data)}" if self.end < HEADER else f"a header has at most {HEADER} bytes"

    def text(self) -> str:
        size = self.count(least=1)
        if size > TEXT:
            raise self.damaged(f"the text at {self.at} has {size} bytes; the limit is {TEXT}")
        data = self.take(size)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(f"no text at {self.at - len(data)} ({error})") from None

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            kind = self.number("I")
            if kind == _STRING:
                return [self.text() for _ in range(self.count(least=8))]
            form = self._form(kind)
            n = self.count(struct.calcsize(f"<{form}"))
            return list(struct.unpack(f"<{n}{form}", self.take(n * struct.calcsize(f"<{form}"))))
        return self.number(self._form(kind))

    def _form(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise self.damaged(f"no value is of kind {kind}, which stands at {self.at - 4}")
        return _SCALARS[kind]

    def damaged(self, why: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is damaged: {why}")


def _library() -> tuple[Any, Any]:
    """The `gguf` package: dequantization, and block sizes."""
    try:
        from gguf import constants, quants
    except ImportError:
        raise SpecError(f"reading GGUF files needs an extra: {name_extra('convert')}") from None
    return quants, constants
