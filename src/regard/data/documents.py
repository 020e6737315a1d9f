"""Texts as documents: what belongs together, and where one sentence ends.

file     every file is one document, as it is; its lines are its sentences
blank    a blank line ends a document, every line is a sentence (the form BERT's own tools read)
line     every line is a document; sentences end where a full stop, question or exclamation mark is followed by a space
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
    """The documents of a file's text, none of them blank."""
    if divide == "file":
        return [text]
    parts = text.split("\n") if divide == "line" else _BLANK.split(text)
    return [part.strip("\r\n") for part in parts if part.strip()]


def split_sentences(document: str, divide: DocumentUnit) -> list[str]:
    """The sentences of a document, none of them blank."""
    parts = _STOP.split(document) if divide == "line" else document.split("\n")
    return [part.strip() for part in parts if part.strip()]


def read_documents(path: str, divide: DocumentUnit) -> list[str]:
    """The documents of a file."""
    return split_documents(read_text(path), divide)


def hold_out_documents(found: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """The last part of a file's documents kept for validation: so many of them, or the end of the only one."""
    if len(found) == 1:
        cut = round(len(found[0]) * (1 - share))
        return [found[0][:cut]], [found[0][cut:]]
    cut = min(max(round(len(found) * (1 - share)), 1), len(found) - 1)
    return list(found[:cut]), list(found[cut:])


def chunk_evenly(texts: Ragged, max_length: int) -> Ragged:
    """Token lists cut into stretches of at most `max_length`, as even in length as can be; empty lists leave none."""
    lengths = texts.lengths[texts.lengths > 0]
    parts = -(-lengths // max_length)
    owner = np.repeat(np.arange(len(lengths)), parts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    start = np.cumsum(lengths) - lengths
    return Ragged(texts.ids, start[owner] + (number + 1) * lengths[owner] // parts[owner])
