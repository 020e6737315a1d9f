"""Text files as documents and sentences.

file     each file is one document, unchanged; its lines are its sentences
blank    a blank line ends a document, each line is a sentence (the format of BERT's tools)
line     each line is a document; a sentence ends where a period, question mark or exclamation mark is followed by a space
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.data.bucket import ComputedLengths
from regard.data.ragged import Ragged
from regard.data.scratch import ArrayWriter, blocks

DocumentUnit = Literal["file", "blank", "line"]

_BLANK = re.compile(r"(?<![ \t])(?:[ \t]*\r?\n){2,}")
_STOP = re.compile(r"(?<=[.!?])\s+")


def split_documents(text: str, divide: DocumentUnit) -> list[str]:
    """Split the text of a file into documents, without blank ones."""
    if divide == "file":
        return [text]
    parts = text.split("\n") if divide == "line" else _BLANK.split(text)
    return [part.strip("\r\n") for part in parts if part.strip()]


def split_sentences(document: str, divide: DocumentUnit) -> list[str]:
    """Split a document into sentences, without blank ones."""
    parts = _STOP.split(document) if divide == "line" else document.split("\n")
    return [part.strip() for part in parts if part.strip()]


def hold_out_documents(found: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Split off the last share of a file's documents for validation; of a single document, its end."""
    if len(found) == 1:
        cut = round(len(found[0]) * (1 - share))
        return [found[0][:cut]], [found[0][cut:]]
    cut = min(max(round(len(found) * (1 - share)), 1), len(found) - 1)
    return list(found[:cut]), list(found[cut:])


class EvenChunks:
    """Token lists cut into chunks of at most `max_length` tokens, as even as possible, none shorter than `least`.

    Chunks are counted, not listed: only the number up to the end of each list is kept.
    """

    def __init__(self, texts: Ragged, max_length: int, least: int = 1) -> None:
        self._texts, self._exact = texts, max_length < 2 * least - 1  # even chunks could be shorter than that
        self._max_length, self.left_out = max_length, 0
        counts, total = ArrayWriter(np.int64), 0
        for some in blocks(len(texts)):
            lengths = np.diff(texts.ends[some], prepend=texts.ends[some.start - 1] if some.start else 0)
            parts = lengths // max_length if self._exact else -(-lengths // max_length)
            parts = np.where(lengths < least, 0, parts)
            self.left_out += int(((lengths > 0) & (parts == 0)).sum())
            counts.add(np.cumsum(parts) + total)
            total += int(parts.sum())
        self._counts, self._total = counts.array(), total

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, i: int) -> NDArray[np.integer[Any]]:
        return self.take(np.array([range(len(self))[i]]))[0]

    @property
    def lengths(self) -> ChunkLengths:
        return ChunkLengths(self)

    def take(self, indices: NDArray[np.int64]) -> Ragged:
        """Return these chunks."""
        starts, ends = self.locate(np.asarray(indices, np.int64))
        return Ragged.of(
            [self._texts.ids[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        )

    def locate(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where these chunks start and end."""
        text = np.searchsorted(self._counts, places, side="right")
        before = np.where(text > 0, self._counts[np.maximum(text - 1, 0)], 0)
        begin = np.where(text > 0, self._texts.ends[np.maximum(text - 1, 0)], 0)
        number, parts, length = places - before, self._counts[text] - before, self._texts.ends[text] - begin
        if self._exact:
            return begin + number * self._max_length, begin + (number + 1) * self._max_length
        return begin + number * length // parts, begin + (number + 1) * length // parts


class ChunkLengths(ComputedLengths):
    """The length of each chunk."""

    def __init__(self, chunks: EvenChunks) -> None:
        self._chunks = chunks

    def __len__(self) -> int:
        return len(self._chunks)

    def compute(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        starts, ends = self._chunks.locate(places)
        return ends - starts
