"""Four voices, a word for each of them in every sixteenth.

Soprano, alto, tenor and bass are serialized step by step, as is usual for the chorales of Bach (Huang et al. 2018):

              step 0     step 1     step 2
    soprano   S:C5       S:C5_      S:D5          S:C5     a note begins
    alto      A:G4       A:G4_      A:G4_         S:C5_    it goes on
    tenor     T:E4       T:E4_      T:F4          S:-      silence
    bass      B:C3       B:C3_      B:B2

    S:C5 A:G4 T:E4 B:C3 S:C5_ A:G4_ T:E4_ B:C3_ S:D5 A:G4_ T:F4 B:B2

The letters help a model that sees a part of a piece; when words are decoded, the voice is the place modulo four, so that any
sequence of words is music. Given the words before, letters say nothing new, and where equal pitches of successive steps are one
note, neither do the marks of notes that go on: the likelihood of the words is that of the pitches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import mean
from typing import Annotated

from pydantic import Field

from regard.data.music.encoding import ENCODINGS, PITCH_NAMES, EncodingSpec
from regard.data.music.grid_notes import VELOCITY, Note
from regard.data.music.midi_file import MICROSECONDS, MidiScore, write_midi
from regard.data.piano_rolls import name_pitch
from regard.errors import DataError
from regard.spec import spec

VOICES = ("soprano", "alto", "tenor", "bass")
LETTERS = "SATB"
HOLD, REST = "_", "-"
TICKS_PER_STEP = 120
PITCH_OF = {name: pitch for pitch, name in enumerate(PITCH_NAMES)}


@ENCODINGS.add(also=("voices", "satb", "chorale"))
@spec
class FourVoices(EncodingSpec):
    """Soprano, alto, tenor and bass, each with one note at a time."""

    steps_per_beat: Annotated[int, Field(ge=1, le=48)] = 4
    """Steps in a quarter note; 4 are sixteenths."""
    parts = VOICES
    unit = "beats"

    @property
    def steps_per_unit(self) -> int:
        return self.steps_per_beat

    def list_words(self) -> list[str]:
        said = [REST, *PITCH_NAMES, *(f"{pitch}{HOLD}" for pitch in PITCH_NAMES)]
        return [f"{letter}:{word}" for letter in LETTERS for word in said]

    def quantize(self, score: MidiScore, name: str) -> list[Note]:
        """Four parts, by the names of their tracks or from the highest on the average to the lowest; or one, a melody, as
        the soprano."""
        count = len({note.part for note in score.notes})
        if count not in (1, len(VOICES)):
            raise DataError(
                f"{name} should have four parts (tracks or channels) for {', '.join(VOICES)}, or one for a melody, got "
                f"{count}; for other music, train with data.encoding=performance"
            )
        return arrange_voices(score.to_beats(self.steps_per_beat), name, self.steps_per_beat, score.names)

    def encode(self, notes: Sequence[Note]) -> list[str]:
        return encode_voices(notes)

    def decode(self, words: Sequence[str]) -> list[Note]:
        return decode_voices(words)

    def count_faults(self, words: Sequence[str]) -> dict[str, int]:
        """Words of another voice, notes that go on without having begun, and steps in which a voice is above the next
        higher one."""
        count = len(VOICES)
        pitches = [word[2:].removesuffix(HOLD) for word in words]
        misplaced = sum(word[0] != LETTERS[i % count] for i, word in enumerate(words))
        strays = sum(
            word.endswith(HOLD) and (i < count or pitches[i - count] != pitches[i]) for i, word in enumerate(words)
        )
        crossed = 0
        for i in range(0, len(words), count):
            chord = [PITCH_OF[pitch] for pitch in pitches[i : i + count] if pitch != REST]
            crossed += any(low > high for high, low in pairwise(chord))
        return {
            "words of another voice": misplaced, "notes that go on without a beginning": strays,
            "steps with crossed voices": crossed,
        }  # fmt: skip

    def split(self, word: str) -> tuple[str, str, str]:
        pitch = word[2:].removesuffix(HOLD)
        return (word[:2], pitch, word[2 + len(pitch) :]) if pitch != REST else (word, "", "")

    def write(self, notes: Sequence[Note], beats_per_minute: float) -> bytes:
        return write_midi(
            notes, ticks_per_step=TICKS_PER_STEP, ticks_per_beat=TICKS_PER_STEP * self.steps_per_beat,
            tempo=round(60 * MICROSECONDS / beats_per_minute), names=[name.title() for name in VOICES],
        )  # fmt: skip


def arrange_voices(notes: Sequence[Note], name: str, steps_per_beat: int, tracks: Sequence[str] = ()) -> list[Note]:
    """Parts as voices; each note ends where the next begins.

    Tracks that are named for the voices say which is which; others are ordered by height, on the average.
    """
    by_part: dict[int, list[Note]] = {}
    for note in sorted(notes):
        by_part.setdefault(note.part, []).append(note)
    out = list[Note]()
    ordered = sorted(by_part, key=lambda part: (-mean(note.pitch for note in by_part[part]), part))
    named = [track.lower() for track in tracks]
    if sorted(named) == sorted(VOICES):
        ordered = [named.index(voice) for voice in VOICES]
    for voice, part in enumerate(ordered):
        line = by_part[part]
        for note, after in zip(line, [*line[1:], None], strict=True):
            if after is not None and after.start == note.start:
                raise DataError(
                    f"{name}, beat {note.start // steps_per_beat + 1}: a voice should have one note at a time, got "
                    f"{name_pitch(note.pitch)} and {name_pitch(after.pitch)}"
                )
            end = max(note.end, note.start + 1)
            out.append(
                replace(note, end=end if after is None else min(end, after.start), part=voice, velocity=VELOCITY)
            )
    return sorted(out)


def encode_voices(notes: Sequence[Note]) -> list[str]:
    """Words of four voices, step by step."""
    steps = max((note.end for note in notes), default=0)
    out = [f"{letter}:{REST}" for letter in LETTERS] * steps
    for note in notes:
        pitch = f"{LETTERS[note.part]}:{PITCH_NAMES[note.pitch]}"
        first, last = len(VOICES) * note.start + note.part, len(VOICES) * note.end
        out[first : last : len(VOICES)] = [pitch, *[f"{pitch}{HOLD}"] * (note.end - note.start - 1)]
    return out


def decode_voices(words: Sequence[str]) -> list[Note]:
    """Notes of four voices. A note that goes on without having begun begins there; what a last step lacks is silent."""
    out = list[Note]()
    for voice in range(len(VOICES)):
        sounding: Note | None = None
        for step, word in enumerate(words[voice :: len(VOICES)]):
            pitch = PITCH_OF.get(word[2:].removesuffix(HOLD))
            if sounding is not None and pitch == sounding.pitch and word.endswith(HOLD):
                sounding = replace(sounding, end=step + 1)
                continue
            out += [] if sounding is None else [sounding]
            sounding = None if pitch is None else Note(step, step + 1, pitch, part=voice)
        out += [] if sounding is None else [sounding]
    return sorted(out)


def join_frames(frames: Sequence[Sequence[int]]) -> list[Note]:
    """Voices from a list of pitches per step, from soprano to bass; equal pitches of successive steps are one note.

    A step with fewer pitches lacks its lowest voices.
    """
    words, before = list[str](), [-1] * len(VOICES)
    for frame in frames:
        now = [*frame, *[-1] * (len(VOICES) - len(frame))]
        for letter, old, new in zip(LETTERS, before, now, strict=True):
            words.append(f"{letter}:" + (REST if new < 0 else PITCH_NAMES[new] + (HOLD if new == old else "")))
        before = now
    return decode_voices(words)
