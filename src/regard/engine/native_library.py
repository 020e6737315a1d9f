"""The native library through ctypes.

The library is found where the wheel or `make` put it. It is never compiled here; `find_fault` says what is missing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from regard.engine.compile_library import LIBRARY
from regard.errors import RegardError

ABI = 1
ERROR = 512
"""Bytes of an error message."""


class TokenRows(ctypes.Structure):
    """Token ids behind one another."""

    _fields_ = (("count", c_int64), ("ids", POINTER(c_int32)), ("starts", POINTER(c_int64)))

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> TokenRows:
        """Rows of token ids; the structure keeps the arrays alive."""
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        ids = np.fromiter((i for row in rows for i in row), dtype=np.int32, count=int(starts[-1]))
        out = cls(len(rows), ids.ctypes.data_as(POINTER(c_int32)), starts.ctypes.data_as(POINTER(c_int64)))
        out.arrays = (ids, starts)
        return out


class SearchSettings(ctypes.Structure):
    """`regard_search` of the C interface."""

    _fields_ = (
        *((name, c_int64) for name in ("beam", "n_best", "penalty", "sample", "top_k", "first_step")),
        *((name, c_int64) for name in ("repetition_guard", "bos", "eos")),
        ("seed", c_uint64),
        *((name, c_double) for name in ("alpha", "temperature", "top_p", "min_p")),
    )


class FoundRows(ctypes.Structure):
    """`regard_found` of the C interface."""

    _fields_ = (
        ("count", c_int64),
        ("outputs", POINTER(c_int64)),
        ("lengths", POINTER(c_int64)),
        ("tokens", POINTER(c_int32)),
        ("log_probs", POINTER(c_double)),
        ("scores", POINTER(c_double)),
    )


class NativeError(RegardError):
    """The native engine refused a plan, weights or a request."""


@lru_cache(maxsize=1)
def open_library() -> ctypes.CDLL:
    """Open the library, once; raises OSError if it is not there or of another version."""
    library = ctypes.CDLL(str(LIBRARY))
    library.regard_abi.restype = c_int
    if library.regard_abi() != ABI:
        raise OSError(f"{LIBRARY.name} has another version; run `regard doctor --build`")
    error = (POINTER(c_char), c_int64)
    texts = POINTER(TokenRows)
    library.regard_kernels.argtypes, library.regard_kernels.restype = [c_int, POINTER(c_int)], c_char_p
    library.regard_load.argtypes = [
        POINTER(c_double), c_int64, c_void_p, c_int64, c_int, c_int, c_char_p, *error,
    ]  # fmt: skip
    library.regard_load.restype = c_void_p
    library.regard_free_model.argtypes, library.regard_free_model.restype = [c_void_p], None
    library.regard_model_bytes.argtypes, library.regard_model_bytes.restype = [c_void_p], c_int64
    library.regard_model_kernels.argtypes, library.regard_model_kernels.restype = [c_void_p], c_char_p
    library.regard_decode.argtypes = [
        c_void_p, texts, texts, POINTER(c_int64), POINTER(c_int64), POINTER(c_int32), c_int64, POINTER(SearchSettings),
        *error,
    ]  # fmt: skip
    library.regard_decode.restype = POINTER(FoundRows)
    library.regard_score.argtypes = [c_void_p, texts, texts, c_int64, *error]
    library.regard_score.restype = POINTER(FoundRows)
    library.regard_encode.argtypes = [c_void_p, POINTER(c_int32), c_int64, POINTER(c_float), c_int64, *error]
    library.regard_encode.restype = c_int64
    library.regard_free_found.argtypes, library.regard_free_found.restype = [POINTER(FoundRows)], None
    return library


def find_fault() -> str | None:
    """Why the library cannot be used; None if it can."""
    if not LIBRARY.exists():
        return "the native library is not compiled; `regard doctor --build` compiles it"
    try:
        open_library()
    except OSError as error:
        return f"the native library cannot be opened: {error}"
    return None


def list_kernels() -> dict[str, bool]:
    """The kernels in the library, best first, and whether this processor runs them."""
    library, out, supported = open_library(), dict[str, bool](), c_int()
    while name := library.regard_kernels(len(out), ctypes.byref(supported)):
        out[name.decode()] = bool(supported.value)
    return out


class NativeModel:
    """A model in the library: token ids in, token ids out."""

    def __init__(
        self,
        plan: NDArray[np.float64],
        weights: memoryview | bytes,
        *,
        int8: bool = False,
        threads: int = 1,
        kernels: str = "auto",
    ) -> None:
        self._library, self._error = open_library(), ctypes.create_string_buffer(ERROR)
        self._weights = np.frombuffer(weights, dtype=np.uint8)  # the embedding is read from here while the model lives
        self._model = self._library.regard_load(
            plan.ctypes.data_as(POINTER(c_double)), len(plan), self._weights.ctypes.data, len(self._weights), int(int8),
            threads, kernels.encode(), self._error, ERROR,
        )  # fmt: skip
        if not self._model:
            raise NativeError(self._said())

    def decode(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        limits: Sequence[int],
        numbers: Sequence[int],
        banned: Sequence[int],
        search: SearchSettings,
    ) -> list[list[tuple[tuple[int, ...], float, float]]]:
        """(tokens, log-probability, score) of the hypotheses of each source, best first."""
        texts, begun = TokenRows.of(sources), TokenRows.of(prefixes)
        most, drawn, never = np.array(limits, np.int64), np.array(numbers, np.int64), np.array(banned, np.int32)
        found = self._library.regard_decode(
            self._model, texts, begun, most.ctypes.data_as(POINTER(c_int64)), drawn.ctypes.data_as(POINTER(c_int64)),
            never.ctypes.data_as(POINTER(c_int32)), len(banned), search, self._error, ERROR,
        )  # fmt: skip
        if not found:
            raise NativeError(self._said())
        try:
            result = found.contents
            outputs = result.outputs[: result.count]
            count = sum(outputs)
            lengths, log_probs, scores = result.lengths[:count], result.log_probs[:count], result.scores[:count]
            tokens, at, used = result.tokens[: sum(lengths)], 0, 0
            rows = []
            for n in outputs:
                row = []
                for i in range(used, used + n):
                    row.append((tuple(tokens[at : at + lengths[i]]), log_probs[i], scores[i]))
                    at += lengths[i]
                used += n
                rows.append(row)
            return rows
        finally:
            self._library.regard_free_found(found)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], bos: int) -> list[list[float]]:
        """The log-probability of each token of each target."""
        found = self._library.regard_score(
            self._model, TokenRows.of(sources), TokenRows.of(targets), bos, self._error, ERROR
        )
        if not found:
            raise NativeError(self._said())
        try:
            result = found.contents
            lengths = result.lengths[: result.count]
            ends = np.cumsum(lengths).tolist()
            return [result.log_probs[end - n : end] for n, end in zip(lengths, ends, strict=True)]
        finally:
            self._library.regard_free_found(found)

    def encode(self, source: Sequence[int], width: int) -> NDArray[np.float32]:
        """The encoder's output for a source, (n, width)."""
        ids, out = np.array(source, np.int32), np.empty((len(source), width), np.float32)
        wrote = self._library.regard_encode(
            self._model, ids.ctypes.data_as(POINTER(c_int32)), len(ids), out.ctypes.data_as(POINTER(c_float)), out.size,
            self._error, ERROR,
        )  # fmt: skip
        if wrote < 0:
            raise NativeError(self._said())
        return out

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed weights."""
        return int(self._library.regard_model_bytes(self._model))

    @property
    def kernels(self) -> str:
        """The name of the kernels that run it."""
        return str(self._library.regard_model_kernels(self._model).decode())

    def _said(self) -> str:
        return self._error.value.decode(errors="replace")

    def __del__(self) -> None:
        if model := getattr(self, "_model", None):
            self._library.regard_free_model(model)
