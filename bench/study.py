"""A finished study as a result: `python -m bench.study pre-post runs/compare/compare.json "COMMAND" --record`.

It is stored as `results/study-NAME.json`; the page of claims reads it there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.results import parse, write


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
    _parser.add_argument("name")
    _parser.add_argument("study", type=Path)
    _parser.add_argument("command")
    _asked = parse(_parser)
    _study = json.loads(_asked.study.read_text(encoding="utf-8"))
    print(
        write(f"study-{_asked.name}", title=f"Study: {_asked.name}", command=_asked.command, figures=figures_of(_study))
    )
