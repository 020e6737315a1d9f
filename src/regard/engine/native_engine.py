"""The native engine: whole sentences in one call, no torch.

It runs a plan and the weights beside it with the library in `native/`: in float32, with int8 weights, or with blocks of 4 and 8
bits (`int4`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, get_args

from regard.decode.decode_request import Hypothesis, Request, SpecialTokens, check_feasible, check_numbers, limit_output
from regard.decode.engine import SequenceProgress
from regard.engine.engine_plan import DTYPES, SCALE, flatten_plan
from regard.engine.native_library import NativeModel, SearchSettings, TokenRows, find_fault, has_nan
from regard.engine.shortlist import Shortlist
from regard.errors import SpecError
from regard.files.folder import WEIGHTS
from regard.files.tensors import list_tensors
from regard.machine import machine
from regard.spec import Plain
from regard.stopping import rest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.model.net import Net

Precision = Literal["float32", "int8", "int4"]
PRECISIONS = get_args(Precision)
PENALTIES = ("gnmt", "power", "none")
WORD = (1 << 64) - 1
ROOM = 1 << 40
FLOATS = ("F32", "F16", "BF16")
SCORE_TOKENS = 1024
"""Tokens of the pairs that are scored in one call, if they are several."""


def read_settings(request: Request) -> SearchSettings:
    """The search as the library reads it."""
    search, special, draw = request.search, request.special, request.draw
    return SearchSettings(
        beam=request.rows, n_best=search.n_best, penalty=PENALTIES.index(search.length_penalty),
        sample=search.sample, top_k=search.top_k, first_step=draw.first_step, repetition_guard=search.repetition_guard,
        bos=special.bos, eos=special.eos, seed=search.seed & WORD, alpha=search.alpha, temperature=search.temperature,
        top_p=search.top_p, min_p=search.min_p,
    )  # fmt: skip


class NativeBatch:
    """A `ContinuousBatch` that the library decodes together."""

    def __init__(self, engine: NativeEngine) -> None:
        self._engine, self._sequences = engine, engine.model.open_batch()

    def add(self, request: Request) -> int:
        if refusal := self._engine.find_refusal(request):
            raise SpecError(f"engine native: {refusal}")
        (limit,) = self._engine.limit_outputs(request)
        prefix = request.constraints.prefixes[0] if request.constraints.prefixes else []
        banned = self._engine.list_banned(request)
        return self._sequences.add(
            request.sources[0], prefix, limit, request.numbers[0], banned, read_settings(request)
        )

    def remove(self, sequence: int) -> bool:
        return self._sequences.remove(sequence)

    def step(self) -> list[SequenceProgress]:
        return [
            SequenceProgress(
                number,
                None if token < 0 else token,
                None if found is None else check_numbers([Hypothesis(*h) for h in found]),
            )
            for number, token, found in self._sequences.step()
        ]

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the key-value cache, also of memory that is kept for later tokens."""
        return self._sequences.cache_bytes

    def close(self) -> None:
        """Let every sequence leave; the memory goes with the last reference."""
        self._sequences.clear()


class NativeEngine:
    """A model that the native library runs."""

    name = "native"

    def __init__(self, plan: Plain, model: NativeModel) -> None:
        self.plan, self.model = plan, model

    @classmethod
    def open(
        cls,
        plan: Plain,
        weights: bytes | mmap,
        path: Path = Path(WEIGHTS),
        *,
        precision: Precision = "float32",
        threads: int | None = None,
        kernels: str = "auto",
    ) -> Self:
        """Load a plan with the bytes of its weights file; refuses whatever does not fit."""
        if fault := find_fault():
            raise SpecError(fault)
        flat = flatten_plan(plan, list_tensors(weights, path))
        count = machine().cores if threads is None else threads
        model = NativeModel(flat, weights, precision=PRECISIONS.index(precision), threads=count, kernels=kernels)
        return cls(plan, model)

    def use_shortlist(self, shortlist: Shortlist) -> None:
        """Write only what is on the shortlist of a source."""
        self.model.set_shortlist(TokenRows.join(shortlist.ids, shortlist.starts), TokenRows.of([shortlist.always]))

    @property
    def length(self) -> int:
        return int(self.plan["length"])

    @property
    def room(self) -> int | None:
        room = self.plan["room"]
        return None if room is None else int(room)

    @property
    def has_encoder(self) -> bool:
        return self.plan["encoder"] is not None

    @property
    def nets(self) -> Sequence[Net]:
        raise SpecError("a model that was opened without torch has no torch modules; open it with regard.load")

    def find_refusal(self, request: Request) -> str | None:
        if request.has_terms:
            return "terms that outputs must include are searched for by torch"
        if request.constraints.has_gaps:
            return "prefixes with free places are continued by torch"
        return None

    def encode(self, source: Sequence[int]) -> NDArray[np.float32]:
        return self.encode_all([source])[0]

    def encode_all(self, sources: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """The encoder's output for each source, (n, d)."""
        return self.model.encode(sources, int(self.plan["width"]))

    def decode(self, request: Request) -> list[list[Hypothesis]]:
        if not request.sources:
            return []
        limits = self.limit_outputs(request)
        found = self.model.decode(
            request.sources, request.constraints.prefixes or [], limits, list(request.numbers),
            self.list_banned(request), read_settings(request),
        )  # fmt: skip
        return [check_numbers([Hypothesis(*each) for each in row]) for row in found]

    def open_batch(self) -> NativeBatch:
        return NativeBatch(self)

    def limit_outputs(self, request: Request) -> list[int]:
        """The maximum number of tokens of each output; refuses what does not fit."""
        special, constraints, capacity = request.special, request.constraints, ROOM if self.room is None else self.room
        limits = [limit_output(request.search, len(source), self.has_encoder, capacity) for source in request.sources]
        never = {special.bos, special.pad, special.eos, *constraints.banned}
        check_feasible(None, constraints.prefixes, limits, never=never)
        return limits

    def list_banned(self, request: Request) -> list[int]:
        """The tokens that are never written."""
        vocab, special = int(self.plan["vocab"]), request.special
        banned = special.list_unwritten(vocab) | ({*request.constraints.banned} - {special.eos})
        return sorted(i for i in banned if 0 <= i < vocab)

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens
    ) -> list[list[float]]:
        found = list[list[float]]()
        lengths = [len(source) + len(target) for source, target in zip(sources, targets, strict=True)]
        for some in split_by_tokens(
            lengths, SCORE_TOKENS
        ):  # the library reads one pair after the other, whatever is beside it
            rest()
            found += self.model.score(sources[some], targets[some], special.bos)
        return found


def split_by_tokens(lengths: Sequence[int], tokens: int) -> Iterator[slice]:
    """Consecutive items that have at most so many tokens together, or one that has more."""
    start = total = 0
    for i, length in enumerate(lengths):
        if i > start and total + length > tokens:
            yield slice(start, i)
            start, total = i, 0
        total += length
    if lengths:
        yield slice(start, len(lengths))


def stored_precision(weights: bytes | mmap, path: Path) -> Precision:
    """The precision of a weights file: int4 if some of its matrices are in blocks, int8 if some are in whole rows."""
    tensors = list_tensors(weights, path)
    if any(entry.dtype == "U8" and len(entry.shape) == 3 for entry in tensors.values()):
        return "int4"
    blocks = (name for name, entry in tensors.items() if entry.dtype in ("I8", "U8"))
    shapes = [tensors[name + SCALE].shape for name in blocks if name + SCALE in tensors]
    return "float32" if not shapes else "int4" if any(len(shape) == 2 for shape in shapes) else "int8"


def find_nan(weights: bytes | mmap, path: Path) -> list[str]:
    """Describe the tensors of a weights file that have values that are not numbers."""
    return [
        f"{name} has values that are not numbers (NaN)"
        for name, entry in list_tensors(weights, path).items()
        if entry.dtype in FLOATS and has_nan(weights, entry.start, math.prod(entry.shape), DTYPES[entry.dtype])
    ]


def has_float64(weights: bytes | mmap, path: Path) -> bool:
    """True if a weights file has numbers that the engine does not read; torch makes float32 of them."""
    return any(entry.dtype == "F64" for entry in list_tensors(weights, path).values())


_DIGITS = 4  # of a number of threads; longer ones are a mistake, which OpenMP ignores, too


def read_threads() -> int | None:
    """The number of threads that the user set for all libraries; None: all cores."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) or None if given.isascii() and given.isdigit() and len(given) <= _DIGITS else None
