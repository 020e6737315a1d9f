"""The run folder: start a run, continue it, or replace it.

run.json       facts that must not change: the corpus, threads, device, precision, the initial model
recipe.yaml    the complete recipe
log.jsonl, report.html, vocabulary/, tokens/, checkpoints/, snapshots/, best/, final/

With --fresh the old run is moved to `.before` until the new one has started, and moved back if it cannot start:

    .before        what the old run left; run.json is moved last, so once it is there, everything outside is new
    .before.gone   the same after the new run has started; it is removed

If the process is killed in between, the next command finds `.before` and moves it back.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, SpecError
from regard.files.folder import find_foreign_files, parse_json
from regard.files.storage import DISK, explain_errors, write_file
from regard.recipes.merge import parse_yaml
from regard.serialization.model_folder import (
    BEST,
    CHECKPOINTS,
    FACTS,
    FINAL,
    LOG,
    RECIPE,
    REPORT,
    SNAPSHOTS,
    TENSORBOARD,
    TOKENS,
    VOCABULARY,
)  # fmt: skip
from regard.training.recipe import Recipe

BEFORE, GONE = ".before", ".before.gone"


@contextmanager
def replace_run(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """What is set aside within is given up at the end, or put back if it comes to no good end."""
    with explain_errors("start over", folder):
        _remove(folder / GONE)
        _put_back(folder, names)
    try:
        yield
    except BaseException:
        with explain_errors("put the old run back", folder):
            _put_back(folder, names)
        raise
    with explain_errors("start over", folder):
        if (folder / BEFORE).exists():
            DISK.rename(folder / BEFORE, folder / GONE)
            DISK.sync(folder)
            _remove(folder / GONE)


def move_aside(folder: Path, names: Sequence[str]) -> None:
    """Move these out of the way, one after the other; the last says that it is done."""
    with explain_errors("start over", folder):
        (folder / BEFORE).mkdir()
        _move(folder, folder / BEFORE, names)


def _put_back(folder: Path, names: Sequence[str]) -> None:
    """Undo what was set aside, wholly or in part; the last name comes first, so that this, too, may be cut short."""
    aside, last = folder / BEFORE, names[-1]
    if not aside.exists():
        return
    if (aside / last).exists():
        for name in names:
            _remove(folder / name)
    _move(aside, folder, [last, *names])
    aside.rmdir()


def _move(here: Path, there: Path, names: Sequence[str]) -> None:
    for name in names:
        if (here / name).exists() or (here / name).is_symlink():
            DISK.rename(here / name, there / name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


FOLDERS = (CHECKPOINTS, SNAPSHOTS, BEST, FINAL, VOCABULARY, TOKENS, TENSORBOARD)
MODELS = (BEST, FINAL, VOCABULARY)
RUN_FILES = (
    *(left for name in FOLDERS for left in (name, f".{name}.partial", f".{name}.previous")),
    RECIPE,
    LOG,
    REPORT,
    FACTS,
)
"""All that a run may leave; its facts, which say that it is ours, are the last."""
FIXED = ("threads", "processes", "device", "precision", "torch", "start")
"""Facts on which the numbers depend."""
BOUND = ("task", "data.tokenizer", "data.joint_vocab", "train.optimizer.kind", "train.finetune")
"""Settings that a checkpoint cannot do without: to change one is to start over."""
FOREIGN = "is not of a run of ours, and would be written over; choose another --out"


def open_run(
    folder: Path, recipe: Recipe, facts: Mapping[str, Any], *, fresh: bool = False, anyway: bool = False
) -> list[str]:
    """Refuse to go on with another recipe or corpus than the run began with, or list what is other and go on `anyway`.

    A run that saved nothing begins anew, but for what it had prepared.
    """
    path, before = folder / RECIPE, folder / FACTS
    begun = _begun(folder)
    if begun or before.exists():
        _demand_ours(folder)
    if fresh or not begun:
        if before.exists():
            _demand_no_guests(folder)
            move_aside(folder, RUN_FILES) if fresh else _clear(folder, _prepared(folder, recipe, facts))
        for name in (RECIPE, LOG, REPORT):
            if (folder / name).exists():
                raise SpecError(f"{folder / name} {FOREIGN}")
        for place, text in _opening(folder, recipe, facts):
            write_file(place, text)
        return []
    if not path.exists():
        raise CheckpointError(f"{folder} has no {RECIPE} any more; start over with --fresh")
    was = parse_json(before.read_bytes(), before)
    changed = _differences(parse_yaml(path.read_text("utf-8"), str(path)), parse_yaml(recipe.yaml(), "the recipe"))
    if was["fingerprint"] != facts["fingerprint"]:
        changed.append("the corpus is not the one this run began with")
    changed += [f"{name}: {was.get(name)} -> {facts[name]}" for name in FIXED if was.get(name) != facts[name]]
    if bound := [line for line in changed if line.startswith(BOUND)]:
        raise SpecError(
            f"{folder} was begun with another recipe: {'; '.join(bound)}, which no checkpoint of it can follow. "
            "Take that back, choose another --out, or start over with --fresh"
        )
    if changed and not anyway:
        raise SpecError(
            f"{folder} was begun with another recipe or corpus: {'; '.join(changed)}. Take that back, choose another "
            "--out, go on all the same with --anyway, or start over with --fresh"
        )
    return changed


def update_run(folder: Path, recipe: Recipe, facts: Mapping[str, Any]) -> None:
    """From now on this is the run's recipe, and these are its facts."""
    save_facts(folder, **facts)
    write_file(folder / RECIPE, recipe.yaml())


def read_fact(folder: Path, name: str) -> Any:
    """A fact of this run that was found out when it began; None if it was not."""
    path = folder / FACTS
    return parse_json(path.read_bytes(), path).get(name)


def save_facts(folder: Path, **facts: Any) -> None:
    """Keep facts that were found out, for when the run goes on."""
    path = folder / FACTS
    write_file(path, json.dumps({**parse_json(path.read_bytes(), path), **facts}, indent=2))


def _begun(folder: Path) -> bool:
    """Whether there is anything that would be lost by starting over."""
    left = ("checkpoints/step-*", "best", ".best.previous", "final", ".final.previous")
    return any(True for name in left for _ in folder.glob(name))


def _demand_ours(folder: Path) -> None:
    """Refuse a folder whose facts do not say that a run of ours is in it; only of such a one anything is ever removed."""
    path = folder / FACTS
    if not path.exists():
        raise SpecError(f"{folder} holds models or checkpoints, but no {FACTS} of a run of ours; choose another --out")
    try:
        said = parse_json(path.read_bytes(), path)
    except CheckpointError as error:
        if not any((folder / name).exists() for name in (*FOLDERS, RECIPE, LOG, REPORT)):
            return  # a power cut when it had just begun: nothing else is there
        raise CheckpointError(f"{error}; choose another --out") from None
    if not isinstance(said, dict) or not {"fingerprint", "threads", "torch"} <= set(said):
        raise SpecError(f"{path} {FOREIGN}")


def _opening(folder: Path, recipe: Recipe, facts: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """The files a run begins with."""
    return [(folder / FACTS, json.dumps(facts, indent=2)), (folder / RECIPE, recipe.yaml())]


def _prepared(folder: Path, recipe: Recipe, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """What an interrupted run had ready for this one: tokens say what they were made of, a vocabulary does not."""
    same = all(place.exists() and place.read_bytes() == t.encode() for place, t in _opening(folder, recipe, facts))
    return (TOKENS, VOCABULARY) if same else (TOKENS,)


def _demand_no_guests(folder: Path) -> None:
    """Refuse to remove what somebody else put into our folders."""
    with explain_errors("start over", folder):
        for place in (
            folder / name for name in RUN_FILES if name.removeprefix(".").removesuffix(".previous") in MODELS
        ):
            if place.exists() and (others := find_foreign_files(place)):
                raise SpecError(f"{place} holds {', '.join(others[:3])}, which we did not write; choose another --out")


def _clear(folder: Path, kept: Collection[str]) -> None:
    """Delete what an earlier run left, and nothing else; its facts stay, for they say that it is ours."""
    with explain_errors("start over", folder):
        for name in (name for name in FOLDERS if name not in kept):
            for left in (name, f".{name}.partial", f".{name}.previous"):
                if (folder / left).exists():
                    shutil.rmtree(folder / left)
        for name in (RECIPE, LOG, REPORT):
            (folder / name).unlink(missing_ok=True)


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two recipes differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        out = []
        for key in dict.fromkeys([*old, *new]):
            out += _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return out
    return [] if old == new else [f"{path}: {old!r} -> {new!r}"]
