"""Write one small JSON file per result.

It says what was run, with what, and what came out. A measurement goes to `runs/results/`; only with `--record` does it
go to `results/`, which the README quotes. Every bench parses its arguments with `parse`, which adds that flag.

`python -m bench.results RUN NAME TITLE --record` takes a result from a finished run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.machine import machine, versions
from regard.training.run.log import read_log

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "results"
"""Results that are part of the repository."""
MEASURED = ROOT / "runs" / "results"
"""Results of runs that were not asked to be recorded."""
_recording = False


def parse(parser: argparse.ArgumentParser, words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse a bench's arguments, `--record` among them, which decides where `write` puts results."""
    global _recording
    parser.add_argument(
        "--record", action="store_true", help="write to results/, which the README quotes, instead of runs/results/"
    )
    arguments = parser.parse_args(words)
    _recording = arguments.record
    return arguments


def folder() -> Path:
    """Where results are written."""
    place = RECORDED if _recording else MEASURED
    place.mkdir(parents=True, exist_ok=True)
    return place


def write(name: str, *, title: str, command: str, figures: dict[str, Any], **facts: Any) -> Path:
    """Write a result; the commit, versions and processor are added."""
    here = machine()
    body = {
        "title": title,
        "command": command,
        "figures": figures,
        **facts,
        "commit": _git("rev-parse", "--short", "HEAD"),
        "versions": versions(),
        "machine": f"{here.processor}, {here.cores} cores",
    }
    path = folder() / f"{name}.json"
    path.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def keep_run(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a run from its file, or measure it and write the file, so that it is measured once."""
    if not path.exists():
        path.write_text(json.dumps(measure()) + "\n", encoding="utf-8")
    row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return row


def merge_runs(name: str, made: Path, *key: str) -> list[dict[str, Any]]:
    """Rows of single runs: the recorded result's `runs` and the files of `made`, which replace rows with the same key."""
    recorded, rows = RECORDED / f"{name}.json", []
    if recorded.exists():
        rows = json.loads(recorded.read_text(encoding="utf-8")).get("runs", [])
    rows += [json.loads(path.read_text(encoding="utf-8")) for path in sorted(made.glob("*.json"))]
    merged = {tuple(row[part] for part in key): row for row in rows}
    return [merged[place] for place in sorted(merged)]


def from_run(run: Path, name: str, title: str) -> Path:
    """The result of a finished run: its final scores and how long it trained."""
    log = read_log(run / "log.jsonl")
    start, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    figures = {k: round(v, 4) for k, v in done["scores"].items()}
    figures |= {"minutes": round(done["seconds"] / 60, 1), "steps": done["step"], "parameters": start["parameters"]}
    recipe = (run / "recipe.yaml").read_text(encoding="utf-8")
    seed = next(line.split(":")[1].strip() for line in recipe.splitlines() if line.strip().startswith("seed:"))
    return write(name, title=title, command=start["command"], figures=figures, seed=int(seed), threads=start["threads"])


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT, check=False).stdout.strip()


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m bench.results", description=__doc__)
    _parser.add_argument("run", type=Path)
    _parser.add_argument("name")
    _parser.add_argument("title")
    _asked = parse(_parser)
    print(from_run(_asked.run, _asked.name, _asked.title))
