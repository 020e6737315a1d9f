"""Pronouncing dictionaries in the format of CMUdict.

A line has a word and its phones; further pronunciations are `word(2)`, and `#` starts a comment:

    tomato T AH0 M EY1 T OW2
    tomato(2) T AH0 M AA1 T OW2      # the other one

The split of a word depends only on its spelling, so all its pronunciations are in one split, in every dictionary and every
version of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from regard.data.text_files import read_lines
from regard.errors import DataError

OR = " | "
"""Separates several correct pronunciations of a word."""
Part = Literal["train", "valid", "test"]

_VARIANT = re.compile(r"\(\d+\)$")
_STRESS = re.compile(r"(?<=[A-Za-z])[0-9]$")


def read_dictionary(path: str, *, stress: bool = False) -> dict[str, list[str]]:
    """Read words with their pronunciations, as phones separated by spaces; without `stress`, digits on vowels are removed."""
    found: dict[str, list[str]] = {}
    for number, line in enumerate(read_lines(path), 1):
        said = "" if line.startswith((";;;", "#")) else line.partition(" #")[0]
        if not said.strip():
            continue
        word, *phones = said.split()
        if not phones or OR.strip() in phones:
            raise DataError(f"{path}, line {number}: should be a word and its phones, got {line[:60]!r}")
        way = " ".join(phones if stress else (_STRESS.sub("", phone) for phone in phones))
        known = found.setdefault(_VARIANT.sub("", word), [])
        if way not in known:
            known.append(way)
    if not found:
        raise DataError(f"{path} contains no words")
    return found


def merge_dictionaries(dictionaries: Sequence[Mapping[str, Sequence[str]]]) -> dict[str, list[str]]:
    """Merge dictionaries: all words with all their pronunciations."""
    out: dict[str, list[str]] = {}
    for dictionary in dictionaries:
        for word, ways in dictionary.items():
            known = out.setdefault(word, [])
            known += [way for way in ways if way not in known]
    return out


def assign_split(word: str, *, valid: float, test: float) -> Part:
    """Return the split of a word, given the shares of all words for validation and test."""
    place = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) / 2**64
    return "test" if place < test else "valid" if place < test + valid else "train"
