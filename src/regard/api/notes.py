"""Notes to the user: one of each kind, or a few."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from regard.errors import make_printable

Tell = Callable[[str], None]
"""Receiver of notes: `print`, the logger `regard`, stderr."""
SHOWN = 50
"""Maximum number of notes of one kind that are passed on if each is about another input."""


def log_note(text: str) -> None:
    """Log a note as a warning of the logger `regard`; the default."""
    logging.getLogger("regard").warning(make_printable(text))


class Notes:
    """Passes on the first notes of each kind, so that a thousand inputs do not cause a thousand notes."""

    def __init__(self, tell: Tell | None = None) -> None:
        self._tell = tell or log_note
        self._seen = Counter[str]()

    def __call__(self, kind: str, text: str) -> None:
        """Pass on a note if it is the first of its kind."""
        self._seen[kind] += 1
        if self._seen[kind] == 1:
            self._tell(text)

    def each(self, kind: str, text: str) -> None:
        """Pass on a note that differs from input to input; beyond `SHOWN` of a kind, only that there are more."""
        self._seen[kind] += 1
        if self._seen[kind] <= SHOWN:
            self._tell(text)
        elif self._seen[kind] == SHOWN + 1:
            self._tell("there are more of these, which are not shown")
