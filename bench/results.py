"""One small JSON a result: what was run, with what, and what came out.

`python -m bench.results RUN NAME TITLE` takes it from a finished run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from regard.machine import machine
from regard.serialization.model_folder import versions
from regard.training.log import read_log

FOLDER = Path(__file__).parent.parent / "results"


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
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


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
    return subprocess.run(
        ["git", *words], capture_output=True, text=True, cwd=FOLDER.parent, check=False
    ).stdout.strip()


if __name__ == "__main__":
    print(from_run(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
