"""Pieces of music from folders, MIDI files and JSON.

    folder         all .mid and .midi files in it and below; folders train, valid and test in it are its parts
    .mid, .midi    one piece
    .json          {"train": [piece, …], "valid": …, "test": …} or [piece, …]; a piece is a list of steps, each a list of
                   MIDI pitches from soprano to bass; may be gzipped. Only for four voices

Files without parts can be given for any of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from regard.data.music.encoding import EncodingSpec
from regard.data.music.four_voices import VOICES, FourVoices, join_frames
from regard.data.music.grid_notes import PITCHES, Note
from regard.data.music.midi_file import MidiScore, parse_midi, read_midi
from regard.data.pair_reader import OnBad
from regard.data.piece_parts import Part, share_pieces
from regard.data.progress import track
from regard.errors import DataError
from regard.files.user_file import read_user_file

MIDI = (".mid", ".midi")
JSON = (".json", ".json.gz")
MAX_JSON_BYTES = 200_000_000
BEATS_PER_MINUTE = 100.0
"""The tempo of music that has none."""


@dataclass(frozen=True)
class MusicPiece:
    """The notes of a piece on the grid of an encoding, with its name in messages."""

    name: str
    notes: Sequence[Note]
    beats_per_minute: float = BEATS_PER_MINUTE

    def __str__(self) -> str:
        return self.name


@dataclass
class FoundMusic:
    """The pieces of each part, and the faults of files that were dropped."""

    parts: dict[Part, list[MusicPiece]] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)


def read_music(path: str | Path, encoding: EncodingSpec, on_bad: OnBad = "error") -> FoundMusic:
    """The pieces of each part of a folder or file; those without parts are in all of them."""
    path, found = Path(path), FoundMusic()
    if path.is_dir():
        divided = [part for part in get_args(Part) if (path / part).is_dir()]
        if divided:
            found.parts = {part: _read_folder(path / part, encoding, on_bad, found.dropped) for part in divided}
        else:
            found.parts = share_pieces(_read_folder(path, encoding, on_bad, found.dropped))
    elif path.name.lower().endswith(JSON):
        found.parts = _read_json(path, encoding)
    else:
        found.parts = share_pieces(_read_files([path], encoding, on_bad, found.dropped))
    return found


def read_piece(path: str | Path, encoding: EncodingSpec) -> MusicPiece:
    """One piece from a MIDI file."""
    if not str(path).lower().endswith(MIDI):
        raise DataError(f"{path} is not a file of music; name a folder or a file that ends in {', '.join(MIDI + JSON)}")
    return _to_piece(read_midi(path), encoding, str(path))


def parse_piece(raw: bytes, encoding: EncodingSpec, name: str) -> MusicPiece:
    """One piece from the bytes of a MIDI file."""
    return _to_piece(parse_midi(raw, name), encoding, name)


def _to_piece(score: MidiScore, encoding: EncodingSpec, name: str) -> MusicPiece:
    return MusicPiece(name, encoding.quantize(score, name), score.beats_per_minute)


def _read_folder(folder: Path, encoding: EncodingSpec, on_bad: OnBad, dropped: list[str]) -> list[MusicPiece]:
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in MIDI)
    if not files:
        raise DataError(f"{folder} has no MIDI files; they should end in {' or '.join(MIDI)}")
    return _read_files(files, encoding, on_bad, dropped)


def _read_files(files: Sequence[Path], encoding: EncodingSpec, on_bad: OnBad, dropped: list[str]) -> list[MusicPiece]:
    pieces, faults = list[MusicPiece](), list[str]()
    for path in track(files, "MIDI files", total=len(files)):
        try:
            pieces.append(read_piece(path, encoding))
        except DataError as error:
            if not (path.is_file() and path.suffix.lower() in MIDI):  # a wrong name, not a bad file
                raise
            faults.append(str(error))
    if faults and on_bad == "error":
        rest = f" ({len(faults)} of {len(files)} files have faults)" if len(faults) > 1 else ""
        raise DataError(f"{faults[0]}{rest}; fix or remove it, or drop such files with --on-bad drop")
    dropped += faults
    return pieces


def _read_json(path: Path, encoding: EncodingSpec) -> dict[Part, list[MusicPiece]]:
    if not isinstance(encoding, FourVoices):
        raise DataError(f"{path} has pitches in steps, not times; train it with data.encoding=four_voices")
    raw = read_user_file(path, MAX_JSON_BYTES, unpack=("gzip",))
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {str(error)[:80]}") from None
    if not isinstance(found, dict):
        return share_pieces(list(_parse_pieces(found, f"{path}, piece")))
    parts: dict[Part, list[MusicPiece]] = {
        part: list(_parse_pieces(found[part], f"{path}, {part}")) for part in get_args(Part) if found.get(part)
    }
    if not parts:
        raise DataError(f"{path} has no pieces; it should have parts {', '.join(get_args(Part))}")
    return parts


def _parse_pieces(pieces: object, where: str) -> Iterator[MusicPiece]:
    if not isinstance(pieces, list):
        raise DataError(f"{where} should be a list of pieces, got {type(pieces).__name__}")
    for i, frames in enumerate(pieces, 1):
        name = f"{where} {i}"
        if not isinstance(frames, list) or not all(isinstance(frame, list) for frame in frames):
            raise DataError(f"{name} should be a list of steps, each a list of pitches, such as [[72, 67, 64, 48]]")
        for j, frame in enumerate(frames, 1):
            if len(frame) > len(VOICES) or not all(type(p) in (int, float) and p in range(PITCHES) for p in frame):
                raise DataError(
                    f"{name}, step {j}: at most four pitches from 0 to {PITCHES - 1} are expected, got {str(frame)[:40]}"
                )
        yield MusicPiece(name, join_frames([[*map(int, frame)] for frame in frames]))
