"""Music as words, and words as music."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from regard.data.music.grid_notes import PITCHES, Note
from regard.data.music.midi_file import MidiScore
from regard.data.piano_rolls import name_pitch
from regard.registry import Registry
from regard.spec import Spec

ENCODINGS: Registry[type[EncodingSpec]] = Registry("encoding")
PITCH_NAMES = [name_pitch(pitch) for pitch in range(PITCHES)]
"""C4 is 60."""


class EncodingSpec(Spec):
    """A vocabulary for music. Encoding what was decoded gives the same words, and the other way round the same notes."""

    registry = ENCODINGS
    parts: ClassVar[tuple[str, ...]]
    """The names of the parts that notes have."""
    unit: ClassVar[str]
    """Unit of time: beats or seconds."""

    @property
    def steps_per_unit(self) -> int:
        """Steps in a beat, or in a second."""
        raise NotImplementedError

    def list_words(self) -> list[str]:
        """The whole vocabulary, in the order of its ids."""
        raise NotImplementedError

    def quantize(self, score: MidiScore, name: str) -> list[Note]:
        """The notes of a file on the grid, as they can be encoded; raises if this encoding has no words for them."""
        raise NotImplementedError

    def encode(self, notes: Sequence[Note]) -> list[str]:
        """Notes on the grid as words."""
        raise NotImplementedError

    def decode(self, words: Sequence[str]) -> list[Note]:
        """Words as notes on the grid; any sequence of words is music."""
        raise NotImplementedError

    def count_faults(self, words: Sequence[str]) -> dict[str, int]:
        """Irregularities of words, which can be decoded nevertheless, with their counts."""
        raise NotImplementedError

    def split(self, word: str) -> tuple[str, str, str]:
        """Split a word into what comes before its pitch, the pitch, and what comes after it; no pitch is empty."""
        raise NotImplementedError

    def transpose(self, word: str, by: int) -> str | None:
        """The word for a pitch so many semitones higher; None if there is none."""
        before, pitch, after = self.split(word)
        if not pitch:
            return word
        moved = PITCH_NAMES.index(pitch) + by
        return f"{before}{PITCH_NAMES[moved]}{after}" if 0 <= moved < PITCHES else None

    def write(self, notes: Sequence[Note], beats_per_minute: float) -> bytes:
        """Notes on the grid as a MIDI file."""
        raise NotImplementedError
