"""The native library through ctypes.

The library is found where the wheel or `make` put it. It is never compiled here; `find_fault` says what is missing.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import lru_cache
from itertools import accumulate, chain
from mmap import mmap
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from regard.engine.compile_library import LIBRARY
from regard.engine.native_call import StopFlags, Turns
from regard.errors import RegardError

if TYPE_CHECKING:  # starting without numpy is faster
    import numpy as np
    from numpy.typing import NDArray

ABI = 7
ERROR = 512
"""Bytes of an error message."""


FoundHypothesis = tuple[tuple[int, ...], float, float]
"""Tokens, log-probability and score."""


class TokenRows(ctypes.Structure):
    """Token ids behind one another."""

    _fields_ = (("count", c_int64), ("ids", POINTER(c_int32)), ("starts", POINTER(c_int64)))

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> TokenRows:
        """Rows of token ids; the structure keeps the arrays alive."""
        return cls.join(array("i", chain.from_iterable(rows)), array("q", accumulate(map(len, rows), initial=0)))

    @classmethod
    def join(cls, ids: array[int], starts: array[int]) -> TokenRows:
        """Rows that lie behind one another already."""
        out = cls(len(starts) - 1, _point(ids, c_int32), _point(starts, c_int64))
        out.arrays = (ids, starts)
        return out


def _point(numbers: array[Any], kind: type[Any]) -> Any:
    """A pointer to the numbers of an array, which must live as long as it is used."""
    return ctypes.cast(numbers.buffer_info()[0], POINTER(kind))


def _address(data: bytes | mmap) -> object:
    """Return the address of bytes as ctypes takes it; of a map, which must be a private one, it is a number."""
    return data if isinstance(data, bytes) else ctypes.addressof(c_char.from_buffer(data))


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
        ("sequences", POINTER(c_int64)),
        ("written", POINTER(c_int32)),
    )

    def read(self) -> list[list[FoundHypothesis] | None]:
        """(tokens, log-probability, score) of the hypotheses of each row, best first; None: it has none yet."""
        outputs = self.outputs[: self.count]
        count = sum(n for n in outputs if n > 0)
        lengths, log_probs, scores = self.lengths[:count], self.log_probs[:count], self.scores[:count]
        tokens, at, used = self.tokens[: sum(lengths)], 0, 0
        rows: list[list[FoundHypothesis] | None] = []
        for n in outputs:
            row: list[FoundHypothesis] = []
            for i in range(used, used + max(n, 0)):
                row.append((tuple(tokens[at : at + lengths[i]]), log_probs[i], scores[i]))
                at += lengths[i]
            used += max(n, 0)
            rows.append(None if n < 0 else row)
        return rows


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
    texts, stop = POINTER(TokenRows), POINTER(StopFlags)
    library.regard_kernels.argtypes, library.regard_kernels.restype = [c_int, POINTER(c_int)], c_char_p
    library.regard_load.argtypes = [
        POINTER(c_double), c_int64, c_void_p, c_int64, c_int, c_int, c_int, c_char_p, *error,
    ]  # fmt: skip
    library.regard_load.restype = c_void_p
    library.regard_free_model.argtypes, library.regard_free_model.restype = [c_void_p], None
    library.regard_restart.argtypes, library.regard_restart.restype = [c_void_p], None
    library.regard_model_bytes.argtypes, library.regard_model_bytes.restype = [c_void_p], c_int64
    library.regard_model_kernels.argtypes, library.regard_model_kernels.restype = [c_void_p], c_char_p
    library.regard_decode.argtypes = [
        c_void_p, texts, texts, POINTER(c_int64), POINTER(c_int64), POINTER(c_int32), c_int64, POINTER(SearchSettings),
        stop, *error,
    ]  # fmt: skip
    library.regard_decode.restype = POINTER(FoundRows)
    library.regard_set_shortlist.argtypes, library.regard_set_shortlist.restype = (
        [c_void_p, texts, texts, *error],
        c_int,
    )
    library.regard_open_batch.argtypes, library.regard_open_batch.restype = [c_void_p, *error], c_void_p
    library.regard_add.argtypes = [
        c_void_p, texts, texts, c_int64, c_int64, POINTER(c_int32), c_int64, POINTER(SearchSettings), *error,
    ]  # fmt: skip
    library.regard_add.restype = c_int64
    library.regard_remove.argtypes, library.regard_remove.restype = [c_void_p, c_int64], c_int
    library.regard_step.argtypes, library.regard_step.restype = [c_void_p, stop, *error], POINTER(FoundRows)
    library.regard_batch_size.argtypes, library.regard_batch_size.restype = [c_void_p], c_int64
    library.regard_batch_tokens.argtypes, library.regard_batch_tokens.restype = [c_void_p], c_int64
    library.regard_batch_bytes.argtypes, library.regard_batch_bytes.restype = [c_void_p], c_int64
    library.regard_close_batch.argtypes, library.regard_close_batch.restype = [c_void_p], None
    library.regard_score.argtypes = [c_void_p, texts, texts, c_int64, stop, *error]
    library.regard_score.restype = POINTER(FoundRows)
    library.regard_encode.argtypes = [c_void_p, texts, POINTER(c_float), c_int64, stop, *error]
    library.regard_encode.restype = c_int64
    library.regard_has_nan.argtypes, library.regard_has_nan.restype = (
        [c_void_p, c_int64, c_int64, c_int64, c_int],
        c_int,
    )
    library.regard_free_found.argtypes, library.regard_free_found.restype = [POINTER(FoundRows)], None
    return library


def find_fault() -> str | None:
    """Return why the library cannot be used; None if it can."""
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


def has_nan(data: bytes | mmap, start: int, count: int, dtype: int) -> bool:
    """True if some of the floating-point numbers that begin at byte `start` are not numbers; `dtype` as in a plan."""
    return bool(open_library().regard_has_nan(_address(data), len(data), start, count, dtype))


class Message:
    """Room for the line that a refused call writes."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(ERROR)

    @property
    def room(self) -> tuple[ctypes.Array[c_char], int]:
        return self._buffer, ERROR

    @property
    def text(self) -> str:
        return self._buffer.value.decode(errors="replace")


class NativeSequences:
    """A batch in the library: sequences join and leave between steps, from any thread."""

    def __init__(self, library: ctypes.CDLL, model: int, owner: NativeModel) -> None:
        self._library, self._owner, said = library, owner, Message()  # the model must live as long as its batch
        self._batch = library.regard_open_batch(model, *said.room)
        if not self._batch:
            raise NativeError(said.text)

    def add(
        self,
        source: Sequence[int],
        prefix: Sequence[int],
        limit: int,
        number: int,
        banned: Sequence[int],
        search: SearchSettings,
    ) -> int:
        """The number of a new sequence."""
        said, never = Message(), array("i", banned)
        made = self._library.regard_add(
            self._batch, TokenRows.of([source]), TokenRows.of([prefix] if prefix else []), limit, number,
            _point(never, c_int32), len(never), search, *said.room,
        )  # fmt: skip
        if made < 0:
            raise NativeError(said.text)
        return int(made)

    def remove(self, sequence: int) -> bool:
        """Remove a sequence; False if there is none of this number."""
        return bool(self._library.regard_remove(self._batch, sequence)) if sequence >= 0 else False

    def clear(self) -> None:
        """Remove all sequences."""
        self._library.regard_remove(self._batch, -1)

    def step(self) -> list[tuple[int, int, list[FoundHypothesis] | None]]:
        """(sequence, token or -1, hypotheses once it is over) of each sequence that the step was taken with.

        After a step that was stopped the batch goes on, and the next step returns what that one did.
        """
        said = Message()

        def take(flags: StopFlags) -> list[tuple[int, int, list[FoundHypothesis] | None]]:
            found = self._library.regard_step(self._batch, flags, *said.room)
            if not found:
                raise NativeError(said.text)
            try:
                result = found.contents
                return [
                    *zip(result.sequences[: result.count], result.written[: result.count], result.read(), strict=True)
                ]
            finally:
                self._library.regard_free_found(found)

        tokens = int(self._library.regard_batch_tokens(self._batch))
        return self._owner.turns.run(take, tokens * self._owner.packed_bytes)

    def __len__(self) -> int:
        return int(self._library.regard_batch_size(self._batch))

    @property
    def cache_bytes(self) -> int:
        """Bytes of the key-value cache, also of memory that is kept for later tokens."""
        return int(self._library.regard_batch_bytes(self._batch))

    def __del__(self) -> None:
        if batch := getattr(self, "_batch", None):
            self._library.regard_close_batch(batch)


class NativeModel:
    """A model in the library: token ids in, token ids out."""

    def __init__(
        self,
        plan: array[float],
        weights: bytes | mmap,
        *,
        precision: int = 0,
        threads: int = 1,
        kernels: str = "auto",
    ) -> None:
        self._library, said = open_library(), Message()
        self.turns = Turns()
        self._weights = weights  # the library reads from here while the model lives
        self._model = self._library.regard_load(
            _point(plan, c_double), len(plan), _address(weights), len(weights), isinstance(weights, mmap), precision, threads,
            kernels.encode(), *said.room,
        )  # fmt: skip
        if not self._model:
            raise NativeError(said.text)
        _OPEN.add(self)

    def set_shortlist(self, candidates: TokenRows, always: TokenRows) -> None:
        """Limit outputs to the candidates of their source tokens, and to what any output may contain."""
        said = Message()
        if not self._library.regard_set_shortlist(self._model, candidates, always, *said.room):
            raise NativeError(said.text)

    def decode(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        limits: Sequence[int],
        numbers: Sequence[int],
        banned: Sequence[int],
        search: SearchSettings,
    ) -> list[list[FoundHypothesis]]:
        """(tokens, log-probability, score) of the hypotheses of each source, best first."""
        texts, begun, said = TokenRows.of(sources), TokenRows.of(prefixes), Message()
        most, drawn, never = array("q", limits), array("q", numbers), array("i", banned)

        def decode(flags: StopFlags) -> list[list[FoundHypothesis]]:
            found = self._library.regard_decode(
                self._model, texts, begun, _point(most, c_int64), _point(drawn, c_int64), _point(never, c_int32), len(never),
                search, flags, *said.room,
            )  # fmt: skip
            if not found:
                raise NativeError(said.text)
            try:
                return [row or [] for row in found.contents.read()]
            finally:
                self._library.regard_free_found(found)

        tokens = sum(map(len, sources)) + sum(limits) * search.beam
        return self.turns.run(decode, tokens * self.packed_bytes)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], bos: int) -> list[list[float]]:
        """The log-probability of each token of each target."""
        given, wanted, said = TokenRows.of(sources), TokenRows.of(targets), Message()

        def score(flags: StopFlags) -> list[list[float]]:
            found = self._library.regard_score(self._model, given, wanted, bos, flags, *said.room)
            if not found:
                raise NativeError(said.text)
            try:
                result = found.contents
                lengths = result.lengths[: result.count]
                ends = accumulate(lengths)
                return [result.log_probs[end - n : end] for n, end in zip(lengths, ends, strict=True)]
            finally:
                self._library.regard_free_found(found)

        return self.turns.run(score, sum(map(len, (*sources, *targets))) * self.packed_bytes)

    def encode(self, sources: Sequence[Sequence[int]], width: int) -> list[NDArray[np.float32]]:
        """The encoder's output for each source, (n, width)."""
        import numpy as np

        rows, said = TokenRows.of(sources), Message()
        ends = np.cumsum([len(source) for source in sources])
        out = np.empty((int(ends[-1]) if len(ends) else 0, width), np.float32)

        def encode(flags: StopFlags) -> None:
            to = out.ctypes.data_as(POINTER(c_float))
            if self._library.regard_encode(self._model, rows, to, out.size, flags, *said.room) < 0:
                raise NativeError(said.text)

        self.turns.run(encode, len(out) * self.packed_bytes)
        return np.split(out, ends[:-1]) if len(ends) else []

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed weights."""
        return int(self._library.regard_model_bytes(self._model))

    @property
    def kernels(self) -> str:
        """The name of the kernels that run it."""
        return str(self._library.regard_model_kernels(self._model).decode())

    def open_batch(self) -> NativeSequences:
        """A batch that sequences join and leave."""
        return NativeSequences(self._library, self._model, self)

    def restart(self) -> None:
        """Take new threads and locks, in a child process after a fork, which has none of the parent's threads."""
        self._library.regard_restart(self._model)
        self.turns = Turns()

    def __del__(self) -> None:
        if model := getattr(self, "_model", None):
            self._library.regard_free_model(model)


_OPEN: WeakSet[NativeModel] = WeakSet()


def _restart_models() -> None:
    for model in list(_OPEN):
        model.restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_models)
