"""Stop texts: where a stream of pieces ends.

A stop text may come in several pieces, so what could be its beginning is held back.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence


def cut_at_stops(pieces: Iterator[str], stops: Sequence[str]) -> Generator[str, None, bool]:
    """Pass pieces of text on until one of the stop texts appears; returns whether one has."""
    kept = StopTexts(stops)
    for piece in pieces:
        if text := kept.add(piece):
            yield text
        if kept.is_met:
            if isinstance(pieces, Generator):
                pieces.close()
            return True
    if rest := kept.rest():
        yield rest
    return False


class StopTexts:
    """Passes pieces of text on until one of the stop texts appears, which is left out with all after it."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._held = stops, ""
        self.is_met = False

    def add(self, piece: str) -> str:
        """Return what can be passed on after this piece."""
        if self.is_met:
            return ""
        text, self._held = self._held + piece, ""
        ends = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if ends:
            self.is_met = True
            return text[: min(ends)]
        keep = max((self._overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """Return what was held back, if no stop text has come."""
        return "" if self.is_met else self._held

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Length of the beginning of a stop text with which the text ends."""
        return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
