"""Generated pairs, for recipes that need no files.

Every generator is a pure function of its settings.
"""

from __future__ import annotations

import string
import zlib
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

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
    max_length: Annotated[int, Field(ge=1, le=20_000)] = 12
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


Problem = Literal["addition", "multiplication", "copy", "reverse", "sort"]
MAX_BASE = 10_000
DIGITS = string.digits + string.ascii_letters
"""The digits of bases up to 62; those of larger bases are CJK ideographs, one character each."""


@GENERATORS.add
@spec
class Algorithm(GeneratorSpec):
    """Problems that an algorithm solves, on random numbers in any base (Kaiser & Sutskever 2015).

    Digits are written from the least significant one. Both numbers of a sum or product have the same number of digits, and the
    result has as many as the largest possible one: `011+101` gives `1101` in base 2 (6 + 5 = 11). Copy, reverse and sort read a
    single number. Validation problems never occur in training.
    """

    problem: Problem = "addition"
    """Problem to compute: `addition`, `multiplication`, `copy`, `reverse` or `sort`."""
    base: int = 2
    """Base of the numbers, at least 2."""
    min_digits: Count = 1
    """Minimum number of digits of a number."""
    max_digits: Annotated[int, Field(ge=1, le=100_000)] = 20
    """Maximum number of digits of a number."""
    count: Count = 100_000
    valid: Count = 200
    """Number of validation pairs."""
    seed: int = 1

    def __post_init__(self) -> None:
        if not 2 <= self.base <= MAX_BASE:
            raise SpecError(f"base should be 2 to {MAX_BASE:,}, got {self.base:,}; 2 is binary, 10 decimal")
        if self.min_digits > self.max_digits:
            raise SpecError(f"min_digits is {self.min_digits}, more than max_digits ({self.max_digits}); swap them")

    def pairs(self, part: str) -> Pairs:
        valid = part == "valid"
        wanted, source, target = self.valid if valid else self.count, list[str](), list[str]()
        bits = np.random.Philox(key=np.array([self.seed % 2**64, valid], np.uint64))
        numbers, draws = 2 if self.problem in SYMBOLS else 1, max(min(DRAWS, (1 << 20) // self.max_digits), 1)
        while len(source) < wanted:
            for row in bits.random_raw((draws, 1 + numbers * self.max_digits)):
                digits = self.min_digits + int(row[0] % np.uint64(self.max_digits - self.min_digits + 1))
                drawn = (row[1:] % np.uint64(self.base)).astype(np.int64).reshape(numbers, -1)[:, :digits].tolist()
                text = SYMBOLS.get(self.problem, "").join(map(write_digits, drawn))
                if _is_held_out(text) == valid:
                    source.append(text)
                    target.append(write_digits(self.solve(*drawn)))
            if not source:
                raise SpecError(f"there are too few different problems for {part!r}; raise base or max_digits")
        return Pairs(source[:wanted], target[:wanted], name=f"{self.problem} ({part})")

    def pair_bytes(self) -> int:
        return PAIR_BYTES + 4 * self.max_digits

    def solve(self, a: list[int], b: list[int] | None = None) -> list[int]:
        """Return the digits of the result."""
        if b is None:
            return sorted(a) if self.problem == "sort" else a[::-1] if self.problem == "reverse" else list(a)
        x, y = (sum(digit * self.base**i for i, digit in enumerate(number)) for number in (a, b))
        if self.problem == "addition":
            return self._digits(x + y, len(a) + 1)
        return self._digits(x * y, len(a) + len(b))

    def _digits(self, number: int, count: int) -> list[int]:
        """Return this many digits of a number, the least significant first."""
        out = []
        for _ in range(count):
            number, digit = divmod(number, self.base)
            out.append(digit)
        return out


SYMBOLS: dict[str, str] = {"addition": "+", "multiplication": "*"}
"""Between the two numbers of a problem."""


def write_digits(digits: Sequence[int]) -> str:
    """Write digits as characters, one each."""
    return "".join(DIGITS[d] if d < len(DIGITS) else chr(0x4E00 + d - len(DIGITS)) for d in digits)


@GENERATORS.add
@spec
class CopyMemory(GeneratorSpec):
    """Letters, then blanks, then a sign to recall the letters (Hochreiter & Schmidhuber 1997): `abc......?` to `abc`."""

    symbols: Annotated[int, Field(ge=1, le=len(LETTERS))] = 8
    items: Annotated[int, Field(ge=1, le=1000)] = 5
    """Number of letters to recall."""
    delay: Annotated[int, Field(ge=0, le=100_000)] = 20
    """Number of blanks between the letters and the sign."""
    count: Count = 10_000
    valid: Count = 200
    seed: int = 1
    BLANK: ClassVar[str] = "."
    GO: ClassVar[str] = "?"

    def pairs(self, part: str) -> Pairs:
        valid = part == "valid"
        wanted, target = self.valid if valid else self.count, list[str]()
        bits = np.random.Philox(key=np.array([self.seed % 2**64, valid], np.uint64))
        while len(target) < wanted:
            drawn = (
                "".join(LETTERS[n % self.symbols] for n in row.tolist()) for row in bits.random_raw((DRAWS, self.items))
            )
            target += [text for text in drawn if _is_held_out(text) == valid]
            if not target:
                raise SpecError(f"there are too few different strings for {part!r}; raise symbols or items")
        del target[wanted:]
        source = [text + self.BLANK * self.delay + self.GO for text in target]
        return Pairs(source, target, name=f"copy memory ({part})")

    def pair_bytes(self) -> int:
        return PAIR_BYTES + 2 * self.items + self.delay


def _is_held_out(text: str) -> bool:
    """True if a string is used for validation only: one in eight, whatever the seed."""
    return zlib.crc32(text.encode()) % 8 == 0
