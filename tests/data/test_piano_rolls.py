"""Files of piano rolls: what is read, and what is refused in one line."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.data import piano_rolls
from regard.data.piano_rolls import Keyboard, name_pitch, parse_roll, read_pieces
from regard.errors import DataError

PIANO, OCTAVE = Keyboard(), Keyboard(12, 60)
SONG = [[60, 64], [], [62]]


def written(folder: Path, found: object, name: str = "x.json") -> Path:
    (folder / name).write_text(json.dumps(found))
    return folder / name


def roll_of(frames: list[list[int]], keyboard: Keyboard = PIANO) -> Any:
    return keyboard.parse(frames, "x")


def cells(*rolls: Any) -> Any:
    out = np.empty((1, len(rolls)), object)
    out[0, :] = rolls
    return out


def test_pitches_become_keys_and_back() -> None:
    roll = roll_of(SONG)
    assert roll.shape == (3, 88) and roll.sum() == 3 and roll[0, 39] == roll[0, 43] == 1
    assert PIANO.pitches(roll) == SONG
    assert [name_pitch(p) for p in (21, 60, 61, 108)] == ["A0", "C4", "C♯4", "C8"]
    assert np.array_equal(parse_roll(json.dumps(SONG), PIANO), roll)


def test_every_format_gives_the_same(tmp_path: Path) -> None:
    from scipy.io import savemat

    rolls = [roll_of(SONG), roll_of([[21], [108]])]
    found = {"train": [SONG, [[21], [108]]], "valid": [SONG], "test": [SONG]}
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(json.dumps(found).encode()))
    np.savez(tmp_path / "x.npz", train_1=rolls[0], train_2=rolls[1].astype(bool), valid_1=rolls[0], test=rolls[0] * 1.0)
    savemat(tmp_path / "x.mat", {"traindata": cells(*rolls), "validdata": cells(rolls[0]), "testdata": cells(rolls[0])})
    for name in ("x.json.gz", "x.npz", "x.mat"):
        parts = read_pieces(tmp_path / name, PIANO)
        assert list(parts) == ["train", "valid", "test"]
        assert [np.array_equal(p.roll, r) for p, r in zip(parts["train"], rolls, strict=True)] == [True, True]
        assert np.array_equal(parts["test"][0].roll, rolls[0])


def test_a_file_without_parts_is_in_all_of_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", first=roll_of(SONG))
    for path in (written(tmp_path, [SONG]), tmp_path / "x.npz"):
        parts = read_pieces(path, PIANO)
        assert parts["train"] is parts["valid"] is parts["test"] and len(parts["train"]) == 1


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([[[60], [20]]], r"x\.json, piece 1, frame 2: pitches go from 21 to 108, got 20; set data\.lowest"),
        ([SONG, [[60], [60.5]]], r"x\.json, piece 2, frame 2: a pitch should be a whole number, got '60\.5'"),
        ([[["c"], [60]]], r"x\.json, piece 1, frame 1: a pitch should be a whole number, got 'c'"),
        ([[60, 64]], r"x\.json, piece 1: a piece should be a list of frames, each a list of pitches"),
        ({"train": 3}, r"x\.json: 'train' should be a list of pieces, got a number"),
        ({"songs": [SONG]}, r"x\.json has the part 'songs'; it should have parts train, valid or test"),
        ({"training": [SONG], "valid": [SONG]}, r"x\.json has the part 'training'; it should have parts train"),
        ({"train": []}, r"x\.json has no pieces; it should have parts train, valid or test, got train"),
        ([[[60]]], r"x\.json, piece 1 has 1 frames; a piece needs two"),
        ("x", r"x\.json: the file should be a list of pieces, got a string"),
    ],
)
def test_what_json_is_refused(tmp_path: Path, found: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_pieces(written(tmp_path, found), PIANO)


def test_what_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.json").write_text("[[")
    with pytest.raises(DataError, match=r"bad\.json is not JSON: "):
        read_pieces(tmp_path / "bad.json", PIANO)
    with pytest.raises(
        DataError, match=r"x\.mid is not a file of piano rolls; name one that ends in \.mat, \.npz, \.json"
    ):
        read_pieces(tmp_path / "x.mid", PIANO)
    np.savez(tmp_path / "x.npz", train=roll_of(SONG))
    with pytest.raises(
        DataError, match=r"x\.npz, train: a roll should be a matrix of frames × 12 keys, got uint8 \(3, 88\)"
    ):
        read_pieces(tmp_path / "x.npz", OCTAVE)
    np.savez(tmp_path / "x.npz", train=roll_of(SONG), other=roll_of(SONG))
    with pytest.raises(DataError, match=r"x\.npz has pieces of no part; it should have parts train"):
        read_pieces(tmp_path / "x.npz", PIANO)
    np.savez(tmp_path / "x.npz", train=np.full((2, 88), 0.5))
    with pytest.raises(DataError, match=r"x\.npz, train: a roll should have zeros and ones only"):
        read_pieces(tmp_path / "x.npz", PIANO)
    np.savez(tmp_path / "x.npz", train=cells(roll_of(SONG)))
    with pytest.raises(DataError, match=r"x\.npz holds Python objects, which are not read"):
        read_pieces(tmp_path / "x.npz", PIANO)
    np.savez_compressed(tmp_path / "x.npz", train=np.zeros((40_000, 88), np.uint8))
    monkeypatch.setattr(piano_rolls, "MAX_FILE_BYTES", 1_000_000)
    with pytest.raises(DataError, match=r"x\.npz is refused: it unpacks to more than 1,000,000 bytes"):
        read_pieces(tmp_path / "x.npz", PIANO)
    for name in ("cut.npz", "cut.mat"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 nothing")
        with pytest.raises(DataError, match=rf"^cannot read .*{name}: "):
            read_pieces(tmp_path / name, PIANO)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(DataError, match=r"reading \.mat files needs scipy; .*pip install '\.\[music\]'"):
        read_pieces(tmp_path / "cut.mat", PIANO)
    for text in ("", "x", "[]", "{}", "60", "[" * 100_000):
        with pytest.raises(DataError, match=r"^a roll should be a list of frames"):
            parse_roll(text, PIANO)
