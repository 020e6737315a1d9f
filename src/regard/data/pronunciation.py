"""Pronouncing dictionaries, as CMU's: a word and its phones a line, further pronunciations as `word(2)`, `#` a comment.

    tomato T AH0 M EY1 T OW2
    tomato(2) T AH0 M AA1 T OW2      # the other one

Which part of the data a word is for follows from its letters alone, so that all its pronunciations are on one side, in every
dictionary and every version of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from regard.data.text_files import read_lines
from regard.errors import DataError

OR = " | "
"""Between several pronunciations of one word, any of which is right."""
Part = Literal["train", "valid", "test"]

_VARIANT = re.compile(r"\(\d+\)$")
_STRESS = re.compile(r"(?<=[A-Za-z])[0-9]$")


def read_dictionary(path: str, *, stress: bool = False) -> dict[str, list[str]]:
    """Every word with its pronunciations, phones with a space between; without `stress` the digits on vowels are taken off."""
    found: dict[str, list[str]] = {}
    for number, line in enumerate(read_lines(path), 1):
        said = "" if line.startswith((";;;", "#")) else line.partition(" #")[0]
        if not said.strip():
            continue
        word, *phones = said.split()
        if not phones or OR.strip() in phones:
            raise DataError(f"{path}, line {number}: a word and its phones should stand there, got {line[:60]!r}")
        way = " ".join(phones if stress else (_STRESS.sub("", phone) for phone in phones))
        known = found.setdefault(_VARIANT.sub("", word), [])
        if way not in known:
            known.append(way)
    if not found:
        raise DataError(f"{path} holds no words")
    return found


def merge_dictionaries(dictionaries: Sequence[Mapping[str, Sequence[str]]]) -> dict[str, list[str]]:
    """The words of several dictionaries, with all pronunciations that any of them has."""
    out: dict[str, list[str]] = {}
    for dictionary in dictionaries:
        for word, ways in dictionary.items():
            known = out.setdefault(word, [])
            known += [way for way in ways if way not in known]
    return out


def assign_split(word: str, *, valid: float, test: float) -> Part:
    """What a word is for, where such shares of all words are kept for validation and for a test."""
    place = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) / 2**64
    return "test" if place < test else "valid" if place < test + valid else "train"
