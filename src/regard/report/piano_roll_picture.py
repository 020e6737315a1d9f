"""A piano roll as a picture: time to the right, pitch upwards.

keyboard │ bars, one per note, in the color of its part; a line for every beat or second, a stronger one for every fourth
         │ what was given has a gray background
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import ShapeError
from regard.report.png import encode_png

Color = tuple[int, int, int]
PARTS: tuple[Color, ...] = ((196, 62, 50), (214, 141, 31), (46, 125, 79), (44, 92, 168), (122, 72, 158), (70, 70, 70))
WHITE, GIVEN, BLACK_ROW, LINE, STRONG, OCTAVE = 255, 240, 248, 226, 190, 205
BLACK_KEYS = frozenset((1, 3, 6, 8, 10))
ROW, KEYBOARD = 6, 34
"""Pixels of a semitone, and of the keyboard on the left."""
MAX_WIDTH = 20_000
GLYPHS = {
    "C": "111100100100111", "-": "000000111000000", "0": "111101101101111", "1": "010110010010111",
    "2": "111001111100111", "3": "111001111001111", "4": "101101111001001", "5": "111100111001111",
    "6": "111100111101111", "7": "111001001001001", "8": "111101111101111", "9": "111101111001111",
}  # fmt: skip
"""Letters of 3 × 5 pixels."""


@dataclass(frozen=True)
class Bar:
    """A note in a picture: from step `start` to `end`, with the number of its part."""

    start: int
    end: int
    pitch: int
    part: int = 0


def draw_piano_roll(bars: Sequence[Bar], *, steps_per_line: int, given: int = 0, pixels_per_line: int = 28) -> bytes:
    """A PNG of notes with a line every `steps_per_line`; the first `given` steps are in gray."""
    if not bars:
        raise ShapeError("a piano roll needs at least one note")
    low, high = min(bar.pitch for bar in bars) - 2, max(bar.pitch for bar in bars) + 2
    steps = max(given, *(bar.end for bar in bars))
    scale = min(pixels_per_line / steps_per_line, MAX_WIDTH / steps)

    def x(step: int) -> int:
        return KEYBOARD + round(step * scale)

    picture = np.full((3, (high - low + 1) * ROW, x(steps) + 2), WHITE, np.uint8)

    def y(pitch: int) -> int:
        return (high - pitch) * ROW

    picture[:, :, KEYBOARD : x(given)] = GIVEN
    for pitch in range(low, high + 1):
        rows = slice(y(pitch), y(pitch) + ROW)
        if pitch % 12 in BLACK_KEYS:
            picture[:, rows, KEYBOARD:] = np.minimum(picture[:, rows, KEYBOARD:], BLACK_ROW) - 4
            picture[:, rows, : KEYBOARD * 3 // 5] = 40
        if pitch % 12 == 0:
            picture[:, rows.stop - 1, KEYBOARD:] = OCTAVE
        if pitch % 12 in (0, 5):  # between B and C, and between E and F
            picture[:, rows.stop - 1, :KEYBOARD] = 120
    for number, step in enumerate(range(0, steps + 1, steps_per_line)):
        picture[:, :, x(step)] = LINE if number % 4 else STRONG
    for bar in sorted(bars, key=lambda bar: bar.part):
        rows = slice(y(bar.pitch), y(bar.pitch) + ROW - 1)
        end = max(x(bar.end) - 1, x(bar.start) + 1)
        color = np.array(PARTS[bar.part % len(PARTS)], np.uint8)[:, None, None]
        picture[:, rows, x(bar.start) : end] = color
        picture[:, rows, x(bar.start)] = color[:, 0] // 2  # where it begins
    picture[:, :, KEYBOARD - 1] = 120
    for pitch in range(low + -low % 12, high + 1, 12):
        _write(picture, f"C{pitch // 12 - 1}", KEYBOARD - 13, y(pitch))
    return encode_png(picture)


def _write(picture: NDArray[np.uint8], text: str, x: int, y: int) -> None:
    """Small letters, as far as they are in the picture."""
    for letter in text:
        glyph = np.array([*GLYPHS[letter]], int).reshape(5, 3)
        where = picture[:, y : y + 5, x : x + 3]
        where[:, glyph[: where.shape[1]] == 1] = 60
        x += 4
