"""The native engine: whole sentences in one call, no torch.

It runs a plan and the weights beside it with the library in `native/`, in float32 or with int8 weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from regard.decode.decode_request import Constraints, Draw, Hypothesis, SpecialTokens, check_feasible, limit_output
from regard.decode.search import Search
from regard.engine.engine_plan import flatten_plan
from regard.engine.fixed_batch import FixedBatch
from regard.engine.native_library import NativeModel, SearchSettings, find_fault
from regard.errors import SpecError
from regard.files.folder import WEIGHTS
from regard.files.tensors import list_tensors
from regard.machine import machine
from regard.spec import Plain

Precision = Literal["float32", "int8"]
PENALTIES = ("gnmt", "power", "none")
WORD = (1 << 64) - 1
ROOM = 1 << 40


class NativeEngine:
    """A model that the native library runs."""

    name = "native"

    def __init__(self, plan: Plain, model: NativeModel, current: Callable[[], bool] = lambda: True) -> None:
        self.plan, self.model, self._current = plan, model, current

    @classmethod
    def open(
        cls,
        plan: Plain,
        weights: bytes | memoryview,
        path: Path = Path(WEIGHTS),
        *,
        precision: Precision = "float32",
        threads: int | None = None,
        kernels: str = "auto",
        current: Callable[[], bool] = lambda: True,
    ) -> Self:
        """Load a plan with the bytes of its weights file; refuses whatever does not fit."""
        if fault := find_fault():
            raise SpecError(fault)
        flat = flatten_plan(plan, list_tensors(weights, path))
        count = machine().cores if threads is None else threads
        model = NativeModel(flat, weights, int8=precision == "int8", threads=count, kernels=kernels)
        return cls(plan, model, current)

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

    def is_current(self) -> bool:
        return self._current()

    def find_refusal(self, search: Search, constraints: Constraints) -> str | None:
        if constraints.must_include is not None and any(constraints.must_include):
            return "terms that outputs must include are searched for by torch"
        return None

    def encode(self, source: Sequence[int]) -> NDArray[np.float32]:
        return self.model.encode(source, int(self.plan["width"]))

    def decode(
        self,
        sources: Sequence[Sequence[int]],
        search: Search,
        special: SpecialTokens,
        *,
        constraints: Constraints = Constraints(),
        draw: Draw = Draw(),
    ) -> list[list[Hypothesis]]:
        constraints.check(len(sources))
        if not sources:
            return []
        capacity = ROOM if self.room is None else self.room
        limits = [limit_output(search, len(source), self.has_encoder, capacity) for source in sources]
        never = {special.bos, special.pad, special.eos, *constraints.banned}
        check_feasible(None, constraints.prefixes, limits, never=never)
        vocab = int(self.plan["vocab"])
        banned = sorted(({special.bos, special.pad, *constraints.banned} - {special.eos}) & {*range(vocab)})
        numbers = range(len(sources)) if draw.numbers is None else draw.numbers
        settings = SearchSettings(
            beam=1 if search.sample else search.beam, n_best=search.n_best,
            penalty=PENALTIES.index(search.length_penalty), sample=search.sample, top_k=search.top_k,
            first_step=draw.first_step, repetition_guard=search.repetition_guard, bos=special.bos, eos=special.eos,
            seed=search.seed & WORD, alpha=search.alpha, temperature=search.temperature, top_p=search.top_p,
            min_p=search.min_p,
        )  # fmt: skip
        found = self.model.decode(sources, constraints.prefixes or [], limits, list(numbers), banned, settings)
        return [[Hypothesis(*each) for each in row] for row in found]

    def open_batch(self) -> FixedBatch:
        return FixedBatch(self)

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens
    ) -> list[list[float]]:
        return self.model.score(sources, targets, special.bos)


def stored_precision(weights: bytes | memoryview, path: Path) -> Precision:
    """The precision of a weights file: int8 if some of its matrices are."""
    return "int8" if any(entry.dtype == "I8" for entry in list_tensors(weights, path).values()) else "float32"


def read_threads() -> int | None:
    """The number of threads that the user set for all libraries; None: all cores."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else None
