"""Notes as events: note-on, note-off, time-shift, velocity.

The encoding of Performance RNN (Oore et al. 2018) and of the Music Transformer (Huang et al. 2018). It can represent any music
with its timing and dynamics:

    v20 +C4 t50 -C4 v24 +E4 +G4 t100 t20 -E4 -G4

    +C4    the note begins, as loud as the last velocity says            v20    velocity, in `velocities` levels
    -C4    the note ends                                                 t50    so many steps pass; longer waits take several
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from regard.data.music.encoding import ENCODINGS, PITCH_NAMES, EncodingSpec
from regard.data.music.grid_notes import VELOCITY, Note, resolve_overlaps
from regard.data.music.midi_file import MAX_TEMPO, MICROSECONDS, MidiScore, write_midi
from regard.errors import DataError
from regard.spec import Count, spec

ON, OFF, SHIFT, LOUD = "+", "-", "t", "v"
PITCH_OF = {name: pitch for pitch, name in enumerate(PITCH_NAMES)}
MAX_SHIFTS = 1000
"""Longest silence, as a number of time-shifts; a file with more is damaged."""


@ENCODINGS.add
@spec
class Performance(EncodingSpec):
    """Any music, with its timing and dynamics: note-on, note-off, time-shift and velocity."""

    steps_per_second: Annotated[int, Field(ge=1, le=1000)] = 100
    """Steps of time in a second."""
    max_shift: Count = 100
    """Steps that one time-shift can last; longer waits take several."""
    velocities: Annotated[int, Field(ge=1, le=64)] = 32
    """Levels of velocity."""
    parts = ("notes",)
    unit = "seconds"

    @property
    def steps_per_unit(self) -> int:
        return self.steps_per_second

    def list_words(self) -> list[str]:
        notes = [f"{mark}{pitch}" for mark in (ON, OFF) for pitch in PITCH_NAMES]
        shifts = [f"{SHIFT}{steps}" for steps in range(1, self.max_shift + 1)]
        return [*notes, *shifts, *(f"{LOUD}{level}" for level in range(self.velocities))]

    def quantize(self, score: MidiScore, name: str) -> list[Note]:
        if not score.notes:
            raise DataError(f"{name} has no notes{_explain_percussion(score)}")
        notes = score.to_seconds(self.steps_per_second)
        last, longest = 0, self.max_shift * MAX_SHIFTS
        for note in sorted(notes):
            if note.start - last > longest:
                raise DataError(
                    f"{name} is silent for {(note.start - last) // self.steps_per_second:,} seconds; cut it"
                )
            last = max(last, note.end)
        return resolve_overlaps([replace(n, velocity=self._round_velocity(n.velocity), part=0) for n in notes])

    def encode(self, notes: Sequence[Note]) -> list[str]:
        return encode_events(notes, max_shift=self.max_shift, velocities=self.velocities)

    def decode(self, words: Sequence[str]) -> list[Note]:
        return decode_events(words, velocities=self.velocities)

    def count_faults(self, words: Sequence[str]) -> dict[str, int]:
        """Notes that begin while they sound, and notes that end without having begun."""
        overlaps = strays = 0
        sounding = set[str]()
        for mark, pitch in ((word[0], word[1:]) for word in words if word[0] in (ON, OFF)):
            overlaps += mark == ON and pitch in sounding
            strays += mark == OFF and pitch not in sounding
            (sounding.add if mark == ON else sounding.discard)(pitch)
        return {"notes struck while they sound": overlaps, "notes that end without a beginning": strays}

    def split(self, word: str) -> tuple[str, str, str]:
        return (word[0], word[1:], "") if word[0] in (ON, OFF) else (word, "", "")

    def write(self, notes: Sequence[Note], beats_per_minute: float) -> bytes:
        """Ticks are steps, so that nothing is rounded; beats are only for the reader of the score."""
        longest = MAX_TEMPO * self.steps_per_second // MICROSECONDS
        beat = min(max(round(60 * self.steps_per_second / beats_per_minute), 1), longest)
        return write_midi(
            notes, ticks_per_step=1, ticks_per_beat=beat, tempo=MICROSECONDS * beat // self.steps_per_second
        )

    def _round_velocity(self, velocity: int) -> int:
        return level_velocity(velocity * self.velocities // 128, self.velocities)


def level_velocity(level: int, levels: int) -> int:
    """The velocity in the middle of a level."""
    return max((2 * level + 1) * 128 // (2 * levels), 1)


def encode_events(notes: Sequence[Note], *, max_shift: int, velocities: int) -> list[str]:
    """Events of notes. At one step, notes end before others begin, each from low to high."""
    moments: dict[int, tuple[list[Note], list[Note]]] = defaultdict(lambda: ([], []))
    for note in notes:
        moments[note.end][0].append(note)
        moments[note.start][1].append(note)
    out, now, loud = list[str](), 0, -1
    for step in sorted(moments):
        wait, now = step - now, step
        out += [f"{SHIFT}{max_shift}"] * (wait // max_shift)
        out += [f"{SHIFT}{wait % max_shift}"] if wait % max_shift else []
        ended, begun = (sorted(some, key=lambda note: note.pitch) for some in moments[step])
        out += [f"{OFF}{PITCH_NAMES[note.pitch]}" for note in ended]
        for note in begun:
            level = note.velocity * velocities // 128
            out += [f"{LOUD}{level}"] if level != loud else []
            out.append(f"{ON}{PITCH_NAMES[note.pitch]}")
            loud = level
    return out


def decode_events(words: Sequence[str], *, velocities: int) -> list[Note]:
    """Notes of events.

    A note that begins again while it sounds ends first; one that never ends, ends with the last event. The note-off of a
    note that does not sound is ignored.
    """
    out, now, sounding = list[Note](), 0, dict[int, Note]()
    loud = level_velocity(VELOCITY * velocities // 128, velocities)
    for word in words:
        mark, rest = word[0], word[1:]
        if mark == SHIFT:
            now += int(rest)
        elif mark == LOUD:
            loud = level_velocity(int(rest), velocities)
        else:
            pitch = PITCH_OF[rest]
            if pitch in sounding:
                out.append(replace(sounding.pop(pitch), end=now))
            if mark == ON:
                sounding[pitch] = Note(now, now, pitch, loud)
    return resolve_overlaps([*out, *(replace(note, end=now) for note in sounding.values())])


def _explain_percussion(score: MidiScore) -> str:
    return f" besides {score.percussion:,} of percussion, which are left out" if score.percussion else ""
