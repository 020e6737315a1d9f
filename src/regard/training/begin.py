"""Begin a run, or go on with it: a run folder holds one run, of one recipe on one corpus.

run.json       facts that must not change: the corpus, threads, device, precision, what it started from
recipe.yaml    the whole recipe
log.jsonl, report.html, vocabulary/, checkpoints/, snapshots/, best/, final/
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, SpecError
from regard.folder import parse_json
from regard.storage import explained
from regard.training.recipe import Recipe, parse_yaml
from regard.training.text import write_text

RECIPE, LOG, FACTS, REPORT = "recipe.yaml", "log.jsonl", "run.json", "report.html"
FOLDERS = ("checkpoints", "snapshots", "best", "final", "vocabulary", "tensorboard")
FIXED = ("threads", "processes", "device", "precision", "torch", "start")
"""Facts on which the numbers depend."""


def agree(folder: Path, recipe: Recipe, facts: Mapping[str, Any], *, fresh: bool) -> None:
    """Refuse to go on with another recipe or corpus than the run began with. One that saved nothing begins anew."""
    path, before = folder / RECIPE, folder / FACTS
    begun = _begun(folder)
    if fresh or not begun:
        if begun or before.exists():
            _clear(folder)
        if path.exists():
            raise SpecError(f"{path} is not of a run of ours, and would be written over; choose another --out")
        write_text(before, json.dumps(facts, indent=2))
        write_text(path, recipe.yaml())
        return
    if not path.exists() or not before.exists():
        raise CheckpointError(f"{folder} has no {RECIPE} or {FACTS} any more; start over with --fresh")
    was = parse_json(before.read_bytes(), before)
    changed = _differences(parse_yaml(path.read_text("utf-8"), str(path)), parse_yaml(recipe.yaml(), "the recipe"))
    if was["fingerprint"] != facts["fingerprint"]:
        changed.append("the corpus is not the one this run began with")
    changed += [f"{name}: {was.get(name)} -> {facts[name]}" for name in FIXED if was.get(name) != facts[name]]
    if changed:
        raise SpecError(
            f"{folder} was begun with another recipe or corpus: {'; '.join(changed)}. "
            "Take that back, choose another --out, or start over with --fresh"
        )


def recalled(folder: Path, name: str) -> Any:
    """A fact of this run that was found out when it began; None if it was not."""
    path = folder / FACTS
    return parse_json(path.read_bytes(), path).get(name)


def note(folder: Path, **facts: Any) -> None:
    """Keep facts that were found out, for when the run goes on."""
    path = folder / FACTS
    write_text(path, json.dumps({**parse_json(path.read_bytes(), path), **facts}, indent=2))


def _begun(folder: Path) -> bool:
    """Whether there is anything that would be lost by starting over."""
    return any(True for name in ("checkpoints/step-*", "best", ".best.previous") for _ in folder.glob(name))


def _clear(folder: Path) -> None:
    """Delete what an earlier run left, and nothing else; its facts last, for they say that it is ours."""
    with explained("start over", folder):
        for name in FOLDERS:
            for left in (name, f".{name}.partial", f".{name}.previous"):
                if (folder / left).exists():
                    shutil.rmtree(folder / left)
        for name in (RECIPE, LOG, REPORT, FACTS):
            (folder / name).unlink(missing_ok=True)


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two recipes differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        out = []
        for key in dict.fromkeys([*old, *new]):
            out += _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return out
    return [] if old == new else [f"{path}: {old!r} -> {new!r}"]
