"""Notes to the user: once of each kind."""

from __future__ import annotations

import logging
from collections.abc import Callable

from regard.errors import make_printable

Tell = Callable[[str], None]
"""Where notes go: `print`, the logger `regard`, stderr."""


def log_note(text: str) -> None:
    """Log a note as a warning of the logger `regard`; the default."""
    logging.getLogger("regard").warning(make_printable(text))


class Notes:
    """Passes on the first note of each kind, so that a thousand inputs do not cause a thousand notes."""

    def __init__(self, tell: Tell | None = None) -> None:
        self._tell = tell or log_note
        self._seen: set[str] = set()

    def __call__(self, kind: str, text: str) -> None:
        if kind not in self._seen:
            self._tell(text)
            self._seen.add(kind)
