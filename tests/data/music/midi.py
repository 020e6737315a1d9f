"""MIDI files made by hand, message by message, with mido alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from mido import Message, MetaMessage, MidiFile, MidiTrack

Moment = tuple[int, str, dict[str, Any]]


def make_midi(*tracks: Sequence[Moment], ticks_per_beat: int = 480, type: int = 1) -> bytes:
    """A file of tracks of (tick, message type, arguments), in the order given."""
    file = MidiFile(type=type, ticks_per_beat=ticks_per_beat)
    for moments in tracks:
        track, before = MidiTrack(), 0
        for tick, kind, more in moments:
            kinds = MetaMessage if kind in ("set_tempo", "end_of_track", "track_name") else Message
            track.append(kinds(kind, time=tick - before, **more))
            before = tick
        file.tracks.append(track)
    out = io.BytesIO()
    file.save(file=out)
    return out.getvalue()


def on(tick: int, note: int, velocity: int = 64, channel: int = 0) -> Moment:
    return tick, "note_on", {"note": note, "velocity": velocity, "channel": channel}


def off(tick: int, note: int, channel: int = 0) -> Moment:
    return tick, "note_off", {"note": note, "channel": channel}


def pedal(tick: int, value: int, channel: int = 0) -> Moment:
    return tick, "control_change", {"control": 64, "value": value, "channel": channel}


def tempo(tick: int, value: int) -> Moment:
    return tick, "set_tempo", {"tempo": value}
