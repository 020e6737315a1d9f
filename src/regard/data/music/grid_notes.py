"""Notes on a grid of time steps, and checks of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from regard.data.piano_rolls import name_pitch

PITCHES = 128
"""Number of MIDI pitches."""
VELOCITY = 80
"""The velocity of notes whose music does not say how loud they are."""


@dataclass(frozen=True, order=True)
class Note:
    """A note from step `start` to step `end`, which it does not include."""

    start: int
    end: int
    pitch: int
    velocity: int = VELOCITY
    part: int = 0
    """The number of the voice or instrument."""


def resolve_overlaps(notes: Iterable[Note]) -> list[Note]:
    """Notes of which no two of one part and pitch sound at once, sorted.

    A note ends where it is struck again; of those that are struck together, the longest and loudest stays. A note that is
    shorter than a step lasts one.
    """
    by_key: dict[tuple[int, int], list[Note]] = defaultdict(list)
    for note in sorted(notes):
        same, longer = by_key[note.part, note.pitch], replace(note, end=max(note.end, note.start + 1))
        if same and same[-1].start == note.start:
            velocity = max(same.pop().velocity, note.velocity)  # sorted: this one is the longest so far
            longer = replace(longer, velocity=velocity)
        elif same and same[-1].end > note.start:
            same[-1] = replace(same[-1], end=note.start)
        same.append(longer)
    return sorted(note for same in by_key.values() for note in same)


def count_overlaps(notes: Sequence[Note]) -> int:
    """The number of notes that begin while another of the same part and pitch sounds."""
    ends: dict[tuple[int, int], int] = {}
    found = 0
    for note in sorted(notes):
        key = (note.part, note.pitch)
        found += ends.get(key, note.start) > note.start
        ends[key] = max(note.end, ends.get(key, note.end))
    return found


def check_ranges(notes: Sequence[Note], ranges: Mapping[int, tuple[int, int]], names: Sequence[str]) -> list[str]:
    """One line for each part with notes outside the range (lowest, highest) that it has elsewhere."""
    out = []
    for part, (low, high) in sorted(ranges.items()):
        outside = [note.pitch for note in notes if note.part == part and not low <= note.pitch <= high]
        if outside:
            span = f"{name_pitch(low)} to {name_pitch(high)}"
            out.append(f"{names[part]}: {len(outside)} notes outside {span}, such as {name_pitch(outside[0])}")
    return out
