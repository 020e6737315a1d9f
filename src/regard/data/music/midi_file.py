"""MIDI files in and out, on the `mido` library.

Formats 0 and 1 are read. A part is a channel of a track. Possible contents of a file, and what becomes of them:

    note-on of velocity 0            a note-off
    struck again while it sounds     the first note ends there
    released under the pedal         it sounds until the pedal rises (controller 64)
    never released                   it ends with the last event of the file
    percussion (channel 10)          left out, and counted
    tempo changes                    kept for times in seconds; times in beats do not depend on them
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.data.music.grid_notes import Note, resolve_overlaps
from regard.errors import DataError, name_extra
from regard.files.user_file import read_user_file

if TYPE_CHECKING:
    from mido import Message

MAX_FILE_BYTES = 20_000_000
MAX_BEATS = 100_000
"""Beats of the longest piece that is read; files that claim more are damaged."""
MICROSECONDS = 1_000_000
TEMPO = 500_000
"""Microseconds per beat where a file says nothing: 120 beats per minute."""
MAX_TEMPO = (1 << 24) - 1
"""The most microseconds per beat that a file can hold."""
PERCUSSION = 9
SUSTAIN = 64
"""The controller of the pedal."""


@dataclass(frozen=True)
class MidiScore:
    """The notes of a file in ticks, with what is needed to convert ticks."""

    notes: tuple[Note, ...]
    ticks_per_beat: int
    tempos: tuple[tuple[int, int], ...] = ((0, TEMPO),)
    """Start of each tempo, in ticks, and its microseconds per beat; the first begins at 0."""
    percussion: int = 0
    """Number of notes that were left out."""
    names: tuple[str, ...] = ()
    """The name of each part's track."""

    @property
    def beats_per_minute(self) -> float:
        """The tempo at the beginning."""
        return 60 * MICROSECONDS / self.tempos[0][1]

    def to_beats(self, steps_per_beat: int) -> list[Note]:
        """Notes in steps of so many per beat, each start and end at the nearest."""
        return [
            Note(
                _nearest(note.start * steps_per_beat, self.ticks_per_beat),
                _nearest(note.end * steps_per_beat, self.ticks_per_beat),
                note.pitch, note.velocity, note.part,
            )
            for note in self.notes
        ]  # fmt: skip

    def to_seconds(self, steps_per_second: int) -> list[Note]:
        """Notes in steps of so many per second, each start and end at the nearest."""
        firsts, passed = [tick for tick, _ in self.tempos], [0]
        for (tick, tempo), (later, _) in zip(self.tempos, self.tempos[1:], strict=False):
            passed.append(passed[-1] + (later - tick) * tempo)
        unit = self.ticks_per_beat * MICROSECONDS

        def convert(tick: int) -> int:
            i = bisect_right(firsts, tick) - 1
            return _nearest((passed[i] + (tick - firsts[i]) * self.tempos[i][1]) * steps_per_second, unit)

        return [Note(convert(n.start), convert(n.end), n.pitch, n.velocity, n.part) for n in self.notes]


def _nearest(numerator: int, denominator: int) -> int:
    """The quotient, rounded to the nearest whole number; halves are rounded up."""
    return (2 * numerator + denominator) // (2 * denominator)


# ------------------------------------------------------------------------------------------------- in


def read_midi(path: str | Path) -> MidiScore:
    """Read a MIDI file that a user named."""
    return parse_midi(read_user_file(path, MAX_FILE_BYTES), str(path))


def parse_midi(raw: bytes, name: str) -> MidiScore:
    """The notes of a MIDI file; `name` names it in messages."""
    try:
        from mido import MidiFile
    except ImportError:
        raise DataError(f"reading MIDI files needs mido; {name_extra('music')}") from None
    if not raw.startswith(b"MThd"):
        raise DataError(f"{name} is not a MIDI file: it should begin with 'MThd', got {raw[:4]!r}")
    try:
        file = MidiFile(file=io.BytesIO(raw), clip=True)
    except EOFError:
        raise DataError(f"cannot read {name}: it ends too early") from None
    except Exception as error:  # a damaged file raises many kinds
        raise DataError(f"cannot read {name}: {str(error)[:80] or type(error).__name__}") from None
    if file.type not in (0, 1):
        raise DataError(f"{name} is a MIDI file of format {file.type}; only formats 0 and 1 are read")
    if file.ticks_per_beat <= 0:
        raise DataError(f"{name} counts time in frames of film (SMPTE); save it with ticks per beat")
    end = max((sum(message.time for message in track) for track in file.tracks), default=0)
    if end > MAX_BEATS * file.ticks_per_beat:
        raise DataError(f"{name} lasts {end // file.ticks_per_beat:,} beats; at most {MAX_BEATS:,} are read")
    reader = _NoteReader()
    for tick, track, message in _merge(file.tracks):
        reader.read(tick, track, message)
    return reader.finish(end, file.ticks_per_beat)


def _merge(tracks: Sequence[Sequence[Message]]) -> Iterator[tuple[int, int, Message]]:
    """The messages of all tracks in the order of time, then of the file, with their ticks and tracks."""
    found = []
    for number, track in enumerate(tracks):
        tick = 0
        for message in track:
            tick += message.time
            found.append((tick, number, message))
    return iter(sorted(found, key=lambda each: each[0]))  # stable


@dataclass
class _Open:
    start: int
    velocity: int
    released: bool = False


class _NoteReader:
    """Follows messages and collects notes."""

    def __init__(self) -> None:
        self._tick = 0
        self._sounding: dict[tuple[int, int, int], _Open] = {}  # (track, channel, pitch)
        self._struck_again: set[tuple[int, int, int]] = set()  # at this tick
        self._pedals: set[int] = set()  # channels
        self._notes: list[tuple[tuple[int, int], Note]] = []
        self._tempos: dict[int, int] = {0: TEMPO}
        self._percussion, self._names = 0, dict[int, str]()

    def read(self, tick: int, track: int, message: Message) -> None:
        if tick > self._tick:
            self._tick = tick
            self._struck_again.clear()
        if message.type == "set_tempo":
            self._tempos[tick] = max(int(message.tempo), 1)
        elif message.type == "track_name":
            self._names.setdefault(track, message.name.strip())
        elif message.type in ("note_on", "note_off") and message.channel == PERCUSSION:
            self._percussion += message.type == "note_on" and message.velocity > 0
        elif message.type == "note_on" and message.velocity > 0:
            key = (track, message.channel, message.note)
            if key in self._sounding:
                self._end(key)
                self._struck_again.add(key)
            self._sounding[key] = _Open(tick, message.velocity)
        elif message.type in ("note_on", "note_off"):
            self._release((track, message.channel, message.note))
        elif message.type == "control_change" and message.control == SUSTAIN:
            self._press(message.channel, down=message.value >= 64)

    def _release(self, key: tuple[int, int, int]) -> None:
        if key in self._struck_again:  # the end of the note before, written after the new one
            self._struck_again.discard(key)
        elif key in self._sounding and key[1] in self._pedals:
            self._sounding[key].released = True
        elif key in self._sounding:
            self._end(key)

    def _press(self, channel: int, *, down: bool) -> None:
        if down:
            self._pedals.add(channel)
            return
        self._pedals.discard(channel)
        for key in [k for k, note in self._sounding.items() if k[1] == channel and note.released]:
            self._end(key)

    def _end(self, key: tuple[int, int, int]) -> None:
        note = self._sounding.pop(key)
        self._notes.append((key[:2], Note(note.start, self._tick, key[2], note.velocity)))

    def finish(self, end: int, ticks_per_beat: int) -> MidiScore:
        self._tick = end
        for key in list(self._sounding):
            self._end(key)
        parts = {part: i for i, part in enumerate(sorted({part for part, _ in self._notes}))}
        notes = [Note(n.start, n.end, n.pitch, n.velocity, parts[part]) for part, n in self._notes]
        names, tempos = tuple(self._names.get(track, "") for track, _ in parts), tuple(sorted(self._tempos.items()))
        return MidiScore(tuple(sorted(notes)), ticks_per_beat, tempos, self._percussion, names)


# ------------------------------------------------------------------------------------------------- out


def write_midi(
    notes: Sequence[Note], *, ticks_per_step: int, ticks_per_beat: int, tempo: int = TEMPO, names: Sequence[str] = ()
) -> bytes:
    """A MIDI file of format 1 with a track per part; `names` are those of the parts."""
    try:
        from mido import Message, MetaMessage, MidiFile, MidiTrack
    except ImportError:
        raise DataError(f"writing MIDI files needs mido; {name_extra('music')}") from None
    file = MidiFile(type=1, ticks_per_beat=ticks_per_beat)
    file.tracks.append(MidiTrack([MetaMessage("set_tempo", tempo=tempo)]))
    notes = resolve_overlaps(notes)
    for part in sorted({note.part for note in notes}):
        track, channel = MidiTrack(), (part + (part >= PERCUSSION)) % 16
        if part < len(names):
            track.append(MetaMessage("track_name", name=names[part]))
        moments = [(n.end, 0, n.pitch, 0) for n in notes if n.part == part]
        moments += [(n.start, 1, n.pitch, n.velocity) for n in notes if n.part == part]
        before = 0
        for step, on, pitch, velocity in sorted(moments):  # a note ends before it is struck again
            kind, wait = "note_on" if on else "note_off", (step - before) * ticks_per_step
            track.append(Message(kind, channel=channel, note=pitch, velocity=velocity, time=wait))
            before = step
        file.tracks.append(track)
    out = io.BytesIO()
    file.save(file=out)
    return out.getvalue()
