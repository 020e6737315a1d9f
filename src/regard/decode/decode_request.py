"""Requests to a decoder, and the hypotheses it returns.

Nothing here needs torch: every engine reads requests of this form.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

from regard.decode.search import Search
from regard.errors import DamagedModel, DataError, NoRoom, SpecError

Term = Sequence[int]
"""A term as token ids."""
FREE = -1
"""Stands in a prefix for any token but the end mark."""


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One output: tokens without the end mark, log-probability, and the score that ranks outputs."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float


NOT_NUMBERS = "the model computes values that are not numbers (NaN): its weights are damaged, or too large"


def check_numbers(found: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The hypotheses of a source; DamagedModel if there are none, or if their scores are not numbers."""
    if not found or any(math.isnan(each.score) for each in found):
        raise DamagedModel(NOT_NUMBERS)
    return [*found]


class HasSpecialTokens(Protocol):
    """A tokenizer, as far as decoding needs one."""

    @property
    def bos(self) -> int: ...
    @property
    def eos(self) -> int: ...
    @property
    def pad(self) -> int: ...
    @property
    def size(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The tokens that start, end and pad an output."""

    bos: int
    eos: int
    pad: int
    size: int | None = None
    """The number of tokens there are. A model may have a table of more rows, which no text has; they are never written."""

    @classmethod
    def of(cls, tokenizer: HasSpecialTokens) -> SpecialTokens:
        """Take the special tokens from a tokenizer."""
        return cls(tokenizer.bos, tokenizer.eos, tokenizer.pad, tokenizer.size)

    def list_unwritten(self, vocab: int) -> set[int]:
        """The tokens that a model with a table of `vocab` rows never writes, besides those of a request."""
        return ({self.bos, self.pad} - {self.eos}) | {*range(vocab if self.size is None else self.size, vocab)}


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Contents that outputs must and must not have; the sequences have one entry per source."""

    banned: Sequence[int] = ()
    """Tokens that are never written, in addition to the start mark and padding. A prefix may contain them."""
    prefixes: Sequence[Sequence[int]] | None = None
    """Beginning of each output; `FREE` where the model chooses."""
    must_include: Sequence[Sequence[Term]] | None = None
    """The terms that each output must include; beams are widened as the terms need."""

    def check(self, count: int) -> None:
        """Refuse sequences that do not have one entry for each of `count` sources."""
        for what, given in (("prefixes", self.prefixes), ("must_include", self.must_include)):
            if given is not None and len(given) != count:
                raise DataError(f"expected one entry per source in {what}, got {len(given)} for {count} sources")

    @property
    def has_gaps(self) -> bool:
        """True if the model chooses some tokens of a prefix."""
        return self.prefixes is not None and any(FREE in prefix for prefix in self.prefixes)

    def terms(self, index: int) -> Sequence[Term]:
        """The terms of one source."""
        return () if self.must_include is None else self.must_include[index]

    def select(self, indices: Sequence[int]) -> Constraints:
        """The constraints of these sources."""
        forced = None if self.prefixes is None else [self.prefixes[i] for i in indices]
        terms = [self.terms(i) for i in indices]
        return Constraints(self.banned, forced, terms if any(terms) else None)


@dataclasses.dataclass(frozen=True)
class Draw:
    """Random numbers for sampling: they depend on the seed, the input's number and the step."""

    numbers: Sequence[int] | None = None
    """The number of each source; None: counted from 0."""
    first_step: int = 0
    """Number of tokens that were drawn before."""


@dataclasses.dataclass(frozen=True)
class Request:
    """Sources to decode, and how: the one value that every engine takes.

    Sources are token ids, end mark included. A model without an encoder reads the sources itself and continues them by at most
    `search.max_extra` tokens.
    """

    sources: Sequence[Sequence[int]]
    search: Search
    special: SpecialTokens
    constraints: Constraints = Constraints()
    draw: Draw = Draw()

    def __post_init__(self) -> None:
        self.constraints.check(len(self.sources))

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def numbers(self) -> Sequence[int]:
        """The number of each source, on which sampling depends."""
        return range(len(self.sources)) if self.draw.numbers is None else self.draw.numbers

    @property
    def rows(self) -> int:
        """Hypotheses that are searched for at once, for each source."""
        return 1 if self.search.sample else self.search.beam

    @property
    def has_terms(self) -> bool:
        """True if outputs must include terms."""
        return self.constraints.must_include is not None and any(self.constraints.must_include)

    def select(self, indices: Sequence[int]) -> Request:
        """The request for these sources alone."""
        numbers = [self.numbers[i] for i in indices]
        return dataclasses.replace(
            self,
            sources=[self.sources[i] for i in indices],
            constraints=self.constraints.select(indices),
            draw=Draw(numbers, self.draw.first_step),
        )


def limit_output(search: Search, n: int, has_encoder: bool, capacity: int) -> int:
    """Maximum number of tokens of an output: the user's limit, and no more than the model has room for."""
    return min(search.limit(n), capacity) if has_encoder else max(min(search.limit(0), capacity - n + 1), 1)


def check_streams(request: Request) -> None:
    """Refuse a request whose output cannot be shown while it is generated."""
    if request.has_terms:
        raise SpecError("terms need beam search, which cannot stream; leave out the terms, or use run")
    if request.rows > 1:
        raise SpecError(f"beam search cannot stream, got beam={request.search.beam}; use beam=1 or sample, or use run")


def check_feasible(
    terms: Sequence[Sequence[Term]] | None,
    prefixes: Sequence[Sequence[int]] | None,
    limits: Sequence[int],
    *,
    never: set[int],
) -> None:
    """Refuse terms that are empty or contain a token that is `never` written, and those that do not fit the limits."""
    terms, prefixes = terms or [()] * len(limits), prefixes or [()] * len(limits)
    for place, row in enumerate(terms):
        if wrong := [term for term in row if not term or never.intersection(term)]:
            raise DataError(
                f"source {place}: the term {[*wrong[0]]} should be one or more tokens, none of which is forbidden"
            )
    needs = [sum(map(len, row)) + len(prefix) for row, prefix in zip(terms, prefixes, strict=True)]
    if lacking := [place for place, (need, limit) in enumerate(zip(needs, limits, strict=True)) if need > limit]:
        raise NoRoom(
            f"source {lacking[0]}: the required text has {needs[lacking[0]]} tokens, and there is room for "
            f"{limits[lacking[0]]}; ask for fewer terms or a shorter prefix",
            lacking,
        )
