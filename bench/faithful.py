"""Are explanations faithful? Comprehensiveness and sufficiency on three tasks, beside a random explanation.

`python -m bench.faithful` trains a small model for each task (a few minutes each on one core): dates (generated), English to
German (Multi30k), and the language a Debian package is for, from its description. Then it measures what `regard look MODEL
--faithful DATA` and `--ablate heads` measure. Runs that are finished are not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import regard
from bench.entry import find_data, parse
from bench.packages import read_packages, write_kinds
from bench.results import write
from regard.data.dates import generate_pairs
from regard.data.text_files import read_lines
from regard.interpret.data_look import NAMES, DataLook
from regard.metrics.bootstrap import Interval
from regard.serialization.model_folder import FINAL
from regard.training.run.log import read_log

EXAMPLES = 40
PAIRS = 10_000
"""Of Multi30k."""


def dates(folder: Path, smoke: bool) -> tuple[str, list[Path], list[Path], dict[str, Any]]:
    """Dates as people write them, to ISO 8601; days that no training example has."""
    test = folder / "dates.tsv"
    test.write_text("".join(f"{a}\t{b}\n" for a, b in generate_pairs(7, 200, "valid")), encoding="utf-8")
    return "dates", [], [test], {"train.steps": 450, "train.validate_every": 450}


def translation(folder: Path, smoke: bool) -> tuple[str, list[Path], list[Path], dict[str, Any]]:
    """English captions of images to German."""
    parts = {"train": 200 if smoke else PAIRS, "test_2016_flickr": 100 if smoke else None}
    paths: dict[str, list[Path]] = {}
    for part, most in parts.items():
        for language in ("en", "de"):
            lines = [*read_lines(find_data("multi30k", f"{part}.{language}.gz"))][:most]
            paths.setdefault(part, []).append(folder / f"{part}.{language}")
            paths[part][-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    small = {"model": {"family": "transformer", "width": 64, "depth": 2, "heads": 4, "hidden": 128, "dropout": 0.0}}
    schedule = {"kind": "wsd", "lr": 3e-3, "warmup": 100, "decay": 0.3}
    return "translate", paths["train"], paths["test_2016_flickr"], {
        "auto": False, **{f"model.{key}": value for key, value in small["model"].items()}, "model.norm": "pre",
        "data.tokenizer": {"kind": "bpe", "vocab": 2000}, "train.steps": 500, "train.batch_tokens": 1024,
        "train.schedule": schedule, "train.validate_every": 500,
    }  # fmt: skip


def classification(folder: Path, smoke: bool) -> tuple[str, list[Path], list[Path], dict[str, Any]]:
    """The language or purpose of a Debian package, from its description."""
    paths = []
    for part in ("train", "test"):
        found = read_packages(find_data("debian_descriptions", f"{part}.tsv.gz"))
        paths.append(folder / f"packages.{part}.tsv")
        write_kinds(found[::40] if smoke else found, paths[-1])
    return (
        "classify",
        paths[:1],
        paths[1:],
        {
            "train.steps": 300,
            "train.validate_every": 300,
            "train.batch_tokens": 1024,
            "model.width": 64,
            "model.hidden": 128,
        },
    )


TASKS = {"dates": dates, "translation": translation, "classification": classification}


def learn(name: str, folder: Path, smoke: bool) -> tuple[regard.Model, list[Path], float]:
    """The model of a task, the files to measure on, and the minutes of training."""
    recipe, train, test, settings = TASKS[name](folder, smoke)
    if smoke:
        settings |= {"train.steps": 3, "train.validate_every": 3, "model.width": 32}
        settings["train.schedule"] = {"kind": "constant", "lr": 1e-3}
    out = folder / name
    if (out / FINAL).exists():
        model = regard.load(out, device="cpu")
    else:
        model = regard.train(recipe, [str(path) for path in train], out=out, set=settings, device="cpu")
    done = next(e for e in reversed(read_log(out / "log.jsonl")) if e["event"] == "done")
    return model, test, done["seconds"] / 60


def tell(found: Interval) -> dict[str, Any]:
    return {"": round(found.score, 3), "95 %": f"{found.low:.3f} to {found.high:.3f}"}


def rows(found: DataLook) -> dict[str, dict[str, Any]]:
    """One row for each explanation."""
    out: dict[str, dict[str, Any]] = {}
    for method, each in found.faithfulness.items():
        columns: Mapping[str, Interval | None] = {
            "comprehensiveness": each.comprehensiveness, "sufficiency": each.sufficiency,
            "correlation with ablation": each.correlation, "above random": each.gain,
        }  # fmt: skip
        out[NAMES[method]] = {
            f"{column}{', ' if key else ''}{key}": value
            for column, interval in columns.items()
            if interval is not None and not (method == "random" and column == "above random")
            for key, value in tell(interval).items()
        }
    return out


def sum_up(found: DataLook, way: str) -> dict[str, Any]:
    """What heads are worth, taken away in one way: with zeros or their mean in their place."""
    worths = {worth.place: getattr(worth, way) for worth in found.worths}
    most = max(worths, key=lambda place: worths[place].score)
    return {
        "number of heads": len(worths),
        "worth nothing that is shown (the interval reaches 0)": sum(each.low <= 0 for each in worths.values()),
        "the one that is worth most": most,
        "log P falls without it by": round(worths[most].score, 3),
        "log P falls without it by, 95 %": f"{worths[most].low:.3f} to {worths[most].high:.3f}",
    }


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.faithful", description=__doc__)
    arguments.add_argument("--only", action="append", choices=TASKS, help="a task; may be repeated")
    said = parse(arguments, out="runs/faithful")
    out = said.out
    out.mkdir(parents=True, exist_ok=True)
    for name in said.only or TASKS:
        model, test, minutes = learn(name, out, said.smoke)
        scores = regard.evaluate(model, test).models[0].scores
        found = regard.look_at_data(
            model, test, faithful=True, ablate_parts="heads", examples=4 if said.smoke else EXAMPLES
        )
        found.save(out / f"{name}.html")
        print(found.render())
        figures: dict[str, Any] = {
            "explanations": rows(found),
            "heads": {"zeros": sum_up(found, "zero"), "means": sum_up(found, "mean")},
            "the model": {
                **{key: round(value.score, 2) for key, value in scores.items()}, "minutes": round(minutes, 1),
                "examples": found.examples,
            },
        }  # fmt: skip
        title = f"Are explanations faithful? {name}, beside a random explanation"
        command = f"python -m bench.faithful --only {name}"
        print(write(f"faithfulness-{name}", title=title, command=command, figures=figures))


if __name__ == "__main__":
    main()
