"""Generated pairs, for recipes that need no files.

Every generator is a pure function of its settings.
"""

from __future__ import annotations

import string
import zlib
from typing import Annotated

import numpy as np
from pydantic import Field

from regard.data import dates
from regard.data.pairs import Pairs
from regard.errors import SpecError
from regard.files.storage import format_bytes
from regard.machine import free_memory
from regard.registry import Registry
from regard.spec import Count, Spec, spec

GENERATORS: Registry[type[GeneratorSpec]] = Registry("generator")
LETTERS = string.ascii_letters + string.digits
DRAWS = 1024
PAIR_BYTES = 200
"""Memory of a generated pair: two strings and the places that refer to them."""


class GeneratorSpec(Spec):
    """A generator of pairs."""

    registry = GENERATORS
    count: int
    """Number of training pairs."""
    valid: int
    """Number of validation pairs."""

    def pairs(self, part: str) -> Pairs:
        """Return the pairs of the part "train" or "valid"; the parts have no pair in common."""
        raise NotImplementedError

    def pair_bytes(self) -> int:
        """Return the memory that a pair takes, at least."""
        return PAIR_BYTES

    def check_memory(self) -> None:
        """Refuse more pairs than fit into memory, before the first is made."""
        free = free_memory()
        for name, count in (("count", self.count), ("valid", self.valid)):
            needed = count * self.pair_bytes()
            if free and needed > free:
                raise SpecError(
                    f"data.generate.{name} is {count:,}: so many pairs take {format_bytes(needed)} of memory, and "
                    f"{format_bytes(free)} are free on this machine; lower it to {free // self.pair_bytes() // 2:,}"
                )


@GENERATORS.add
@spec
class Dates(GeneratorSpec):
    """Dates in many languages and styles, to be written as ISO 8601; validation days never occur in training."""

    count: Count = 200_000
    valid: Count = 1000
    seed: int = 1

    def pairs(self, part: str) -> Pairs:
        made = dates.generate_pairs(self.seed, self.count if part == "train" else self.valid, part)
        return Pairs([s for s, _ in made], [t for _, t in made], name=f"dates ({part})")


@GENERATORS.add
@spec
class Copy(GeneratorSpec):
    """Random strings to be copied, or with `reverse` written backwards; validation strings never occur in training."""

    symbols: Annotated[int, Field(ge=1, le=len(LETTERS))] = 10
    max_length: Annotated[int, Field(ge=1, le=100_000)] = 12
    count: Count = 10_000
    valid: Count = 200
    reverse: bool = False
    seed: int = 1

    def pairs(self, part: str) -> Pairs:
        valid = part == "valid"
        wanted, source = self.valid if valid else self.count, list[str]()
        bits = np.random.Philox(key=np.array([self.seed % 2**64, valid], np.uint64))
        while len(source) < wanted:
            drawn = (self._text(*row.tolist()) for row in bits.random_raw((DRAWS, self.max_length + 1)))
            source += [text for text in drawn if _is_held_out(text) == valid]
            if not source:
                raise SpecError(f"there are too few different strings for {part!r}; raise symbols or max_length")
        del source[wanted:]
        target = [s[::-1] for s in source] if self.reverse else list(source)
        return Pairs(source, target, name=f"{'reverse' if self.reverse else 'copy'} ({part})")

    def pair_bytes(self) -> int:
        return PAIR_BYTES + self.max_length

    def _text(self, length: int, *letters: int) -> str:
        return "".join(LETTERS[letter % self.symbols] for letter in letters[: 1 + length % self.max_length])


def _is_held_out(text: str) -> bool:
    """Whether a string is used for validation only: one in eight, whatever the seed."""
    return zlib.crc32(text.encode()) % 8 == 0
