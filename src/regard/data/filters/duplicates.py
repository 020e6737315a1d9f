"""Filters of duplicate and near-duplicate pairs.

Only a 64-bit hash of each pair is kept: among ten million pairs, the probability that any two different ones collide is about
1 in 400,000.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b

from regard.data.filters.filter_spec import FILTERS, By, FilterSpec, Pair, PairFilter
from regard.spec import spec

NOT_LETTERS = re.compile(r"[\W\d_]+")


class HashSet:
    """A set of 64-bit numbers in a flat array: at most 22 bytes per number, a fifth of a Python set.

    Open addressing with linear probing; the array is doubled when it is three quarters full.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * 1024))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, number: int) -> bool:
        """Add a number and return whether it is new."""
        if 4 * self._count >= 3 * len(self._slots):
            old, self._slots, self._count = self._slots, array("Q", bytes(16 * len(self._slots))), 0
            for kept in filter(None, old):
                self.add(kept)
        number = number or 1  # 0 marks a free slot
        slots, last = self._slots, len(self._slots) - 1
        place = number & last
        while there := slots[place]:
            if there == number:
                return False
            place = (place + 1) & last
        slots[place] = number
        self._count += 1
        return True


@FILTERS.add
@spec
class Duplicates(FilterSpec):
    """Keep the first of equal pairs; by `source` or `target`, the first pair with each such text."""

    by: By = "pair"

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        return _keep_first(self.by, lambda text: text)


@FILTERS.add
@spec
class NearDuplicates(FilterSpec):
    """Like `duplicates`, but only letters count, without case: `Page 12.` equals `page 7`."""

    by: By = "pair"

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        return _keep_first(self.by, letters_only)


def letters_only(text: str) -> str:
    """Return the letters of a text with their marks, normalized and in lower case; a text without letters unchanged."""
    return NOT_LETTERS.sub(_keep_marks, unicodedata.normalize("NFKC", text).casefold()) or text


def _keep_marks(found: re.Match[str]) -> str:
    """Keep combining marks: many scripts write vowels and tones as marks, which `re` does not count as letters."""
    return "" if found[0].isascii() else "".join(sign for sign in found[0] if unicodedata.category(sign)[0] == "M")


def _keep_first(by: By, form: Callable[[str], str]) -> PairFilter:
    """Return a filter that keeps a pair if no earlier pair had the same form."""
    seen = HashSet()

    def keeps(source: str, target: str) -> bool:
        texts = {"pair": (source, target), "source": (source,), "target": (target,)}[by]
        key = "\0".join(map(form, texts)).encode()  # no text holds a NUL
        return seen.add(int.from_bytes(blake2b(key, digest_size=8).digest(), "little"))

    return PairFilter(keeps)
