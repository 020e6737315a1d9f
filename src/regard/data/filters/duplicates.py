"""Pairs that came before, exactly or but for case, digits, punctuation and spaces. Only a hash of each is remembered.

Two different pairs share one of the 2^64 hashes in ten million with odds of about 1 to 400,000.
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
    """A set of 64-bit numbers in one flat array, at most 22 bytes each: a fifth of what a set of Python's takes.

    A number stands in the slot its last bits name, or in the next free one. Slots are doubled when three quarters are taken.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * 1024))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, number: int) -> bool:
        """Remember a number; whether it is new."""
        if 4 * self._count >= 3 * len(self._slots):
            old, self._slots, self._count = self._slots, array("Q", bytes(16 * len(self._slots))), 0
            for kept in filter(None, old):
                self.add(kept)
        number = number or 1  # 0 is a free slot
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
    """No pair comes twice: the first stays. By `source` or `target`, no such text comes twice, whatever its partner."""

    by: By = "pair"

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        return _keep_first(self.by, lambda text: text)


@FILTERS.add
@spec
class NearDuplicates(FilterSpec):
    """As duplicates, of texts that count as the same if their letters are: `Page 12.` and `page 7`."""

    by: By = "pair"

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        return _keep_first(self.by, letters_only)


def letters_only(text: str) -> str:
    """The letters of a text and the marks on them, small, however they are encoded; a text without any as it is."""
    return NOT_LETTERS.sub(_keep_marks, unicodedata.normalize("NFKC", text).casefold()) or text


def _keep_marks(found: re.Match[str]) -> str:
    """What must stay: many scripts write vowels and tones as marks, which to `re` are no letters."""
    return "" if found[0].isascii() else "".join(sign for sign in found[0] if unicodedata.category(sign)[0] == "M")


def _keep_first(by: By, form: Callable[[str], str]) -> PairFilter:
    """Keeps a pair if none before it had the same form."""
    seen = HashSet()

    def keeps(source: str, target: str) -> bool:
        texts = {"pair": (source, target), "source": (source,), "target": (target,)}[by]
        key = "\0".join(map(form, texts)).encode()  # no text holds a NUL
        return seen.add(int.from_bytes(blake2b(key, digest_size=8).digest(), "little"))

    return PairFilter(keeps)
