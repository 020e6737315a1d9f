"""Pairs of segments for next-sentence prediction, made as BERT's authors made them (Devlin et al. 2018, appendix A.2).

A document is cut into chunks of sentences that about fill a row. A chunk is split between two sentences; in half of the
cases the second segment is replaced by sentences of another document, and those it had go to the next chunk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.example_rng import Bits
from regard.data.ragged import Ragged

Document = Sequence[Sequence[int]]
"""The sentences of a document, each as its tokens."""
SHORTEST = 2


@dataclasses.dataclass(frozen=True)
class Follows:
    """First and second segments, and whether the second truly follows."""

    first: Ragged
    second: Ragged
    truly: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.first)


def follow(documents: Sequence[Document], *, room: int, shorter: float, bits: Bits) -> Follows:
    """Pairs that have at most `room` tokens together, from two documents or more; a part of them is made `shorter`."""
    pairs = [pair for i in range(len(documents)) for pair in _pairs(documents, i, room, shorter, bits)]
    first, second, truly = zip(*pairs, strict=True)
    return Follows(Ragged.of(first), Ragged.of(second), np.array(truly))


def _pairs(
    documents: Sequence[Document], number: int, room: int, shorter: float, bits: Bits
) -> list[tuple[list[int], list[int], bool]]:
    """The pairs of one document."""
    document, out = documents[number], []
    chunk: list[Sequence[int]] = []
    size, i = 0, 0
    target = _target(room, shorter, bits)
    while i < len(document):
        chunk.append(document[i])
        size += len(document[i])
        i += 1
        if size < target and i < len(document):
            continue
        cut = 1 if len(chunk) == 1 else 1 + bits.below(len(chunk) - 1)
        first = [token for sentence in chunk[:cut] for token in sentence]
        truly = len(chunk) > 1 and not bits.chance(0.5)
        if truly:
            second = [token for sentence in chunk[cut:] for token in sentence]
        else:
            second = _elsewhere(documents, number, target - len(first), bits)
            i -= len(chunk) - cut  # these are still to be used
        _trim(first, second, room, bits)
        out.append((first, second, truly))
        chunk, size, target = [], 0, _target(room, shorter, bits)
    return out


def _target(room: int, shorter: float, bits: Bits) -> int:
    """How many tokens a chunk should have: as many as there is room for, now and then fewer."""
    return SHORTEST + bits.below(room - SHORTEST + 1) if bits.chance(shorter) else room


def _elsewhere(documents: Sequence[Document], number: int, size: int, bits: Bits) -> list[int]:
    """Sentences of another document, from any of them on, until there are enough tokens."""
    other = bits.below(len(documents) - 1)
    document = documents[other + (other >= number)]
    out: list[int] = []
    for sentence in document[bits.below(len(document)) :]:
        out += sentence
        if len(out) >= size:
            break
    return out


def _trim(first: list[int], second: list[int], room: int, bits: Bits) -> None:
    """Take tokens from the longer segment, from its front or its back, until both fit."""
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        del longer[0 if bits.chance(0.5) else -1]
