"""MIDI files: what is read of them, what is written, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from mido import MidiFile

from regard.data.music.grid_notes import Note, check_ranges, count_overlaps, resolve_overlaps
from regard.data.music.midi_file import MidiScore, parse_midi, read_midi, write_midi
from regard.errors import DataError
from tests.data.music.midi import make_midi, off, on, pedal, tempo


def notes_of(raw: bytes) -> list[tuple[int, int, int]]:
    return [(note.start, note.end, note.pitch) for note in parse_midi(raw, "x.mid").notes]


def test_a_note_on_of_velocity_zero_is_a_note_off() -> None:
    assert notes_of(make_midi([on(0, 60), on(240, 60, velocity=0), on(240, 62), off(480, 62)])) == [
        (0, 240, 60),
        (240, 480, 62),
    ]


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ([on(0, 60), on(100, 60), off(200, 60), off(300, 60)], [(0, 100, 60), (100, 200, 60)]),
        ([on(0, 60), on(100, 60), off(100, 60), off(300, 60)], [(0, 100, 60), (100, 300, 60)]),  # the off comes late
        ([on(0, 60), off(100, 60), on(100, 60), off(300, 60)], [(0, 100, 60), (100, 300, 60)]),
        ([off(0, 60), on(100, 60), off(100, 60)], [(100, 100, 60)]),  # nothing to end; no length
        ([on(0, 60), on(50, 64), off(90, 64)], [(0, 90, 60), (50, 90, 64)]),  # never released
    ],
)
def test_overlaps_and_missing_ends(moments: list, expected: list) -> None:  # type: ignore[type-arg]
    assert notes_of(make_midi(moments)) == expected


def test_the_pedal_holds_what_is_released_under_it() -> None:
    held = [
        on(0, 60),
        pedal(50, 127),
        off(100, 60),
        on(120, 62),
        off(150, 62),
        on(160, 60),
        pedal(200, 0),
        off(300, 60),
    ]
    assert notes_of(make_midi(held)) == [(0, 160, 60), (120, 200, 62), (160, 300, 60)]
    other = [pedal(0, 127, channel=1), on(0, 60), off(100, 60), on(150, 62), off(200, 62)]
    assert notes_of(make_midi(other)) == [(0, 100, 60), (150, 200, 62)]  # the pedal of another channel


def test_format_0_has_a_part_per_channel_and_format_1_per_track() -> None:
    one = make_midi([on(0, 60, channel=3), on(0, 48, channel=1), off(9, 60, channel=3), off(9, 48, channel=1)], type=0)
    assert {(note.pitch, note.part) for note in parse_midi(one, "x").notes} == {(48, 0), (60, 1)}
    two = make_midi([tempo(0, 400_000)], [on(0, 60), off(9, 60)], [on(0, 60), off(5, 60)])
    assert parse_midi(two, "x").notes == (Note(0, 5, 60, 64, 1), Note(0, 9, 60, 64, 0))


def test_percussion_is_left_out_and_counted() -> None:
    score = parse_midi(make_midi([on(0, 36, channel=9), off(9, 36, channel=9), on(0 + 9, 60), off(20, 60)]), "x")
    assert [note.pitch for note in score.notes] == [60]
    assert score.percussion == 1


def test_seconds_follow_the_tempo_and_beats_do_not() -> None:
    """120, then 60 beats a minute from beat 2 on: beats 0, 1, 2, 3, 4 are at 0, 0.5, 1, 2, 3 seconds."""
    notes = [moment for beat in range(4) for moment in (on(100 * beat, 60 + beat), off(100 * beat + 100, 60 + beat))]
    score = parse_midi(make_midi([tempo(200, 1_000_000)], notes, ticks_per_beat=100), "x")
    assert [(note.start, note.end) for note in score.to_seconds(10)] == [(0, 5), (5, 10), (10, 20), (20, 30)]
    assert [(note.start, note.end) for note in score.to_beats(4)] == [(0, 4), (4, 8), (8, 12), (12, 16)]
    assert score.beats_per_minute == 120


def test_times_are_rounded_to_the_nearest_step() -> None:
    score = MidiScore((Note(59, 60, 60), Note(60, 181, 61)), 480)
    assert [(note.start, note.end) for note in score.to_beats(4)] == [(0, 1), (1, 2)]


def test_what_was_written_is_read_again() -> None:
    notes = [Note(0, 4, 60, 90), Note(4, 6, 60, 20), Note(0, 6, 48, 64, 3), Note(2, 3, 40, 64, 12)]
    raw = write_midi(notes, ticks_per_step=7, ticks_per_beat=28, tempo=600_000, names=["One", "Two", "Three", "Four"])
    score = parse_midi(raw, "x")
    parts = {0: 0, 3: 1, 12: 2}  # as many as have notes
    assert score.to_beats(4) == sorted(Note(n.start, n.end, n.pitch, n.velocity, parts[n.part]) for n in notes)
    assert score.beats_per_minute == pytest.approx(100)
    assert score.percussion == 0
    import io

    assert [track.name for track in MidiFile(file=io.BytesIO(raw)).tracks] == ["", "One", "Four", ""]


def test_overlaps_are_counted_and_resolved() -> None:
    notes = [Note(0, 4, 60), Note(2, 6, 60), Note(2, 8, 60, 100), Note(2, 8, 60, part=1), Note(9, 9, 61)]
    assert count_overlaps(notes) == 2
    clean = resolve_overlaps(notes)
    assert clean == [Note(0, 2, 60), Note(2, 8, 60, 80, 1), Note(2, 8, 60, 100), Note(9, 10, 61)]
    assert count_overlaps(clean) == 0


def test_notes_outside_a_range_are_named() -> None:
    said = check_ranges(
        [Note(0, 1, 85), Note(0, 1, 60), Note(0, 1, 40, part=1)], {0: (60, 81), 1: (36, 50)}, ["S", "B"]
    )
    assert said == ["S: 1 notes outside C4 to A5, such as C♯6"]


GOOD = make_midi([on(0, 60), off(480, 60)])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"RIFF....", r"^x\.mid is not a MIDI file: it should begin with 'MThd', got b'RIFF'$"),
        (b"", r"^x\.mid is not a MIDI file: it should begin with 'MThd', got b''$"),
        (GOOD[:30], r"^cannot read x\.mid: it ends too early$"),
        (GOOD[:8] + b"\0\2" + GOOD[10:], r"^x\.mid is a MIDI file of format 2; only formats 0 and 1 are read$"),
        (GOOD[:12] + b"\xe7\x28" + GOOD[14:], r"^x\.mid counts time in frames of film \(SMPTE\); save it with ticks"),
        (
            make_midi([on(0, 60), off((1 << 28) - 1, 60)], ticks_per_beat=24),
            r"^x\.mid lasts 11,184,810 beats; at most 100,000 are read$",
        ),
    ],
)
def test_bad_files_are_one_line(raw: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        parse_midi(raw, "x.mid")
    assert "\n" not in str(caught.value)


def test_any_bytes_give_notes_or_a_refusal() -> None:
    """Every byte of a file is changed, and the file is cut at every byte."""
    for i in range(len(GOOD)):
        for raw in (GOOD[:i], *(GOOD[:i] + bytes([b]) + GOOD[i + 1 :] for b in (0, 0x7F, 0x80, 0xFF))):
            try:
                assert isinstance(parse_midi(raw, "x.mid"), MidiScore)
            except DataError as error:
                assert "\n" not in str(error)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*none\.mid: No such file"):
        read_midi(tmp_path / "none.mid")
