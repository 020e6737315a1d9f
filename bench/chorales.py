"""Chorales of four voices: nats per word, MIDI files, a continuation and a harmony. `python -m bench.chorales`.

The chorales of Bach in sixteenths (229 for training, 76 for validation, 77 for the test), with the recipe `chorales`:
relative positions by skewing (Music Transformer), beside sinusoids, all else equal. The checkpoint with the
lowest validation loss is used, and the test is read once. A phrase of our own is continued and a folk tune harmonized by the
model whose validation loss is lower; both are written beside the result as MIDI and as a picture. A stopped bench goes on.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import regard
from bench.entry import Mode, find_data, make_scratch, parse
from bench.results import folder, write
from regard.data.music.four_voices import FourVoices
from regard.data.music.grid_notes import Note
from regard.data.music.music_files import MusicPiece, parse_piece, read_music
from regard.recipes.merge import list_recipes, parse_yaml
from regard.report.table import Table
from regard.tasks.common.losses import evaluate_loss
from regard.training.run.log import read_log

MUSIC = ("jsb", "jsb-chorales-16th.json.gz")
POSITIONS: dict[str, dict[str, Any]] = {
    "relative": {},
    "sinusoidal": {"embed": {"position": "sinusoidal"}, "decoder": {"position": None}},
}
SEED = 1
PHRASE = [(72, 67, 64, 48), (72, 69, 65, 53), (74, 67, 59, 55), (76, 67, 60, 48), (77, 69, 60, 53), (76, 67, 60, 55)]
"""Chords of a quarter note, from soprano to bass: I IV V I IV I, in C."""
MELODY = [64, 64, 65, 67, 67, 65, 64, 62, 60, 60, 62, 64, 64, 62, 62]
"""The Ode to Joy, an octave higher when it is sung by a soprano."""
LENGTHS = [4] * 12 + [6, 2, 8]


def find_chorales() -> Path:
    """The chorales; a few of each part in a smoke run."""
    path = find_data(*MUSIC)
    if not Mode.smoke:
        return path
    out = make_scratch("cut") / path.name
    if not out.exists():
        parts = json.loads(gzip.decompress(path.read_bytes()))
        out.write_bytes(gzip.compress(json.dumps({part: pieces[:3] for part, pieces in parts.items()}).encode()))
    return out


def recipe(position: str, *, smoke: bool) -> dict[str, Any]:
    made: dict[str, Any] = parse_yaml(list_recipes()["chorales"], "chorales")
    made["data"] |= {"train": [str(find_chorales())], "valid": []}
    made["model"] |= POSITIONS[position]
    made["train"] |= {"seed": SEED, "steps": 1200, "precision": "float32"}
    if smoke:
        made["data"] |= {"context": 16}
        made["model"] |= {"width": 8, "depth": 1, "heads": 2, "hidden": 16}
        made["train"] |= {
            "steps": 2,
            "validate_every": 2,
            "batch_tokens": 64,
            "schedule": {"kind": "constant", "lr": 1e-3},
        }
    return made


def run(out: Path, position: str, *, smoke: bool) -> dict[str, Any]:
    """Train, or go on; the loss of the best checkpoint on the test."""
    place = out / position
    regard.train(recipe(position, smoke=smoke), out=place)
    log = read_log(place / "log.jsonl")
    start, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    model = regard.load(place / "best")
    test = evaluate_loss(
        model.task,
        model.net,
        model.task.encode(type(model.task).read_test(model.task.settings, [str(find_chorales())])),
    )
    valid = min(event["loss"] for event in log if event["event"] == "valid")
    return {
        "nats per word": round(test["loss"], 4), "nats per sixteenth": round(4 * test["loss"], 3),
        "validation": round(valid, 4), "steps": done["step"], "minutes": round(done["seconds"] / 60, 1),
        "parameters": start["parameters"],
    }  # fmt: skip


def check_round_trips() -> dict[str, Any]:
    """Every chorale as words, as a MIDI file and back: how many are equal, note by note."""
    encoding, pieces = (
        FourVoices(),
        {piece.name: piece for part in read_music(find_chorales(), FourVoices()).parts.values() for piece in part},
    )
    equal = 0
    for piece in pieces.values():
        raw = encoding.write(encoding.decode(encoding.encode(piece.notes)), piece.beats_per_minute)
        equal += list(parse_piece(raw, encoding, piece.name).notes) == list(piece.notes)
    return {"chorales": len(pieces), "equal after words and MIDI": equal}


def phrase() -> MusicPiece:
    """Six chords, the last a half note."""
    ends = [4 * i + 4 + 4 * (i == len(PHRASE) - 1) for i in range(len(PHRASE))]
    chords = enumerate(zip(PHRASE, ends, strict=True))
    return MusicPiece(
        "phrase", [Note(4 * i, end, p, part=v) for i, (chord, end) in chords for v, p in enumerate(chord)]
    )


def melody() -> MusicPiece:
    starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    notes = [Note(s, s + n, p + 12) for s, n, p in zip(starts, LENGTHS, MELODY, strict=True)]
    return MusicPiece("melody", notes)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--position", action="append", choices=POSITIONS, help="may be repeated; both unless given")
    said = parse(arguments, out="runs/chorales")
    out = said.out
    out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = {}
    for position in POSITIONS:
        kept = out / f"{position}.json"
        if not kept.exists() and position in (said.position or POSITIONS):
            kept.write_text(json.dumps(run(out, position, smoke=said.smoke)) + "\n", encoding="utf-8")
        if kept.exists():
            rows[position] = json.loads(kept.read_text(encoding="utf-8"))
            print(position, rows[position], flush=True)
    not_run = {"nats per word": "not run"}
    figures: dict[str, Any] = {name: rows.get(name, not_run) for name in POSITIONS} | {"MIDI": check_round_trips()}
    best = min(rows, key=lambda name: rows[name]["validation"])
    model = regard.load(out / best / "best")
    place = folder()
    for name, piece in (("continuation", phrase()), ("harmony", melody())):
        ((made,),) = model.run_all([piece], seed=SEED)
        for suffix, raw in made.files.items():
            (place / f"chorales-{name}{suffix}").write_bytes(raw)
        figures[name] = {"model": best, "checks": list(made.explanation), "nats per word": round(
            -(made.log_prob or 0.0) / len(made.text.split()), 3)}  # fmt: skip
    head = ("nats per word", "nats per sixteenth", "validation", "minutes", "parameters")
    print(Table(("positions", *head), tuple((n, *(r.get(k) for k in head)) for n, r in rows.items())).markdown())
    print(json.dumps({key: value for key, value in figures.items() if key not in rows}, ensure_ascii=False, indent=2))
    title = "Chorales of Bach in four voices (JSB, sixteenths), test: nats per word"
    print(write("chorales", title=title, figures=figures, seed=SEED))


if __name__ == "__main__":
    main()
