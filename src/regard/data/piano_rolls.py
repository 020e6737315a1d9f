"""Piano rolls: which keys sound in each frame of a piece.

    .mat     cells `traindata`, `validdata`, `testdata` of matrices (frames × 88), as in Boulanger-Lewandowski et al. 2012
    .npz     one array (frames × keys) per piece; a name that begins with `train`, `valid` or `test` says its part
    .json    {"train": [piece, …], "valid": …, "test": …} or [piece, …]; a piece is a list of frames, each a list of
             MIDI pitches; may be gzipped

A file without parts can be given for any of them. Nothing is unpickled.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from regard.data.piece_parts import Part, share_pieces
from regard.errors import DataError, name_extra
from regard.files.user_file import read_user_file

Roll = NDArray[np.uint8]
"""1 where a key sounds, (frames, keys)."""
MAX_FILE_BYTES = 200_000_000
"""Maximum bytes of a file, also after it is unpacked."""
FORMATS = (".mat", ".npz", ".json", ".json.gz")
NAMES = ("C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B")


@dataclass(frozen=True)
class Keyboard:
    """The keys of a roll: how many, and the MIDI pitch of the lowest."""

    keys: int = 88
    lowest: int = 21

    def parse(self, frames: object, where: str) -> Roll:
        """A roll from lists of MIDI pitches."""
        if not isinstance(frames, list) or not all(isinstance(frame, list) for frame in frames):
            raise DataError(
                f"{where}: a piece should be a list of frames, each a list of pitches, such as [[60, 64], [62]]"
            )
        out = np.zeros((len(frames), self.keys), np.uint8)
        for i, frame in enumerate(frames):
            for pitch in frame:
                if isinstance(pitch, bool) or not isinstance(pitch, int | float) or pitch != pitch // 1:
                    raise DataError(
                        f"{where}, frame {i + 1}: a pitch should be a whole number, got {str(pitch)[:20]!r}"
                    )
                if not self.lowest <= pitch < self.lowest + self.keys:
                    raise DataError(
                        f"{where}, frame {i + 1}: pitches go from {self.lowest} to {self.lowest + self.keys - 1}, got "
                        f"{str(pitch)[:20]}; set data.lowest and data.keys for another keyboard"
                    )
                out[i, int(pitch) - self.lowest] = 1
        return out

    def pitches(self, roll: Roll) -> list[list[int]]:
        """The MIDI pitches of each frame."""
        return [(np.flatnonzero(frame) + self.lowest).tolist() for frame in roll]

    def check(self, roll: object, where: str) -> Roll:
        """A roll from an array of zeros and ones."""
        found = np.asarray(roll)
        if found.ndim != 2 or found.shape[1] != self.keys or found.dtype.kind not in "buif":
            raise DataError(
                f"{where}: a roll should be a matrix of frames × {self.keys} keys, got {found.dtype} {found.shape}; "
                "data.keys sets another number"
            )
        if not np.isin(found, (0, 1)).all():
            raise DataError(f"{where}: a roll should have zeros and ones only; set a threshold before saving it")
        return found.astype(np.uint8)


def name_pitch(pitch: int) -> str:
    """The name of a MIDI pitch: C4 is 60."""
    return f"{NAMES[pitch % 12]}{pitch // 12 - 1}"


@dataclass(frozen=True)
class Piece:
    """A roll with its name in messages."""

    roll: Roll
    name: str

    def __str__(self) -> str:
        return self.name


def read_pieces(path: str | Path, keyboard: Keyboard) -> dict[Part, list[Piece]]:
    """The pieces of each part of a file; those of a file without parts are in all of them."""
    path = Path(path)
    name = path.name.lower()
    if not name.endswith(FORMATS):
        raise DataError(f"{path} is not a file of piano rolls; name one that ends in {', '.join(FORMATS)}")
    if name.endswith(".mat"):
        found = _read_mat(path, keyboard)
    elif name.endswith(".npz"):
        found = _read_npz(path, keyboard)
    else:
        found = _read_json(path, keyboard)
    if short := next((piece for pieces in found.values() for piece in pieces if len(piece.roll) < 2), None):
        raise DataError(f"{short} has {len(short.roll)} frames; a piece needs two, so that there is one to predict")
    return found


def parse_roll(text: str, keyboard: Keyboard) -> Roll:
    """A roll in one line: a JSON list of frames, each a list of MIDI pitches."""
    try:
        frames = json.loads(text)
    except (ValueError, RecursionError):
        frames = None
    if not isinstance(frames, list) or not frames:
        raise DataError(
            f"a roll should be a list of frames, each a list of pitches, such as [[60, 64], [62]], got {text[:60]!r}"
        )
    return keyboard.parse(frames, "the roll")


def _read_json(path: Path, keyboard: Keyboard) -> dict[Part, list[Piece]]:
    raw = read_user_file(path, MAX_FILE_BYTES, unpack=("gzip",))
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {str(error)[:80]}") from None

    def read(pieces: object, part: str) -> list[Piece]:
        if not isinstance(pieces, list):
            what = repr(part) if isinstance(found, dict) else "the file"
            raise DataError(f"{path}: {what} should be a list of pieces, got {_name_json(pieces)}")
        names = [f"{path}, {part} {i}".replace(",  ", ", ") for i in range(1, len(pieces) + 1)]
        return [Piece(keyboard.parse(one, name), name) for one, name in zip(pieces, names, strict=True)]

    if not isinstance(found, dict):
        return share_pieces(read(found, "piece"))
    return _by_part({key: read(value, key[:20]) for key, value in found.items()}, path)


def _name_json(value: object) -> str:
    """Name the type of this value as JSON does."""
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number", dict: "an object"}
    return names.get(type(value), "null")


def _read_npz(path: Path, keyboard: Keyboard) -> dict[Part, list[Piece]]:
    raw = read_user_file(path, MAX_FILE_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            if sum(info.file_size for info in archive.infolist()) > MAX_FILE_BYTES:
                raise DataError(f"{path} is refused: it unpacks to more than {MAX_FILE_BYTES:,} bytes")
        with np.load(io.BytesIO(raw), allow_pickle=False) as arrays:
            rolls = {name: arrays[name] for name in arrays.files}
    except DataError:
        raise
    except ValueError as error:
        if "pickle" in str(error) or "Object arrays" in str(error):
            raise DataError(f"{path} holds Python objects, which are not read; save each piece as an array") from None
        raise DataError(f"cannot read {path}: {str(error)[:80]}") from None
    except Exception as error:  # a damaged archive raises many kinds
        raise DataError(f"cannot read {path}: {str(error)[:80] or type(error).__name__}") from None
    parts: dict[str, list[Piece]] = {}
    for name, roll in rolls.items():
        part = next((part for part in get_args(Part) if name.startswith(part)), "")
        parts.setdefault(part, []).append(Piece(keyboard.check(roll, f"{path}, {name}"), f"{path}, {name}"))
    return share_pieces(parts[""]) if list(parts) == [""] else _by_part(parts, path)


def _read_mat(path: Path, keyboard: Keyboard) -> dict[Part, list[Piece]]:
    raw = read_user_file(path, MAX_FILE_BYTES)
    try:
        from scipy.io import loadmat
    except ImportError:
        raise DataError(f"reading .mat files needs scipy; {name_extra('music')}") from None
    try:
        found: Mapping[str, Any] = loadmat(io.BytesIO(raw), variable_names=[f"{part}data" for part in get_args(Part)])
    except Exception as error:  # a damaged file raises many kinds
        raise DataError(f"cannot read {path}: {str(error)[:80] or type(error).__name__}") from None
    parts: dict[str, list[Piece]] = {}
    for part in get_args(Part):
        cells = found.get(f"{part}data")
        if cells is not None:
            rolls = list(cells.ravel()) if np.asarray(cells).dtype.hasobject else [cells]
            names = [f"{path}, {part} {i}" for i in range(1, len(rolls) + 1)]
            parts[part] = [Piece(keyboard.check(r, name), name) for r, name in zip(rolls, names, strict=True)]
    return _by_part(parts, path)


def _by_part(parts: Mapping[str, Sequence[Piece]], path: Path) -> dict[Part, list[Piece]]:
    if unknown := [name for name in parts if name not in get_args(Part)]:
        what = f"the part {unknown[0][:20]!r}" if unknown[0] else "pieces of no part"
        raise DataError(f"{path} has {what}; it should have parts train, valid or test")
    found: dict[Part, list[Piece]] = {part: list(parts[part]) for part in get_args(Part) if parts.get(part)}
    if not found:
        raise DataError(
            f"{path} has no pieces; it should have parts train, valid or test, got {', '.join(parts) or 'none'}"
        )
    return found
