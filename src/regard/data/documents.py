"""Text files as documents and sentences.

file     each file is one document, unchanged; its lines are its sentences
blank    a blank line ends a document, each line is a sentence (the format of BERT's tools)
line     each line is a document; a sentence ends where a period, question mark or exclamation mark is followed by a space
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from regard.data.ragged import Ragged
from regard.data.text_files import read_text

DocumentUnit = Literal["file", "blank", "line"]

_BLANK = re.compile(r"(?:[ \t]*\r?\n){2,}")
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


def read_documents(path: str, divide: DocumentUnit) -> list[str]:
    """Read the documents of a file."""
    return split_documents(read_text(path), divide)


def hold_out_documents(found: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Split off the last share of a file's documents for validation; of a single document, its end."""
    if len(found) == 1:
        cut = round(len(found[0]) * (1 - share))
        return [found[0][:cut]], [found[0][cut:]]
    cut = min(max(round(len(found) * (1 - share)), 1), len(found) - 1)
    return list(found[:cut]), list(found[cut:])


def chunk_evenly(texts: Ragged, max_length: int) -> Ragged:
    """Cut token lists into chunks of at most `max_length` tokens, as even as possible; empty lists yield no chunk."""
    lengths = texts.lengths[texts.lengths > 0]
    parts = -(-lengths // max_length)
    owner = np.repeat(np.arange(len(lengths)), parts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    start = np.cumsum(lengths) - lengths
    return Ragged(texts.ids, start[owner] + (number + 1) * lengths[owner] // parts[owner])
