"""Stories with questions: the files of bAbI.

Weston et al. 2015:

    1 Mary moved to the bathroom.
    2 John went to the hallway.
    3 Where is Mary? <tab> bathroom <tab> 1

A number 1 begins a story. A line with a tab is a question with its answer and the numbers of the sentences that support it; it
is asked about the sentences before it. Words are lower-cased; an answer of several words is one word (`n,w`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from regard.data.text_files import read_lines
from regard.errors import DataError

_SENTENCE = re.compile(r"[^.?!]+[.?!]?")
_WORD = re.compile(r"[^\s.,?!]+")
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Story:
    """Sentences from the oldest to the newest, a question about them, and its answer."""

    sentences: tuple[str, ...]
    question: str
    answer: str = ""
    place: str = ""
    """File and line, for messages."""

    def __str__(self) -> str:
        return " ".join((*self.sentences, self.question))


def split_words(sentence: str) -> list[str]:
    """The words of a sentence, lower-cased, without punctuation."""
    return _WORD.findall(sentence.lower())


def parse_story(text: str) -> Story:
    """A story in one line: its last sentence is the question."""
    found = [s.strip() for s in _SENTENCE.findall(text) if split_words(s)]
    if not found or not found[-1].endswith("?"):
        raise DataError(f"a story should end with a question (`Mary went home. Where is Mary?`), got {text[-80:]!r}")
    return Story(tuple(found[:-1]), found[-1])


def _are_facts(fields: list[str], question: int) -> bool:
    """True if what follows the answer in a line are the numbers of sentences before the question, or nothing."""
    return len(fields) <= 1 and all(
        _NUMBER.fullmatch(number) and 1 <= int(number) < question for field in fields for number in field.split()
    )


def read_stories(path: str | Path) -> list[Story]:
    """Every question of a file with the story before it; a malformed line is an error with its number."""
    out, sentences, before = list[Story](), list[str](), 0
    for line, row in enumerate(read_lines(path), 1):
        where = f"{path}, line {line}"
        number, _, text = row.strip().partition(" ")
        if not _NUMBER.fullmatch(number) or not text.strip():
            raise DataError(f"{where}: a number and a sentence should be there (`1 Mary went home.`), got {row[:60]!r}")
        if int(number) not in (1, before + 1):
            raise DataError(f"{where}: the number should be {before + 1}, or 1 for a new story, got {number[:20]}")
        before = int(number)
        sentences = [] if before == 1 else sentences
        asked, *more = [part.strip() for part in text.split("\t")]
        if not split_words(asked):
            raise DataError(f"{where}: the sentence has no words, got {row[:60]!r}")
        if not more:
            sentences.append(asked)
        elif not more[0]:
            raise DataError(f"{where}: the question has no answer after its tab")
        elif not _are_facts(more[1:], before):
            raise DataError(
                f"{where}: numbers of earlier sentences should be behind the answer (`1 3`), got {' '.join(more[1:])[:60]!r}"
            )
        else:
            question = asked if asked.endswith("?") else f"{asked}?"
            out.append(Story(tuple(sentences), question, more[0].lower(), where))
    if not out:
        raise DataError(f"{path} has no question; a question is a line with a tab before its answer")
    return out
