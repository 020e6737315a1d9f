"""Words for music: exact both ways, for any notes and any words, and through MIDI files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.music.encoding import ENCODINGS, EncodingSpec
from regard.data.music.four_voices import VOICES, FourVoices, join_frames
from regard.data.music.grid_notes import Note, count_overlaps, resolve_overlaps
from regard.data.music.midi_file import MAX_TEMPO, MICROSECONDS, parse_midi
from regard.data.music.music_files import parse_piece
from regard.data.music.performance_events import Performance, level_velocity
from regard.errors import DataError
from tests.data.music.midi import make_midi, off, on

EVENTS, CHORALE = Performance(max_shift=10), FourVoices()
EXAMPLES: dict[str, EncodingSpec] = {"performance": EVENTS, "four_voices": CHORALE}


@st.composite
def performances(draw: Any) -> list[Note]:
    """Any notes, with levels of velocity, of which no two of one pitch overlap."""
    number = st.integers(0, 40)
    rows = draw(st.lists(st.tuples(number, st.integers(1, 40), st.integers(0, 127), st.integers(0, 31)), min_size=1))
    return resolve_overlaps([Note(s, s + n, p, level_velocity(v, 32)) for s, n, p, v in rows])


@st.composite
def chorales(draw: Any) -> list[Note]:
    """Four voices of notes and rests, each with at least one note."""
    out = []
    for voice in range(len(VOICES)):
        now = 0
        for gap, length, pitch in draw(
            st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 12)), min_size=1, max_size=6)
        ):
            out.append(Note(now + gap, now + gap + length, 60 - voice + pitch, part=voice))
            now += gap + length
    return sorted(out)


MUSIC = {"performance": performances(), "four_voices": chorales()}


def test_every_encoding_is_tested() -> None:
    assert set(EXAMPLES) == set(ENCODINGS)


@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_notes_survive_words_and_files(name: str, data: st.DataObject) -> None:
    """Notes → words → notes, and MIDI → words → MIDI, are equal on the grid."""
    encoding, notes = EXAMPLES[name], data.draw(MUSIC[name])
    words = encoding.encode(notes)
    assert set(words) <= set(encoding.list_words())
    assert encoding.decode(words) == notes
    raw = encoding.write(notes, 100.0)
    read = parse_piece(raw, encoding, "x.mid").notes
    assert list(read) == notes
    again = encoding.write(encoding.decode(encoding.encode(read)), 100.0)
    assert again == raw


@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_words_are_music(name: str, data: st.DataObject) -> None:
    """What a model writes can always be decoded; from then on nothing changes."""
    encoding = EXAMPLES[name]
    notes = encoding.decode(data.draw(st.lists(st.sampled_from(encoding.list_words()), max_size=60)))
    assert count_overlaps(notes) == 0
    assert all(note.start < note.end for note in notes)
    assert encoding.decode(encoding.encode(notes)) == notes


@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), by=st.integers(-12, 12))
def test_transposed_words_are_transposed_notes(name: str, data: st.DataObject, by: int) -> None:
    encoding, notes = EXAMPLES[name], data.draw(MUSIC[name])
    moved = [encoding.transpose(word, by) for word in encoding.encode(notes)]
    if all(0 <= note.pitch + by < 128 for note in notes):
        expected = [Note(n.start, n.end, n.pitch + by, n.velocity, n.part) for n in notes]
        assert encoding.decode([word for word in moved if word is not None]) == expected
    else:
        assert None in moved


def test_events_as_in_the_papers() -> None:
    """128 note-ons, 128 note-offs, 100 time-shifts of 10 ms and 32 velocities (Oore et al. 2018)."""
    encoding = Performance()
    assert len(encoding.list_words()) == len(set(encoding.list_words())) == 128 + 128 + 100 + 32
    notes = [Note(0, 50, 60, 82), Note(50, 170, 64, 98), Note(50, 170, 67, 98)]
    words = ["v20", "+C4", "t50", "-C4", "v24", "+E4", "+G4", "t100", "t20", "-E4", "-G4"]
    assert encoding.encode(notes) == words
    assert encoding.decode(words) == notes


@pytest.mark.parametrize("rate", [1, 3, 100, 1000])
@pytest.mark.parametrize("tempo", [1, 500_000, MAX_TEMPO])
def test_events_are_written_at_any_tempo(rate: int, tempo: int) -> None:
    encoding, notes = Performance(steps_per_second=rate), [Note(0, 5, 60, 82), Note(5, 7, 64, 82)]
    raw = encoding.write(notes, 60 * MICROSECONDS / tempo)
    assert encoding.quantize(parse_midi(raw, "x"), "x") == notes


@pytest.mark.parametrize("levels", [1, 2, 31, 32, 64])
def test_a_level_of_velocity_is_its_own_level(levels: int) -> None:
    assert [level_velocity(i, levels) * levels // 128 for i in range(levels)] == list(range(levels))


def test_voices_step_by_step() -> None:
    words = ["S:C5", "A:G4", "T:E4", "B:C3", "S:C5_", "A:G4_", "T:E4_", "B:C3_", "S:D5", "A:G4_", "T:F4", "B:-"]
    notes = CHORALE.decode(words)
    assert notes == [
        Note(0, 2, 48, part=3), Note(0, 2, 64, part=2), Note(0, 2, 72), Note(0, 3, 67, part=1), Note(2, 3, 65, part=2),
        Note(2, 3, 74),
    ]  # fmt: skip
    assert CHORALE.encode(notes) == words
    assert CHORALE.decode(["S:C5_", "A:-", "T:-", "B:-", "S:D5_"]) == [
        Note(0, 1, 72),
        Note(1, 2, 74),
    ]  # nothing to hold


def test_equal_pitches_of_successive_steps_are_one_note() -> None:
    notes = join_frames([[72, 67, 64, 48], [72, 67, 65], [], [72, 72, 53, 57]])
    steps = ["S:C5 A:G4 T:E4 B:C3", "S:C5_ A:G4_ T:F4 B:-", "S:- A:- T:- B:-", "S:C5 A:C5 T:F3 B:A3"]
    assert " ".join(CHORALE.encode(notes)) == " ".join(steps)


def chord(*parts: list[Any]) -> Any:
    return parse_midi(make_midi(*parts), "x.mid")


def test_voices_are_ordered_by_their_height() -> None:
    lines = [[on(0, pitch), off(480, pitch)] for pitch in (48, 60, 72, 67)]
    assert [(n.pitch, n.part) for n in CHORALE.quantize(chord(*lines), "x")] == [(48, 3), (60, 2), (67, 1), (72, 0)]


def test_voices_are_told_by_the_names_of_their_tracks() -> None:
    tracks = [[(0, "track_name", {"name": name}), on(0, p), off(480, p)] for name, p in
              (("Bass", 70), ("soprano", 50), ("Alto", 60), ("TENOR", 55))]  # fmt: skip
    assert {n.part: n.pitch for n in CHORALE.quantize(chord(*tracks), "x")} == {0: 50, 1: 60, 2: 55, 3: 70}


def test_voices_end_where_the_next_note_begins() -> None:
    legato = chord([on(0, 60), on(480, 62), off(520, 60), off(960, 62)])
    assert CHORALE.quantize(legato, "x") == [Note(0, 4, 60), Note(4, 8, 62)]


def test_what_has_no_words_is_refused() -> None:
    with pytest.raises(DataError, match=r"^x\.mid has no notes besides 1 of percussion, which are left out$"):
        EVENTS.quantize(chord([on(0, 36, channel=9), off(9, 36, channel=9)]), "x.mid")
    with pytest.raises(
        DataError,
        match=r"^x\.mid should have four parts \(tracks or channels\) for soprano, alto, tenor, bass, or one for a melody, "
        r"got 2; for other music, train with data\.encoding=performance$",
    ):
        CHORALE.quantize(chord([on(0, 60), off(9, 60)], [on(0, 62), off(9, 62)]), "x.mid")
    with pytest.raises(DataError, match=r"^x\.mid, beat 2: a voice should have one note at a time, got C4 and E4$"):
        CHORALE.quantize(chord([on(480, 60), on(481, 64), off(960, 60), off(960, 64)]), "x.mid")
    late = parse_midi(make_midi([on(960 * 1001, 60), off(960 * 1002, 60)]), "x.mid")
    with pytest.raises(DataError, match=r"^x\.mid is silent for 1,001 seconds; cut it$"):
        Performance().quantize(late, "x.mid")
