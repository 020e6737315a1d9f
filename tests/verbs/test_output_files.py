"""`regard run --out`: files of outputs, where they go, and what is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from unittest import mock

import pytest

from regard.data.music.four_voices import FourVoices
from regard.data.music.grid_notes import Note
from regard.data.music.synthesizer import Synthesizer
from regard.errors import DataError
from regard.tasks.music import Music
from tests.faulty import limited_file_size
from tests.verbs.calling import call
from tests.verbs.conftest import settings, train

SYNTHESIZER = """#!/bin/sh
while [ $# -gt 1 ]; do [ "$1" = -o ] && target="$2"; shift; done
head -c 4 "$1" | grep -q MThd || { echo "not MIDI" >&2; exit 1; }
printf 'RIFF of %s' "$(head -c 4 "$1")" > "$target"
"""
"""Stands for TiMidity++, with its options: a machine of tests has no sound."""


@pytest.fixture(scope="module")
def songs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of chorales, and a melody beside it."""
    here = tmp_path_factory.mktemp("music")
    for i in range(4):
        notes = [Note(2 * j, 2 * j + 2, 72 - 6 * v + (i + j) % 3, part=v) for j in range(4) for v in range(4)]
        (here / "songs").mkdir(exist_ok=True)
        (here / "songs" / f"{i}.mid").write_bytes(FourVoices().write(notes, 100))
    (here / "melody.mid").write_bytes(FourVoices().write([Note(0, 2, 72), Note(2, 4, 74)], 100))
    small = (
        "train.steps=2",
        "train.schedule.warmup=0",
        "data.context=16",
        "model.width=8",
        "model.depth=1",
        "model.heads=2",
    )
    train("chorales", here / "songs", "--out", here / "run", *settings(*small))
    return here


@pytest.fixture(autouse=True)
def silence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No synthesizer but those that a test puts into this folder."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(Synthesizer, "find", classmethod(_find_in(tmp_path / "bin")))
    return tmp_path / "bin"


def _find_in(folder: Path):  # type: ignore[no-untyped-def]
    def find(cls: type[Synthesizer]) -> Synthesizer | None:
        program = folder / "timidity"
        return cls(str(program)) if program.exists() else None

    return find


def test_one_output_is_named(songs: Path, tmp_path: Path) -> None:
    """A melody becomes a chorale: a MIDI file and a picture; the line is the path, then what is odd about it."""
    out = tmp_path / "new" / "chorale.mid"
    said = call("run", songs / "run", songs / "melody.mid", "--out", out)
    assert (said.code, said.err) == (0, "")
    assert said.lines[0] == str(out)
    assert said.lines[1].startswith("  harmonized: ")
    assert out.read_bytes().startswith(b"MThd")
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert not out.with_suffix(".wav").exists()


def test_several_outputs_go_to_a_folder(songs: Path, tmp_path: Path) -> None:
    """As many lines as inputs; equal names are numbered; one that cannot be read is an empty line."""
    (tmp_path / "bad.mid").write_text("no")
    given = [songs / "songs" / "0.mid", tmp_path / "bad.mid", songs / "songs" / "0.mid"]
    said = call("run", songs / "run", *given, "--out", tmp_path / "out", "--length", 8, "--json")
    assert said.code == 2
    assert "bad.mid is not a MIDI file" in said.err
    rows = [json.loads(line) for line in said.lines]
    assert [row["outputs"][0]["text"] if row["outputs"] else "" for row in rows] == [
        str(tmp_path / "out" / "0.mid"), "", str(tmp_path / "out" / "0-2.mid"),
    ]  # fmt: skip
    assert rows[0]["outputs"][0]["files"] == [str(tmp_path / "out" / name) for name in ("0.mid", "0.png")]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"0.mid", "0.png", "0-2.mid", "0-2.png"}


def test_words_too_long_for_a_path_are_written_again(songs: Path, tmp_path: Path) -> None:
    words = " ".join(["S:C5 A:G4 T:E4 B:C3"] * 20)
    for _ in range(2):
        said = call("run", songs / "run", words, "--length", 4, "--out", tmp_path / "x.mid")
        assert said.code == 0, said.err


def test_an_output_that_cannot_be_written_leaves_the_old_one(songs: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.mid"
    out.write_bytes(b"the old one")
    with limited_file_size(30):
        said = call("run", songs / "run", songs / "melody.mid", "--out", out)
    assert said.code == 3
    assert said.err == f"regard: cannot write x.mid in {tmp_path} (File too large)\n"
    assert (out.read_bytes(), sorted(tmp_path.glob("*x*"))) == (b"the old one", [out])


def test_audio_is_written_where_there_is_a_synthesizer(songs: Path, tmp_path: Path, silence: Path) -> None:
    silence.mkdir()
    program = silence / "timidity"
    program.write_text(SYNTHESIZER)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    out = tmp_path / "x.mid"
    assert call("run", songs / "run", songs / "melody.mid", "--out", out).code == 0
    assert out.with_suffix(".wav").read_text() == "RIFF of MThd"
    with pytest.raises(DataError, match=r"timidity made no audio: not MIDI$"):
        Synthesizer(str(program)).render(b"nothing")
    program.write_text("#!/bin/sh\nexit 3\n")
    said = call("run", songs / "run", songs / "melody.mid", "--out", out)
    assert said.code == 0
    assert "timidity made no audio: exit code 3" in said.err
    with pytest.raises(DataError, match=r"made no audio: .*No such file"):
        Synthesizer(str(tmp_path / "none")).render(b"")


def test_what_is_refused(songs: Path, model: Path, tmp_path: Path) -> None:
    melody = songs / "melody.mid"
    for words, message in (
        ((songs / "run", melody, "--out", tmp_path / "x.wav"), "--out should end in .mid or be a folder, got "),
        ((songs / "run", melody, "--out", melody), "would overwrite the input; choose another name"),
        ((model, "abc", "--out", tmp_path / "x"), "this model's outputs are text; write them with > "),
        ((model, "abc", "--stream", "--beam", 1, "--out", "x"), "leave out --json, --with, --glossary and --out"),
    ):
        said = call("run", *words)
        assert said.code == 2
        assert message in said.err
    with mock.patch.object(Music, "run", side_effect=AssertionError("refused before anything is made")):
        assert call("run", songs / "run", melody, "--out", tmp_path / "x.wav").code == 2
    assert call("run", songs / "run", melody, "--no-sample", "--length", 4).lines[1].startswith("  harmonized: ")


def test_files_are_no_texts_by_mistake(songs: Path) -> None:
    """The path of a file is what this model reads: nothing is said of it."""
    said = call("run", songs / "run", songs / "melody.mid")
    assert said.err == ""
    assert len(said.lines[0].split()) == 16


def test_look_writes_its_page_into_a_device_and_says_no_path(model: Path) -> None:
    """The page itself may go to stdout, where a path would end up in it."""
    said = call("look", model, "abc", "--out", "/dev/null")
    assert (said.code, said.out, said.err) == (0, "", "")
    assert Path("/dev/null").is_char_device()


def test_look_refuses_a_folder_before_it_opens_the_model() -> None:
    said = call("look", "nowhere", "abc", "--out", ".")
    assert (said.code, said.err) == (2, "regard: . is a directory; name a file in it\n")
