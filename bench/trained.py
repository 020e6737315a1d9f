"""Run `regard train …` as a recorded result says, and keep what it reached: `python -m bench.trained vit-mnist --record`.

The command is that of `results/NAME.json`; a `regard eval …` after it adds the scores on the test. A run that was stopped goes
on where it was.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import re
import shlex
import struct
import tarfile
from collections import Counter
from pathlib import Path

from bench.entry import Mode, find_data, make_scratch, parse, shrink
from bench.launch import call, start
from bench.results import RECORDED, write
from regard.training.run.log import read_log

NAMES = ("dates", "gpt", "shakespeare", "vit-mnist", "vit-cifar")
IMAGES = 40
"""Of each file in a smoke run."""
SMOKE = {
    "train.epochs": "null", "train.steps": 2, "train.validate_every": 2, "train.batch_tokens": 256, "train.schedule.warmup": 0,
    "model.width": 16, "model.depth": 1, "model.heads": 2, "model.hidden": 16,
}  # fmt: skip
GENERATED = {"data.generate.count": 100, "data.generate.valid": 4}


def train(name: str, command: str) -> Path:
    """Run a command, or the rest of it; the run folder."""
    words = shlex.split(command)
    settings = SMOKE | (GENERATED if name == "dates" else {})
    out = words[words.index("--out") + 1] if "--out" in words else f"runs/{words[2]}"
    if Mode.smoke:
        out = str(make_scratch("run"))
        words = [
            *cut_data(words),
            *(w for k, v in settings.items() for w in ("--set", f"{k}={v}")),
            "--out",
            out,
            "--quiet",
        ]
    if code := start(words).wait():
        raise SystemExit(f"{shlex.join(words)} ended with {code}")
    return Path(out)


def evaluate(command: str, run: Path) -> dict[str, float]:
    """Scores of a run on the data that `regard eval RUN DATA` names."""
    program, verb, _, *data = shlex.split(command)
    said = call(cut_data([program, verb, str(run), *data, "--json"]))
    (model,) = json.loads(said)["models"]
    return {metric: round(score, 4) for metric, score in model["scores"].items()}


def cut_data(words: list[str]) -> list[str]:
    """A command with little of each data set in a smoke run."""
    if not Mode.smoke:
        return words
    folder = make_scratch("images")

    def replace(found: re.Match[str]) -> str:
        path = find_data(*found[1].split("/"))
        out = folder / path.name
        if path.is_dir() and not out.exists():
            cut_mnist(path, out)
        elif path.suffix == ".xz" and not out.exists():
            cut_archive(path, out)
        return str(out)

    return shrink([re.sub(r"^\.\./shared/data/((?:mnist|cifar\w*)(?:/\S+)?)$", replace, word) for word in words])


def cut_mnist(path: Path, out: Path) -> None:
    """The first images and labels of each file, in the format of MNIST."""
    out.mkdir()
    for file in path.glob("*.gz"):
        raw = gzip.decompress(file.read_bytes())
        axes = raw[3]
        shape = struct.unpack(f">{axes}I", raw[4 : 4 + 4 * axes])
        size = 1
        for axis in shape[1:]:
            size *= axis
        head = raw[:4] + struct.pack(f">{axes}I", IMAGES, *shape[1:])
        (out / file.name).write_bytes(gzip.compress(head + raw[4 + 4 * axes :][: IMAGES * size]))


def cut_archive(path: Path, out: Path) -> None:
    """Some images of each folder of an archive."""
    seen: Counter[str] = Counter()
    with tarfile.open(path, "r|*") as read, tarfile.open(out, "w:xz") as wrote:
        for member in read:
            place = member.name.rpartition("/")[0]
            if member.isfile() and seen[place] < 6:
                seen[place] += 1
                content = read.extractfile(member)
                wrote.addfile(member, io.BytesIO(content.read() if content else b""))


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.trained", description=__doc__)
    arguments.add_argument("name", choices=NAMES)
    name: str = parse(arguments).name
    recorded = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    first, *after = recorded["command"].split(" && ")
    run = train(name, first)
    log = read_log(run / "log.jsonl")
    begun, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    figures = {score: round(value, 4) for score, value in done["scores"].items()}
    if after:
        figures = evaluate(after[0], run) | {f"validation {score}": value for score, value in figures.items()}
    figures |= {"minutes": round(done["seconds"] / 60, 1), "steps": done["step"], "parameters": begun["parameters"]}
    recipe = (run / "recipe.yaml").read_text(encoding="utf-8")
    seed = next(line.split(":")[1].strip() for line in recipe.splitlines() if line.strip().startswith("seed:"))
    facts = {"seed": int(seed), "threads": begun["threads"]}
    print(json.dumps(figures, indent=2))
    print(write(name, title=recorded["title"], command=recorded["command"], figures=figures, **facts))


if __name__ == "__main__":
    main()
