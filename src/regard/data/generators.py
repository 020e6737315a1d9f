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
from regard.registry import Registry
from regard.spec import Count, Spec, spec

GENERATORS: Registry[type[GeneratorSpec]] = Registry("generator")
LETTERS = string.ascii_letters + string.digits
DRAWS = 1024


class GeneratorSpec(Spec):
    """A generator of pairs."""

    registry = GENERATORS

    def pairs(self, part: str) -> Pairs:
        """Return the pairs of the part "train" or "valid"; the parts have no pair in common."""
        raise NotImplementedError


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
    max_length: Count = 12
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

    def _text(self, length: int, *letters: int) -> str:
        return "".join(LETTERS[letter % self.symbols] for letter in letters[: 1 + length % self.max_length])


def _is_held_out(text: str) -> bool:
    """Whether a string is used for validation only: one in eight, whatever the seed."""
    return zlib.crc32(text.encode()) % 8 == 0
