"""The cell that trains a model by a recipe and tests it.

The model is the one that validation chose; each test set is used once, after training. The result holds what the verdict
needs of every test item: the outputs, and the counts that come with the loss.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.data.pairs import Pairs
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import DataError, SpecError
from regard.files.folder import parse_json
from regard.metrics import METRICS
from regard.metrics.items import Items
from regard.model.net import Net
from regard.recipes.merge import merge
from regard.serialization.load import load_model
from regard.serialization.model_folder import FACTS, LOG, find_model
from regard.spec import Plain
from regard.studies.energy import EnergyMeter
from regard.studies.jobs import Outcome
from regard.studies.probes import run_probe
from regard.tasks import find
from regard.tasks.common.capabilities import Generates, eval_sets, require
from regard.tasks.common.losses import LossCounts, count_losses
from regard.tasks.common.task import EvalSet, Task
from regard.training.request import TrainRequest
from regard.training.run.log import read_log
from regard.training.train import SPLIT_SEED, run_training


def run_job(settings: Plain, work: Path) -> Outcome:
    """Train by `recipe`, then test the final model on each of `tests` and with each of `probes`.

    A test set is `{"files": […]}`, or `{"data": {…}}`: the validation part of the data with these settings changed; `{}` is
    the validation data itself. With `min_length`, only pairs whose source has at least so many characters; with
    `set`, the model is loaded with these settings, on which no weight depends.
    """
    recipe = settings["recipe"]
    meter = None if work.exists() else EnergyMeter.open()  # a resumed run was not measured from its beginning
    final = run_training(TrainRequest(recipe, out=str(work), quiet=True, device=settings.get("device", "cpu")))
    joules = None if meter is None else meter.joules()
    log = read_log(work / LOG)
    began, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    validations = [event for event in log if event["event"] == "valid"]
    check_data(settings, work)
    tests, started = {}, time.perf_counter()
    for name, test in settings["tests"].items():
        net, task, search = load_model(find_model(final), test.get("set"))
        raw = read_test(recipe, task, test)
        tests[name] = score_test(net.eval(), task, search, raw, settings["metrics"])
        tests[name] |= {"probes": {probe: run_probe(probe, net, task, raw) for probe in settings.get("probes", ())}}
    first = settings["metrics"][0]
    best = min((event["loss"] for event in validations), default=done["scores"]["loss"])
    shown = next(iter(tests.values()))["scores"][first] if tests else done["scores"].get(first, best)
    return Outcome(
        {
            "summary": f"{first} {shown:.4g}",
            "parameters": began["parameters"],
            "steps": done["step"],
            "tokens": round(done["step"] * tokens_per_step(log)),
            "valid": done["scores"] | {"best_loss": best},
            "curve": [[event["step"], event["loss"], event["scores"].get(first)] for event in validations],
            "tests": tests,
        },
        {
            "seconds": done["seconds"],
            "joules": joules,
            "test_seconds": round(time.perf_counter() - started, 3),
            "curve": [event["seconds"] for event in validations],
        },
    )


def check_data(settings: Plain, work: Path) -> None:
    """Refuse a result on other data than the study was started with, as a file that was changed or another machine has."""
    path = work / FACTS
    if "data" in settings and parse_json(path.read_bytes(), path)["fingerprint"] != settings["data"]:
        raise DataError(
            "the training data changed since the study started, or this machine has other files under the same names; "
            "restore them, or start the study in another --out"
        )


def tokens_per_step(log: Sequence[Plain]) -> float:
    """Target tokens of a mean step, as far as the log goes."""
    last = next((event for event in reversed(log) if event["event"] == "train"), None)
    return 0.0 if last is None else last["tokens"] / last["step"]


def read_test(recipe: Mapping[str, Plain], task: Task, test: Plain) -> object:
    """The examples of a test set, as the task reads them."""
    if "files" in test:
        return task.read_test(task.settings, test["files"])
    kind = find(str(recipe["task"]))
    changed = kind.Settings.parse(merge(recipe["data"], test.get("data", {})), "data")
    raw: object = kind.read(changed, SPLIT_SEED).valid
    return select_long(raw, test["min_length"]) if "min_length" in test else raw


def select_long(raw: object, least: int) -> object:
    """The pairs of texts whose source has at least `least` characters."""
    if not isinstance(raw, list) or not all(isinstance(part, Pairs) for part in raw):
        raise SpecError("only pairs of texts (task translate) can be selected by their length")
    out = []
    for part in raw:
        kept = [pair for pair in zip(part.source, part.target, strict=True) if len(pair[0]) >= least]
        out.append(dataclasses.replace(part, source=[s for s, _ in kept], target=[t for _, t in kept]))
    return out


def score_test(net: Net, task: Task, search: Search, raw: object, metrics: Sequence[str]) -> Plain:
    """Scores, outputs, and the counts of each item that come with the loss."""
    counts = count_losses(task, net, task.encode(raw), metrics=metrics)
    scores, outputs, references, sources = counts.scores(), list[str](), list[str](), list[object]()
    if wanted := [name for name in metrics if METRICS[name].decodes]:
        for part in eval_sets(task, raw):
            found = require(task, Generates).run(TorchEngine(net), part.inputs, search, part.options)
            outputs += [each[0].text if each else "" for each in found]
            references += part.references
            sources += part.inputs
        scores |= {name: METRICS[name].compute(outputs, references, sources) for name in wanted}
    return {
        "scores": scores,
        "outputs": outputs,
        "rows": {name: rows.tolist() for name, rows in counts.rows.items()},
    }


def read_items(tested: Plain, metric: str, sets: Sequence[EvalSet]) -> Items:
    """The test items of a finished cell, for a bootstrap; `sets` are those that it was tested on."""
    import numpy as np

    if METRICS[metric].decodes:
        references, sources = [r for part in sets for r in part.references], [s for part in sets for s in part.inputs]
        return METRICS[metric].items(tested["outputs"], references, sources)
    return LossCounts({name: np.asarray(rows, np.float64) for name, rows in tested["rows"].items()}).items(metric)
