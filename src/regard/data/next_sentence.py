"""Segment pairs for next-sentence prediction, as in BERT.

Devlin et al. 2018, appendix A.2: a document is cut into chunks of sentences that about fill a row. A chunk is split between
two sentences; in half of the cases the second segment is replaced by sentences from another document, and the original ones
go to the next chunk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from regard.data.example_rng import Rng
from regard.data.ragged import Ragged

Document = Sequence[Sequence[int]]
"""The sentences of a document, each as token ids."""
MIN_TOKENS = 2
BLOCK = 1 << 18
"""Number of tokens of the documents that are cut at a time."""


@dataclasses.dataclass(frozen=True)
class SegmentPairs:
    """First and second segments, and whether the second one follows the first in its document."""

    first: Ragged
    second: Ragged
    is_next: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.first)


class SentenceStore(Sequence[Document]):
    """Documents as token ids, each cut into sentences of these lengths, on access."""

    def __init__(self, ids: Ragged, lengths: Ragged) -> None:
        self._ids, self._lengths = ids, lengths

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, i: int) -> Document: ...
    @overload
    def __getitem__(self, i: slice) -> list[Document]: ...
    def __getitem__(self, i: int | slice) -> Document | list[Document]:
        if isinstance(i, slice):
            return [self[place] for place in range(len(self))[i]]
        ids, ends = self._ids[i].tolist(), np.cumsum(self._lengths[i]).tolist()
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def blocks(self) -> list[slice]:
        """Return slices of documents with about `BLOCK` tokens."""
        out, first = list[slice](), 0
        while first < len(self):
            begin = int(self._ids.ends[first - 1]) if first else 0
            last = int(np.searchsorted(self._ids.ends, begin + BLOCK, side="right"))
            out.append(slice(first, max(last, first + 1)))
            first = out[-1].stop
        return out


def make_segment_pairs(
    documents: Sequence[Document], *, room: int, short_seq_prob: float, lap: int = 0, some: range | None = None
) -> SegmentPairs:
    """Make pairs of at most `room` tokens together from at least two documents; the share `short_seq_prob` is shorter.

    Each document has random numbers of its own, which are others in every lap, so that a corpus can be cut in parts: here only
    `some` of the documents.
    """
    numbers = range(len(documents)) if some is None else some
    pairs = [pair for i in numbers for pair in _cut_document(documents, i, room, short_seq_prob, Rng(0, lap, i))]
    first, second, is_next = zip(*pairs, strict=True) if pairs else ((), (), ())
    return SegmentPairs(Ragged.of(first), Ragged.of(second), np.array(is_next, bool))


def _cut_document(
    documents: Sequence[Document], number: int, room: int, short_seq_prob: float, rng: Rng
) -> list[tuple[list[int], list[int], bool]]:
    """Return the pairs of one document."""
    document, out = documents[number], []
    chunk: list[Sequence[int]] = []
    size, i = 0, 0
    target = _draw_length(room, short_seq_prob, rng)
    while i < len(document):
        chunk.append(document[i])
        size += len(document[i])
        i += 1
        if size < target and i < len(document):
            continue
        cut = 1 if len(chunk) == 1 else 1 + rng.integer(len(chunk) - 1)
        first = [token for sentence in chunk[:cut] for token in sentence]
        is_next = len(chunk) > 1 and not rng.bernoulli(0.5)
        if is_next:
            second = [token for sentence in chunk[cut:] for token in sentence]
        else:
            second = _draw_other_segment(documents, number, target - len(first), rng)
            i -= len(chunk) - cut  # these sentences are used again
        _trim(first, second, room, rng)
        out.append((first, second, is_next))
        chunk, size, target = [], 0, _draw_length(room, short_seq_prob, rng)
    return out


def _draw_length(room: int, short_seq_prob: float, rng: Rng) -> int:
    """Return the length of a chunk: `room` tokens, sometimes fewer."""
    return MIN_TOKENS + rng.integer(room - MIN_TOKENS + 1) if rng.bernoulli(short_seq_prob) else room


def _draw_other_segment(documents: Sequence[Document], number: int, size: int, rng: Rng) -> list[int]:
    """Return sentences of another document from a random one on, until there are enough tokens."""
    other = rng.integer(len(documents) - 1)
    document = documents[other + (other >= number)]
    out: list[int] = []
    for sentence in document[rng.integer(len(document)) :]:
        out += sentence
        if len(out) >= size:
            break
    return out


def _trim(first: list[int], second: list[int], room: int, rng: Rng) -> None:
    """Remove tokens from the longer segment, at a random end, until both fit."""
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        del longer[0 if rng.bernoulli(0.5) else -1]
