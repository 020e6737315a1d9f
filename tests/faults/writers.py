"""Commands that write files, each as small as it gets, and what counts of the files they leave.

A writer works in a folder of its own, under the same path every time. `prepare` names commands that run before any fault.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.music.four_voices import FourVoices
from regard.data.music.grid_notes import Note
from regard.errors import CheckpointError, RegardError
from regard.files.folder import verify
from regard.training.run.checkpoint import Checkpoints
from tests.faults.inject import Call
from tests.laws.tasks import PLAY
from tests.training.small import ROWS

TRAIN: dict[str, Any] = {
    "steps": 4, "batch_tokens": 96, "schedule": {"kind": "cosine", "lr": 3e-3, "warmup": 1}, "validate_every": 2,
    "save_every": 2, "log_every": 1, "threads": 1, "precision": "float32",
}  # fmt: skip
MOVING: dict[str, Any] = {"accumulate": 2, "ema": 0.9, "average": {"which": "last", "count": 2}, "keep_checkpoints": 1}
SMALL: dict[str, Any] = {"width": 16, "depth": 1, "heads": 2, "hidden": 32, "dropout": 0.1}
COPY: dict[str, Any] = {
    "generate": {"kind": "copy", "symbols": 10, "max_length": 6, "count": 60, "valid": 6, "seed": 1},
    "tokenizer": {"kind": "chars"}, "max_length": 12, "metrics": ["exact"],
}  # fmt: skip
PAIRS: dict[str, Any] = {"tokenizer": {"kind": "chars"}, "max_length": 12, "metrics": ["exact"]}
BERT: dict[str, Any] = {"family": "bert", "width": 16, "depth": 1, "heads": 2, "hidden": 32, "dropout": 0.1}
GPT: dict[str, Any] = {"family": "gpt", "width": 16, "depth": 1, "heads": 2, "hidden": 32, "dropout": 0.0}
RECIPES: dict[str, dict[str, Any]] = {
    "copy": {"task": "translate", "data": COPY, "model": SMALL, "train": {**TRAIN, **MOVING}, "decode": {"beam": 1}},
    "plain": {"task": "translate", "data": COPY, "model": SMALL, "train": TRAIN, "decode": {"beam": 1}},
    "wide": {"task": "translate", "data": COPY, "model": {**SMALL, "width": 24}, "train": TRAIN, "decode": {"beam": 1}},
    "pairs": {"task": "translate", "data": PAIRS, "model": SMALL, "train": TRAIN, "decode": {"beam": 1}},
    "mlm": {
        "task": "mlm", "data": {"train": ["play.txt"], "context": 24, "next_sentence": False}, "model": BERT, "train": TRAIN,
    },
    "lm": {"task": "lm", "data": {"train": ["play.txt"], "context": 16, "tokenizer": "chars"}, "model": GPT, "train": TRAIN},
    "chorales": {
        "task": "music", "data": {"train": ["songs"], "encoding": "four_voices", "context": 16},
        "model": {"family": "gpt", "width": 8, "depth": 1, "heads": 2, "hidden": 16, "dropout": 0.0}, "train": TRAIN,
    },
}  # fmt: skip
CLOCK = {
    "seconds",
    "tokens_per_s",
    "command",
    "log",
    "timing",
    "sha256",
    "finished",
    "took",
    "measured",
    "seconds_per_step",
}
"""Keys of JSON files that no two runs have in common."""
LOCK = "run.lock"


@dataclass(frozen=True)
class Writer:
    """A command that writes: its words, and the commands that go before."""

    words: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    results: tuple[str, ...] = ()
    """Files that are results: at every moment they are absent, as they were, or as they will be."""
    timed: bool = False
    """What it prints tells the time."""
    apart: bool = False
    """It starts processes of its own, each of which imports torch: a thousand lives would take hours."""


def _train(recipe: str, *more: str, out: str = "run") -> tuple[str, ...]:
    return ("train", f"{recipe}.yaml", "--out", out, "--quiet", *more)


def _compare(*more: str) -> tuple[str, ...]:
    return ("study", "compare", "plain.yaml", "wide.yaml", "--seeds", "2", "--out", "study", *more)


MODELS = ("run/final/*", "run/best/config.json", "run/recipe.yaml")
STUDY = ("study/cells/*.json", "study/compare.json", "study/report.html", "study/*.png", "study/*.svg")
WRITERS: dict[str, Writer] = {
    "train": Writer(_train("copy"), results=MODELS),
    "train on files": Writer((*_train("pairs"), "pairs.tsv"), results=MODELS),
    "train and keep tokens": Writer(_train("mlm"), results=MODELS),
    "train again with --fresh": Writer(_train("copy", "--fresh", "--set", "train.seed=2"), (_train("copy"),)),
    "train longer": Writer(_train("copy", "--set", "train.steps=6"), (_train("copy"),)),
    "fine-tune": Writer((*_train("plain", out="tuned"), "--from", "run"), (_train("plain"),), ("tuned/final/*",)),
    "convert to another format": Writer(("convert", "run", "hf", "--to", "hf"), (_train("lm"),), ("hf/*",)),
    "convert from another format": Writer(
        ("convert", "hf", "back"), (_train("lm"), ("convert", "run", "hf", "--to", "hf")), ("back/*",)
    ),
    "convert over another": Writer(
        ("convert", "run", "small", "--to", "int4"),
        (_train("plain"), ("convert", "run", "small", "--to", "int8")),
        ("small/*",),
    ),
    "run": Writer(("run", "run", "abc", "bca"), (_train("plain"),)),
    "run to files": Writer(
        ("run", "run", "melody.mid", "songs/0.mid", "--out", "made", "--length", "4"),
        (_train("chorales"),),
        ("made/*",),
    ),
    "eval": Writer(("eval", "run", "test.tsv", "--json"), (_train("plain"),)),
    "look": Writer(("look", "run", "abc", "--out", "look.html"), (_train("plain"),), ("look.html",)),
    "look at data": Writer(
        ("look", "run", "test.tsv", "--ablate", "heads", "--examples", "2", "--out", "data.html"),
        (_train("plain"),),
        ("data.html",),
    ),
    "show": Writer(("show", "plain.yaml")),
    "study": Writer(_compare("--processes", "0"), results=STUDY, timed=True),
    "study apart": Writer(_compare("--processes", "1"), results=STUDY, timed=True, apart=True),
}


def write_inputs(place: Path) -> None:
    """Put what the commands read into a folder."""
    (place / "songs").mkdir(parents=True)
    for name, recipe in RECIPES.items():
        (place / f"{name}.yaml").write_text(json.dumps(recipe))
    (place / "pairs.tsv").write_text("".join(ROWS))
    (place / "test.tsv").write_text("abc\tabc\nbca\tbca\n")
    (place / "play.txt").write_text(PLAY)
    for i in range(4):
        notes = [Note(2 * j, 2 * j + 2, 72 - 6 * v + (i + j) % 3, part=v) for j in range(4) for v in range(4)]
        (place / "songs" / f"{i}.mid").write_bytes(FourVoices().write(notes, 100))
    (place / "melody.mid").write_bytes(FourVoices().write([Note(0, 2, 72), Note(2, 4, 74)], 100))


def read_files(place: Path) -> dict[str, object]:
    """What a folder holds, without what depends on the clock; temporary files and locks apart."""
    found: dict[str, object] = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if name.split("/")[0] != "tmp" and path.name != LOCK:
            found[name] = "folder" if path.is_dir() else _read_file(path)
    return found


def _read_file(path: Path) -> object:
    data = path.read_bytes()
    reader = next((read for pattern, read in TIMED if re.fullmatch(pattern, path.name)), None)
    if reader is None:
        return data
    try:
        return reader(data, path)
    except ValueError:
        return data


def _without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_clock(each) for key, each in value.items() if key not in CLOCK}
    return [_without_clock(each) for each in value] if isinstance(value, list) else value


def _json(data: bytes, path: Path) -> object:
    return _without_clock(json.loads(data))


def _lines(data: bytes, path: Path) -> object:
    return [_without_clock(json.loads(line)) for line in data.splitlines()]


def _manifest(data: bytes, path: Path) -> object:
    """The files that do not tell the time, as they are; the others by name."""
    timed = lambda name: any(re.fullmatch(pattern, name) for pattern, _ in TIMED)  # noqa: E731
    return {name: None if timed(name) else entry for name, entry in json.loads(data)["files"].items()}


def _page(data: bytes, path: Path) -> object:
    return data.rstrip().endswith(b"</html>")


def _picture(data: bytes, path: Path) -> object:
    return data.startswith(b"\x89PNG") and data.endswith(b"IEND\xaeB`\x82")


Reader = Callable[[bytes, Path], object]
TIMED: Sequence[tuple[str, Reader]] = (
    (r"(log|lost)\.jsonl", _lines),
    (r"(facts|run|compare|looks)\.json|.*-[0-9a-f]{12}\.json", _json),
    (r"manifest\.json", _manifest),
    (r"report\.html", _page),
    (r"(curves|pareto)\.png", _picture),
)
"""Files that tell the time, and how to read the rest of them."""


def find_faults(place: Path) -> list[str]:
    """What is wrong with the folders that have a manifest: whatever has one is complete."""
    found = []
    for path in sorted(place.rglob("manifest.json")):
        if not any(part.startswith(".") or part == "tmp" for part in path.relative_to(place).parts):
            try:
                verify(path.parent)
            except RegardError as error:
                found.append(str(error))
    return found


def newest_step(place: Path) -> int:
    """The newest intact checkpoint of the run in a folder, found in a copy, which may be repaired; 0 if there is none."""
    checkpoints, copy = place / "run" / "checkpoints", place.with_name(f"{place.name}.copy")
    if not checkpoints.is_dir():
        return 0
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(checkpoints, copy)
    try:
        loaded = Checkpoints(copy).load_newest()
    except CheckpointError:
        return 0
    return 0 if loaded is None else loaded.step


def completed_step(done: Sequence[Call]) -> int:
    """The newest step whose checkpoint was in its place, and synced there, by these calls."""
    renamed = completed = 0
    for call in done:
        folder, _, name = call.path.rpartition("/")
        if call.name == "rename" and folder == "/run/checkpoints" and name.startswith("step-"):
            renamed = int(name.removeprefix("step-")) if name[5:].isdigit() else renamed
        if call.name == "fsync" and call.path == "/run/checkpoints":
            completed = max(completed, renamed)
    return completed
