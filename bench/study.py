"""Run studies and keep their results: `python -m bench.study length ablate --record`.

The commands are those of `study_commands.py`. A study is made in `runs/studies/NAME` and continues there after an
interruption; its result goes to `results/study-NAME.json`, where the page of claims reads it.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.entry import Mode, parse, shrink
from bench.launch import start
from bench.results import write
from bench.study_commands import COMMANDS, REPLACED, SMOKE


def list_calls(name: str, out: Path, processes: int | None) -> Iterator[list[str]]:
    """The modules that a study's command runs, one after the other; the last one is the study itself."""
    *before, last = (shlex.split(part) for part in COMMANDS[name].split("&&"))
    own = ["--out", str(out), *([] if processes is None else ["--processes", str(processes)])]
    for program, *words in (*before, [*last, *own]):
        yield words[1:] if program == "python" else [program, *words]


def run_study(name: str, out: Path, processes: int | None = None) -> Path:
    """Run a study, or the rest of it; returns its JSON file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    for words in list_calls(name, out, processes):
        if Mode.smoke:
            words = make_small(name, words, out.parent)
        if code := start(words).wait():
            raise SystemExit(f"{shlex.join(words)} ended with {code}")
    (found,) = out.glob(f"{shlex.split(COMMANDS[name].split('&&')[-1])[2]}.json")
    return found


def make_small(name: str, words: list[str], folder: Path) -> list[str]:
    """A call of a study on little data that is made in a folder of a smoke run."""
    if words[0] != "regard":
        words = [*words, "--smoke"]
    else:
        own = [i for i, word in enumerate(words) if word in REPLACED]
        kept = [word for i, word in enumerate(words) if i not in own and i - 1 not in own]
        words = [*kept, *SMOKE[name]]
    return shrink([re.sub(r"(?<![\w/.])(library|runs/packages)(?=[/,]|$)", rf"{folder}/\1", word) for word in words])


def find_failed(study: dict[str, Any]) -> list[str]:
    """The contenders of a comparison that have no score, in each of its tasks, and the learning rates without a loss."""
    tasks = study.get("tasks", {"": study})
    failed = [
        f"{task} {each['name']}".strip()
        for task, found in tasks.items()
        for each in found.get("contenders", ())
        if "scores" in each and each["mean"] is None
    ]
    if study["study"] == "rates":
        failed += [
            f"{run['parametrization']}, width {run['width']}"
            for run in study["runs"]
            if all(loss is None for _, loss in run["losses"])
        ]
    return failed


def figures_of(study: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a study: scores, verdicts in words, and what they were reached with."""
    if study["study"] == "gradients":
        factors = {name: round(_mean(each["factor_per_step"]), 4) for name, each in study["layers"].items()}
        last = {name: each["relative_size"][-1] for name, each in study["layers"].items()}
        text = ", ".join(f"{name} {factor:.3g}" for name, factor in factors.items())
        out = {"verdict": f"gradient per step of distance: {text}", "factor per step": factors, "at the end": last}
        if study.get("recalled"):
            out["letters recalled, %"] = {
                name: {f"after {delay}": round(100 * _mean(shares), 1) for delay, shares in row.items()}
                for name, row in study["recalled"].items()
            }
        return out
    if study["study"] == "complexity":
        rows = {
            f"{each['layer']}, width {each['width']}": {
                "fewer operations from n / d": round(each["cheaper_from"] / each["width"], 2),
                "times the time of attention there": each["time_when_cheaper"] and round(each["time_when_cheaper"], 2),
                "faster from n / d": each["faster_from"] and round(each["faster_from"] / each["width"], 2),
            }
            for each in study["recurrence"]
        }
        when = [row["times the time of attention there"] for row in rows.values()]
        known = [times for times in when if times is not None]
        verdict = "no layer was measured where it has fewer operations than attention"
        if known:
            verdict = (
                f"with fewer operations, recurrent layers take {min(known)} to {max(known)} times the time of attention"
            )
        return {"verdict": verdict, "recurrence": rows}
    if study["study"] == "properties":
        found = {name: {k: _short(v) for k, v in row.items()} for name, row in study["properties"].items()}
        return {"verdict": f"{len(found)} properties of layers, measured", "properties": found}
    if study["study"] == "rates":
        best = {f"{run['parametrization']}, width {run['width']}": run["best"] for run in study["runs"]}
        text = ", ".join(f"{way} {times:g}" for way, times in study["shift"].items())
        losses = {}
        for run in study["runs"]:
            found = {f"{rate:g}": _short(loss) for rate, loss in run["losses"] if loss}
            losses[f"{run['parametrization']}, width {run['width']}"] = found
        verdict = f"best rate of the widest model, in units of the narrowest: {text}"
        return {"verdict": verdict, "best rate": best, "shift": study["shift"], "loss by rate": losses}
    if study["study"] == "scaling":
        return _scaling(study)
    if study["study"] == "transfer":
        tasks = {task: figures_of(found) for task, found in study["tasks"].items()}
        text = "; ".join(f"{name}: {said}" for name, said in study["overall"].items())
        return {"verdict": text, "overall": study["overall"], "tasks": tasks}
    verdicts = {each["contender"]: each["verdict"] for each in study["verdicts"]}
    out: dict[str, Any] = {
        "verdict": "; ".join(each["sentence"] for each in study["verdicts"]),
        "metric": study["metric"],
        "verdicts": verdicts,
        "contenders": {
            each["name"]: {
                "mean": each["mean"] and round(each["mean"], 4),
                "over seeds": each["deviation"] and round(each["deviation"], 4),
                "seeds": len(each["scores"]),
                "parameters": each["parameters"],
                "minutes": round(_mean([s for s in study["timing"][each["name"]] if s]) / 60, 2),
            }
            for each in study["contenders"]
        },
        "terms": [*study["notes"], *(f"{c['name']}: {note}" for c in study["contenders"] for note in c["notes"])],
    }
    if "by_length" in study:
        out["by length"] = {
            name: {label: round(_mean(scores), 2) for label, scores in row.items() if scores}
            for name, row in study["by_length"].items()
        }
    return out


def _scaling(study: dict[str, Any]) -> dict[str, Any]:
    said, last = study["prediction"], study["held_out"]
    names = {"floor": "E", "a": "A", "alpha": "α", "b": "B", "beta": "β"}
    laws = {
        f"law by {by}": {
            f"{short}, {what}": _short(value)
            for name, short in names.items()
            for what, value in zip(("value", "low", "high"), (law[name]["value"], *law[name]["interval"]), strict=True)
            if law[name]["value"]
        }
        for by, law in study["laws"].items()
    }
    out = {
        "verdict": f"predicted {said['loss']:.3f} before the run, it came to {last['loss']:.3f}: missed by {last['miss']:+.1%}",
        "predicted": _short(said["loss"]),
        "interval of the prediction": [_short(said["low"]), _short(said["high"])],
        "loss": _short(last["loss"]),
        "miss, %": round(100 * last["miss"], 2),
        **laws,
    }
    if best := study["isoflops"]:
        out["exponent of the best size"] = best["exponent"] and round(best["exponent"], 3)
        out["interval of the exponent"] = best["interval"] and [round(x, 3) for x in best["interval"]]
        out["best sizes"] = {f"{b['flops']:.2g} FLOPs": round(b["parameters"]) for b in best["best"]}
    runs = {
        f"width {r['width']}, {r['steps']} steps": _short(_mean([p["loss"] for p in r["points"]]))
        for r in study["runs"]
    }
    return out | {"loss of each run": runs}


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _mean(values: list[float]) -> float:
    return sum(values) / max(len(values), 1)


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m bench.study", description=__doc__)
    _parser.add_argument("names", nargs="+", choices=COMMANDS, metavar="NAME", help=", ".join(COMMANDS))
    _parser.add_argument("--processes", type=int, help="cells at once; by default one per core")
    _asked = parse(_parser, out="runs/studies")
    for _name in _asked.names:
        _study = json.loads(run_study(_name, _asked.out / _name, _asked.processes).read_text(encoding="utf-8"))
        if _failed := find_failed(_study):
            raise SystemExit(f"no result for {', '.join(_failed)}, so nothing is recorded")
        print(write(f"study-{_name}", title=f"Study: {_name}", command=COMMANDS[_name], figures=figures_of(_study)))
