"""Music: pieces from files, other keys in every epoch, continuations, harmonies, and what is refused."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import regard
from regard.data.music.four_voices import FourVoices
from regard.data.music.grid_notes import Note
from regard.data.music.music_files import MusicPiece, parse_piece, read_music
from regard.data.music.performance_events import Performance
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import CheckpointError, DataError, SpecError
from regard.families import gpt
from regard.serve.operations import read_inputs
from regard.tasks.music import Music, MusicData
from regard.training.run.messages import suggest_commands
from tests.data.music.midi import make_midi, off, on

CHORALE, EVENTS = FourVoices(), Performance(max_shift=20, velocities=4)
CHORDS = [(72, 67, 64, 48), (74, 67, 65, 47), (76, 67, 60, 48), (77, 69, 60, 41)]


def chorale(start: int = 0, length: int = 6) -> list[Note]:
    """Chords of two sixteenths each."""
    chosen = [CHORDS[(start + i) % 4] for i in range(length)]
    return sorted(Note(2 * i, 2 * i + 2, p, part=v) for i, chord in enumerate(chosen) for v, p in enumerate(chord))


def write(folder: Path, name: str, notes: list[Note], encoding: Any = CHORALE) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoding.write(notes, 90.0))
    return path


def folder_of(tmp_path: Path, count: int = 5) -> Path:
    for i in range(count):
        write(tmp_path, f"songs/{i}.mid", chorale(i))
    return tmp_path / "songs"


def prepared(tmp_path: Path, **more: Any) -> tuple[Music, Any]:
    settings = MusicData(train=(str(folder_of(tmp_path)),), **{"encoding": CHORALE, "context": 16, **more})
    dataset = Music.read(settings, 1)
    return Music.prepare(settings, dataset), dataset


def net_of(task: Music, length: int = 16) -> Any:
    more: dict[str, Any] = {"embed": {"position": None}, "decoder": {"position": {"kind": "relative", "values": False}}}
    spec = gpt.spec(width=8, depth=1, heads=2, hidden=16, dropout=0.0, vocab=task.tokenizer.size, length=length)
    return task.adapt_spec(spec.overlay(more)).build(seed=1).eval()


def test_pieces_come_from_folders(tmp_path: Path) -> None:
    """Below it, too; its folders train, valid and test are parts; others are split by the seed."""
    task, dataset = prepared(tmp_path)
    assert len(dataset.train.documents) == 4
    assert len(dataset.valid.documents) == 1
    assert dataset.messages == ["4 pieces of 192 words for training, 1 piece of 48 words for validation"]
    assert task.ranges == {0: (72, 77), 1: (67, 69), 2: (60, 65), 3: (41, 48)}
    assert task.tokenizer.size == 4 + 4 * 257
    for i, part in enumerate(("train", "train", "valid", "test")):
        write(tmp_path, f"parts/{part}/deep/{i}.MID", chorale(i))
    found = read_music(tmp_path / "parts", CHORALE).parts
    assert {part: len(pieces) for part, pieces in found.items()} == {"train": 2, "valid": 1, "test": 1}
    assert list(found["test"][0].notes) == chorale(3)
    assert found["test"][0].beats_per_minute == pytest.approx(90)


def test_chorales_as_json(tmp_path: Path) -> None:
    frames = [[float(pitch) for pitch in CHORDS[i // 2]] for i in range(8)]  # as some files have them
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"train": [frames, frames], "valid": [frames], "test": [frames[2:]]}))
    settings = MusicData(train=(str(path),), encoding=CHORALE)
    dataset = Music.read(settings, 1)
    words = dataset.train.documents[0].split()
    assert words[8:16] == [
        "S:D5",
        "A:G4_",
        "T:F4",
        "B:B2",
        "S:D5_",
        "A:G4_",
        "T:F4_",
        "B:B2_",
    ]  # the alto has one long note
    tested = Music.read_test(settings, [str(path)]).documents[0].split()
    assert tested[:8] == ["S:D5", "A:G4", "T:F4", "B:B2", "S:D5_", "A:G4_", "T:F4_", "B:B2_"]


def test_each_epoch_has_other_keys_within_the_range(tmp_path: Path) -> None:
    task, dataset = prepared(tmp_path, transpose=3, context=64)
    task.ranges = {0: (70, 79), 1: (60, 70), 2: (60, 70), 3: (40, 50)}
    examples = task.encode(dataset.train)
    seen = set()
    for epoch in range(12):
        texts = task.augment(examples, 7, epoch).windows.texts
        again = task.augment(examples, 7, epoch).windows.texts
        assert texts == again
        for before, after in zip(examples.windows.texts, texts, strict=True):
            notes, moved = (CHORALE.decode(task.tokenizer.tokens(ids[1:-1])) for ids in (before, after))
            by = moved[0].pitch - notes[0].pitch
            assert moved == [Note(n.start, n.end, n.pitch + by, n.velocity, n.part) for n in notes]
            seen.add(by)
    assert seen == {-1, 0, 1, 2}  # from 41 down to 40, from 77 up to 79
    still, _ = prepared(tmp_path, transpose=0)
    assert still.augment(examples, 7, 1) is examples


def test_a_stream_has_other_keys_too(tmp_path: Path) -> None:
    task, dataset = prepared(tmp_path, transpose=3, stream=True)
    task.ranges = {0: (30, 90)}
    examples = task.encode(dataset.train)
    moved = task.augment(examples, 1, 2)
    assert moved.ids.shape == examples.ids.shape
    assert (moved.ids != examples.ids).any()


def test_a_continuation_goes_on_where_the_piece_ends(tmp_path: Path) -> None:
    """The file has the piece unchanged, then as many words as were asked for, also beyond a full context."""
    task, _ = prepared(tmp_path)
    net, path = net_of(task), write(tmp_path, "given.mid", chorale())
    search = Search(beam=1, sample=True, max_extra=40, seed=3)
    ((best,),) = task.run(TorchEngine(net), [str(path)], search, task.Options())
    words = best.text.split()
    assert len(words) == 40
    notes = parse_piece(best.files[".mid"], CHORALE, "x").notes
    assert CHORALE.encode(notes)[: 4 * 12] == CHORALE.encode(chorale())
    assert notes == CHORALE.decode([*CHORALE.encode(chorale()), *words])
    assert best.more["given"] == 12
    assert best.explanation[0].startswith("continued by ")
    ((new,),) = task.run(TorchEngine(net), [""], search, task.Options())
    assert new.explanation[0].startswith("written: ") and len(new.text.split()) == 40
    assert best.explanation[-2].startswith("notes that go on without a beginning: ")
    assert [line for line in best.explanation if line.startswith("soprano: ")]  # an untrained model leaves its range
    again = task.run(TorchEngine(net), [MusicPiece("x", chorale())], search, task.Options())
    assert again[0][0].text == best.text
    assert best.log_prob is not None
    short = Search(beam=1, max_extra=3)  # the context has room for these
    ((few,),) = task.run(TorchEngine(net), ["S:C5 A:G4 T:E4 B:C3"], short, task.Options())
    assert task.score(TorchEngine(net), ["S:C5 A:G4 T:E4 B:C3"], [few.text])[0] == pytest.approx(few.log_prob, abs=1e-4)


def test_what_to_do_with_a_model_of_music(tmp_path: Path) -> None:
    task, _ = prepared(tmp_path)
    assert suggest_commands(Path("runs/music"), task, [])[0] == "use it:    regard run runs/music FILE --out FOLDER"


@pytest.mark.parametrize("way", [{"sample": True}, {"sample": False}])
def test_a_melody_is_kept_and_other_voices_are_written(tmp_path: Path, way: dict[str, Any]) -> None:
    """Every note of the melody stays where it is, in all of its length; the piece ends with it."""
    task, _ = prepared(tmp_path)
    melody = [Note(0, 3, 72), Note(4, 9, 74), Note(9, 11, 74)]  # a rest at 3, a repeated note at 9
    path = write(tmp_path, "melody.mid", melody)
    ((best,),) = task.run(TorchEngine(net_of(task)), [str(path)], Search(beam=1, max_extra=2, **way), task.Options())
    notes = parse_piece(best.files[".mid"], CHORALE, "x").notes
    assert [note for note in notes if note.part == 0] == melody
    assert len(best.text.split()) == 4 * 11
    assert best.explanation[0].startswith("harmonized: ")
    full = write(tmp_path, "full.mid", chorale())
    ((again,),) = task.run(TorchEngine(net_of(task)), [str(full)], Search(beam=1), task.Options(harmonize=True))
    kept = [note for note in CHORALE.decode(again.text.split()) if note.part == 0]
    assert kept == [note for note in chorale() if note.part == 0]


def test_the_picture_shows_every_note(tmp_path: Path) -> None:
    from io import BytesIO

    from regard.report.piano_roll_picture import KEYBOARD, PARTS, ROW, Bar, draw_piano_roll

    bars = [Bar(0, 4, 60), Bar(4, 8, 72, 1)]
    picture = np.array(Image.open(BytesIO(draw_piano_roll(bars, steps_per_line=4, given=4, pixels_per_line=20))))
    assert picture.shape == ((72 - 60 + 5) * ROW, KEYBOARD + 40 + 2, 3)
    for bar in bars:
        at = picture[(72 + 2 - bar.pitch) * ROW + 1, KEYBOARD + 5 * bar.start + 5]
        assert tuple(at) == PARTS[bar.part]
    assert tuple(picture[2 * ROW + 1, KEYBOARD + 5]) == (240, 240, 240)  # given, and silent


def test_a_model_folder_has_what_the_task_needs(tmp_path: Path) -> None:
    task, _ = prepared(tmp_path)
    assert Music.load(task.settings, task.files()).ranges == task.ranges
    assert task.frame() is None
    for wrong in (
        b"{",
        b'{"ranges": {"soprano": [60, 200]}}',
        b'{"ranges": [1]}',
        b'{"ranges": {"bass": [-Infinity, 48]}}',
    ):
        with pytest.raises(
            CheckpointError, match=r"^music\.json should have the lowest and highest pitch of each of 4"
        ):
            Music.load(task.settings, {**task.files(), "music.json": wrong})
    with pytest.raises(CheckpointError, match=r"^the vocabulary lacks .* it is not that of data\.encoding$"):
        Music.load(MusicData(encoding=EVENTS), task.files())


def test_what_is_refused(tmp_path: Path) -> None:
    task, _ = prepared(tmp_path)
    net = net_of(task)

    def run(given: object, **options: Any) -> None:
        task.run(TorchEngine(net), [given], Search(beam=1), task.Options(**options))

    with pytest.raises(
        DataError, match=r"^'C9x' is neither a MIDI file \(\.mid\) nor a word of this model's music, such"
    ):
        run("S:C5 C9x")
    with pytest.raises(DataError, match=r"^'<s>' is neither a MIDI file"):
        run("<s> S:C5")
    with pytest.raises(
        SpecError, match=r"^only a model of several voices can harmonize; train one with data\.encoding="
    ):
        events = Music.prepare(
            MusicData(encoding=EVENTS), Music.read(MusicData(train=(str(tmp_path),), encoding=EVENTS), 1)
        )
        events.run(TorchEngine(net), ["+C4 t9 -C4"], Search(beam=1), events.Options(harmonize=True))
    with pytest.raises(DataError, match=r"^no training data; name a folder of MIDI files, or chorales as \.json$"):
        Music.read(MusicData(), 1)
    with pytest.raises(
        SpecError, match=r"^music has words of its own, and a piece is a document; set data\.encoding inst"
    ):
        MusicData(documents="file")
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"none has no MIDI files; they should end in \.mid or \.midi$"):
        read_music(tmp_path / "none", CHORALE)
    (tmp_path / "x.txt").write_text("no")
    with pytest.raises(DataError, match=r"x\.txt is not a file of music; name a folder or a file that ends in \.mid, "):
        read_music(tmp_path / "x.txt", CHORALE)
    melody = write(tmp_path, "alone/melody.mid", [Note(0, 1, 60)])
    write(tmp_path, "alone/other.mid", chorale())
    with pytest.raises(
        DataError, match=r"melody\.mid has no notes for alto, tenor, bass; training needs soprano, alto, "
    ):
        Music.read(MusicData(train=(str(melody.parent),), encoding=CHORALE), 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[", r"x\.json is not JSON: "),
        ("3", r"x\.json, piece should be a list of pieces, got int$"),
        ("[3]", r"piece 1 should be a list of steps, each a list of pitches, such as \[\[72, 67, 64, 48\]\]$"),
        ("[[[60, 128]]]", r"piece 1, step 1: at most four pitches from 0 to 127 are expected, got \[60, 128\]$"),
        (
            "[[[60], [1, 2, 3, 4, 5]]]",
            r"piece 1, step 2: at most four pitches from 0 to 127 are expected, got \[1, 2, 3",
        ),
        ("[[[60.5]]]", r"piece 1, step 1: at most four pitches from 0 to 127 are expected, got \[60\.5\]$"),
        ("[[[NaN]]]", r"piece 1, step 1: at most four pitches from 0 to 127 are expected, got \[nan\]$"),
        ('{"x": []}', r"x\.json has no pieces; it should have parts train, valid, test$"),
    ],
)
def test_bad_json_is_named_by_its_step(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_music(path, CHORALE)
    with pytest.raises(
        DataError, match=r"x\.json has pitches in steps, not times; train it with data\.encoding=four_voi"
    ):
        read_music(path, EVENTS)


def test_bad_files_of_a_folder_are_named_or_dropped(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "bad.mid").write_bytes(b"nothing")
    (folder / "worse.mid").write_bytes(make_midi([on(0, 60), off(9, 60)], [on(0, 50), off(9, 50)]))
    with pytest.raises(
        DataError,
        match=r"bad\.mid is not a MIDI file: it should begin with 'MThd', got b'noth' \(2 of 7 files have faults\); fix or "
        r"remove it, or drop such files with --on-bad drop$",
    ):
        read_music(folder, CHORALE)
    dataset = Music.read(MusicData(train=(str(folder),), encoding=CHORALE, on_bad="drop"), 1)
    assert len(dataset.train.documents) == 4
    assert dataset.messages[1].startswith("2 files were dropped, such as: ")
    assert dataset.dropped[0]["count"] == 2
    write(folder, "melody.mid", [Note(0, 1, 60)])
    dataset = Music.read(MusicData(train=(str(folder),), encoding=CHORALE, on_bad="drop"), 1)
    assert dataset.messages[1].startswith("3 files were dropped, such as: ")
    assert len(dataset.train.documents) == 4, "a melody is no chorale to learn from"
    with pytest.raises(
        DataError, match=r"melody\.mid has no notes for alto, tenor, bass; training needs soprano, alto, "
    ):
        Music.read(MusicData(train=(str(folder / "melody.mid"),) * 2, encoding=CHORALE, on_bad="drop"), 1)


def test_bad_files_that_are_named_one_by_one_are_dropped_too(tmp_path: Path) -> None:
    good = [str(path) for path in folder_of(tmp_path).iterdir()]
    bad, missing = tmp_path / "bad.mid", tmp_path / "missing.mid"
    bad.write_bytes(b"nothing")
    fault = r"bad\.mid is not a MIDI file: it should begin with 'MThd', got b'noth'"
    with pytest.raises(DataError, match=fault + "; fix or remove it, or drop such files with --on-bad drop$"):
        Music.read(MusicData(train=(*good, str(bad)), encoding=CHORALE), 1)
    settings = MusicData(train=(*good, str(bad)), encoding=CHORALE, on_bad="drop")
    assert Music.read(settings, 1).messages[1].startswith("1 file was dropped, such as: ")
    assert len(Music.read_test(settings, settings.train).documents) == 5
    for read in (
        lambda: Music.read_test(settings, [str(bad)]),
        lambda: Music.read(replace(settings, train=(str(bad),)), 1),
    ):
        with pytest.raises(DataError, match=fault):
            read()
    with pytest.raises(DataError, match=r"cannot read .*missing\.mid: No such file"):
        read_music(missing, CHORALE, "drop")


@pytest.mark.slow
def test_a_model_learns_chorales_and_harmonizes_as_it_learned(tmp_path: Path) -> None:
    """Every chord has another soprano: given the melody, all other voices follow from it."""
    folder = tmp_path / "songs"
    for i in range(12):
        write(folder, f"{i}.mid", chorale(i, 4 + i))
    recipe = {
        "task": "music", "data": {"train": [str(folder)], "encoding": "four_voices", "context": 64, "transpose": 0},
        "model": {"family": "gpt", "width": 32, "depth": 2, "heads": 2, "hidden": 64, "dropout": 0.0,
                  "embed": {"position": None}, "decoder": {"position": {"kind": "relative", "reach": 64, "values": False}}},
        "train": {"steps": 160, "batch_tokens": 512, "schedule": {"kind": "constant", "lr": 5e-3}, "label_smoothing": 0.0,
                  "precision": "float32", "threads": 1},
        "decode": {"beam": 1, "max_extra": 16},
    }  # fmt: skip
    model = regard.train(recipe, out=tmp_path / "run", quiet=True)
    melody = write(tmp_path, "melody.mid", [note for note in chorale(1, 7) if note.part == 0])
    ((best,),) = model.run_all([str(melody)])
    assert CHORALE.decode(best.text.split()) == chorale(1, 7)
    given = write(tmp_path, "begun.mid", chorale(2, 4))
    ((more,),) = model.run_all([str(given)])
    assert CHORALE.decode([*CHORALE.encode(chorale(2, 4)), *more.text.split()]) == chorale(2, 6)
    assert more.explanation[1] == "every part stays within its range in the training data"


def test_a_server_never_opens_the_path_of_a_client(tmp_path: Path) -> None:
    """It takes the bytes of a file in base64; a path, or words, are refused."""
    task, _ = prepared(tmp_path)
    path = write(tmp_path, "given.mid", chorale())
    served: Any = SimpleNamespace(task=task)
    (piece,) = read_inputs(served, [base64.b64encode(path.read_bytes()).decode()])
    assert isinstance(piece, MusicPiece)
    assert list(piece.notes) == chorale()
    with pytest.raises(DataError, match=r"^a file, such as an image, should be in base64, or a data: URL$"):
        read_inputs(served, [str(path)])
    with pytest.raises(DataError, match=r"^file 1 is not a MIDI file"):
        read_inputs(served, ["aGVsbG8="])
