"""The run folder: start a run, continue it, or replace it.

run.json       facts that must not change: the corpus, plugins, threads, device, precision, the initial model; checksums
recipe.yaml    the complete recipe
log.jsonl, report.html, vocabulary/, tokens/, checkpoints/, snapshots/, best/, final/

With --fresh the old run is moved to `.before` until the new one has started, and moved back if it cannot start:

    .before        what the old run left; run.json is moved last, so once it is there, everything outside is new
    .before.gone   the same after the new run has started; it is removed

If the process is killed in between, the next command finds `.before` and moves it back.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from regard.errors import CheckpointError, DataError, SpecError
from regard.files.folder import find_fault, find_foreign_files, parse_json
from regard.files.storage import DISK, explain_errors, write_file
from regard.recipes.merge import parse_yaml
from regard.serialization.model_folder import (
    BEFORE,
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
from regard.spec import Plain
from regard.training.recipe import Recipe
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.run_changes import CORPUS, Change, list_changes, list_plugin_changes

GONE = f"{BEFORE}.gone"
FOLDERS = (CHECKPOINTS, SNAPSHOTS, BEST, FINAL, VOCABULARY, TOKENS, TENSORBOARD)
MODELS = (BEST, FINAL, VOCABULARY)
RUN_FILES = (
    *(left for name in FOLDERS for left in (name, f".{name}.partial", f".{name}.previous")),
    *(left for name in (RECIPE, LOG, REPORT, FACTS) for left in (f".{name}.partial", f"{name}.corrupt")),
    RECIPE,
    LOG,
    REPORT,
    FACTS,
)
"""Everything a run may leave. run.json, which marks the folder as a run, comes last."""
FIXED = ("threads", "processes", "device", "precision", "torch", "start")
"""Facts that the results depend on."""
MEASURED = ("precision", "seconds_per_step", "batch_tokens")
"""Facts that a recipe may leave open and the start of a run finds out."""
BOUND = ("task", "data.tokenizer", "data.joint_vocab", "train.optimizer.kind", "train.finetune")
"""Settings that no checkpoint survives: changing one means starting over."""
ESSENTIAL = {"fingerprint", "threads", "torch"}
"""Facts by which the run.json of a run is recognized."""
CHECKSUMS = "sha256"
LENGTH = ("train.steps", "train.epochs")
"""Changes that make a run longer or shorter. They need no --anyway."""
NOT_A_RUN = "was not written by regard train and would be overwritten; choose another --out"


@contextmanager
def replace_run(folder: Path, names: Sequence[str] = RUN_FILES) -> Iterator[None]:
    """Remove what `move_aside` moved if the block succeeds; otherwise move it back.

    A run that never existed before and is refused (SpecError, DataError) leaves nothing behind.
    """
    with explain_errors("start over", folder):
        _remove(folder / GONE)
        _put_back(folder, names)
    existed = any((folder / name).exists() for name in names)
    try:
        yield
    except BaseException as error:
        with explain_errors("put the old run back", folder):
            _put_back(folder, names)
            if isinstance(error, SpecError | DataError) and not existed:
                for name in names:
                    _remove(folder / name)
        raise
    with explain_errors("start over", folder):
        if (folder / BEFORE).exists():
            DISK.rename(folder / BEFORE, folder / GONE)
            DISK.sync(folder)
            _remove(folder / GONE)


def move_aside(folder: Path, names: Sequence[str] = RUN_FILES) -> None:
    """Move these files out of the way in order; the last one marks the move as complete."""
    with explain_errors("start over", folder):
        (folder / BEFORE).mkdir()
        if not (folder / names[-1]).exists():
            write_file(folder / names[-1], "")
        _move(folder, folder / BEFORE, names)


def open_run(
    folder: Path, recipe: Recipe, facts: Mapping[str, object], *, fresh: bool = False, anyway: bool = False
) -> list[Change]:
    """Start a run, or check that an earlier one can be continued; returns what changed since then.

    A run may become longer or shorter. Other changes of recipe, corpus, plugins or machine are refused, unless `anyway`.
    A run that saved no checkpoint starts again, but keeps the data it prepared.
    """
    path, before = folder / RECIPE, folder / FACTS
    begun = has_begun(folder)
    if begun or before.exists():
        _check_is_run(folder)
    if fresh or not begun:
        if begun or before.exists():
            _check_no_foreign_files(folder)
            move_aside(folder) if fresh else _clear(folder, _find_prepared(folder, recipe, facts))
        for name in (RECIPE, LOG, REPORT):
            if (folder / name).exists():
                raise SpecError(f"{folder / name} {NOT_A_RUN}")
        _write_run(folder, recipe.yaml(), facts)
        return []
    if fault := find_run_fault(folder):
        raise CheckpointError(f"{fault}, and no checkpoint has a copy of it; start over with --fresh")
    was, old = _read_run(folder)
    changed = list_changes(parse_yaml(old, str(path)), parse_yaml(recipe.yaml(), "the recipe"))
    if was["fingerprint"] != facts["fingerprint"]:
        changed.append(Change(CORPUS, was["fingerprint"], facts["fingerprint"]))
    changed += list_changes({k: was.get(k) for k in FIXED}, {k: facts[k] for k in FIXED}, plain=True)
    changed += list_plugin_changes(was, facts)
    if bound := [change for change in changed if change.under(*BOUND)]:
        raise SpecError(
            f"{folder} was started with another recipe: {'; '.join(map(str, bound))}. Its checkpoints cannot be used "
            "with this; undo the change, choose another --out, or start over with --fresh"
        )
    if not anyway and (other := [change for change in changed if not change.under(*LENGTH)]):
        raise SpecError(
            f"{folder} was started with another recipe, corpus or plugin: {'; '.join(map(str, other))}. Undo the change, "
            "choose another --out, continue nevertheless with --anyway, or start over with --fresh"
        )
    return changed


def update_run(folder: Path, recipe: Recipe, facts: Mapping[str, object]) -> None:
    """Replace the recipe and facts of a run."""
    _write_run(folder, recipe.yaml(), {**read_facts(folder), **facts})


def read_run(folder: Path) -> tuple[Plain, Plain] | None:
    """The facts and the recipe of a run; None if there is none, or it is damaged."""
    try:
        facts, recipe = _read_run(folder)
        return facts, parse_yaml(recipe, str(folder / RECIPE))
    except (CheckpointError, SpecError):
        return None


def find_run_fault(folder: Path) -> str | None:
    """Return the fault of run.json or recipe.yaml; None if there is none."""
    try:
        facts, recipe = _read_run(folder)
        parse_yaml(recipe, str(folder / RECIPE))
    except (CheckpointError, SpecError) as error:
        return str(error)
    return None if facts.keys() >= ESSENTIAL else f"{folder / FACTS} is damaged: it is not that of a run"


def read_facts(folder: Path) -> Plain:
    """The facts of a run; empty if there is none, or it is damaged."""
    try:
        return _read_facts(folder)[0]
    except CheckpointError:
        return {}


def save_facts(folder: Path, **facts: object) -> None:
    """Add facts to those of a run."""
    old, sums = _read_facts(folder)
    write_file(folder / FACTS, _render_facts({**old, **facts}, str(sums.get("recipe"))))


def has_begun(folder: Path) -> bool:
    """True if starting over would lose anything."""
    left = ("checkpoints/step-*", BEST, f".{BEST}.previous", FINAL, f".{FINAL}.previous")
    return any(True for name in left for _ in folder.glob(name))


def _check_is_run(folder: Path) -> None:
    """Refuse a folder that no run has written. Nothing is ever removed from such a folder.

    Without a readable run.json, an intact checkpoint with a copy of it is proof enough; or a damaged run.json beside an
    intact folder of ours.
    """
    path = folder / FACTS
    try:
        said = parse_json(_read_bytes(path), path)
    except CheckpointError as error:
        if not any((folder / name).exists() for name in (*FOLDERS, RECIPE, LOG, REPORT)):
            return  # a power cut right at the start: nothing else is there
        if Checkpoints(folder / CHECKPOINTS).read_copies() is not None:
            return
        if not path.exists():
            raise SpecError(
                f"{folder} holds models or checkpoints, but no {FACTS} of a run; choose another --out"
            ) from None
        if any((folder / name).exists() and find_fault(folder / name) is None for name in MODELS):
            return
        raise CheckpointError(f"{error}; choose another --out") from None
    recognized = isinstance(said, dict) and said.keys() >= ESSENTIAL
    if not recognized and Checkpoints(folder / CHECKPOINTS).read_copies() is None:
        raise SpecError(f"{path} {NOT_A_RUN}")


def _write_run(folder: Path, recipe: str, facts: Mapping[str, object]) -> None:
    """Write the files that describe a run; run.json, which marks the folder as a run, first."""
    write_file(folder / FACTS, _render_facts(facts, hashlib.sha256(recipe.encode()).hexdigest()))
    write_file(folder / RECIPE, recipe)


def _render_facts(facts: Mapping[str, object], recipe: str) -> str:
    """The text of run.json: facts, and the checksums of them and of the recipe."""
    return json.dumps({**facts, CHECKSUMS: {"facts": _digest(facts), "recipe": recipe}}, indent=2)


def _read_run(folder: Path) -> tuple[Plain, str]:
    """The facts and the recipe of a run, verified by their checksums."""
    facts, sums = _read_facts(folder)
    path = folder / RECIPE
    data = _read_bytes(path)
    if sums.get("recipe") not in (None, hashlib.sha256(data).hexdigest()):
        raise CheckpointError(f"{path} is damaged: it has changed since it was written (its SHA-256 differs)")
    try:
        return facts, data.decode()
    except UnicodeDecodeError:
        raise CheckpointError(f"{path} is damaged: it is not UTF-8") from None


def _read_facts(folder: Path) -> tuple[Plain, Plain]:
    """The verified facts of a run, and the checksums."""
    path = folder / FACTS
    facts = parse_json(_read_bytes(path), path)
    if not isinstance(facts, dict):
        raise CheckpointError(f"{path} is damaged: it should be an object")
    sums = facts.pop(CHECKSUMS, {})
    if not isinstance(sums, dict) or (sums and sums.get("facts") != _digest(facts)):
        raise CheckpointError(f"{path} is damaged: it has changed since it was written (its SHA-256 differs)")
    return facts, sums


def _read_bytes(path: Path) -> bytes:
    with explain_errors(f"read {path.name}", path.parent):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing") from None


def _digest(facts: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _find_prepared(folder: Path, recipe: Recipe, facts: Mapping[str, object]) -> tuple[str, ...]:
    """List what an interrupted run has prepared for this one: tokens record what they were made of, a vocabulary does not."""
    path = folder / RECIPE
    if not path.exists() or path.read_bytes() != recipe.yaml().encode():
        return (TOKENS,)
    was = read_facts(folder)
    same = all(was.get(name) == value for name, value in facts.items() if name not in MEASURED)
    return (TOKENS, VOCABULARY) if same else (TOKENS,)


def _check_no_foreign_files(folder: Path) -> None:
    """Refuse to remove files that somebody else put into our folders."""
    with explain_errors("start over", folder):
        for place in (
            folder / name for name in RUN_FILES if name.removeprefix(".").removesuffix(".previous") in MODELS
        ):
            if place.exists() and (others := find_foreign_files(place)):
                raise SpecError(
                    f"{place} contains {', '.join(others[:3])}, which Regard did not write; choose another --out"
                )


def _clear(folder: Path, kept: Collection[str]) -> None:
    """Delete what an earlier run left, and nothing else. Its facts stay: they mark the folder as a run."""
    with explain_errors("start over", folder):
        for name in (name for name in FOLDERS if name not in kept):
            for left in (name, f".{name}.partial", f".{name}.previous"):
                _remove(folder / left)
        for name in (RECIPE, LOG, REPORT):
            _remove(folder / name)


def _put_back(folder: Path, names: Sequence[str]) -> None:
    """Undo `move_aside`, complete or not. The last name comes first, so that this may be interrupted, too."""
    before, last = folder / BEFORE, names[-1]
    if not before.exists():
        return
    if (before / last).exists():
        for name in names:
            _remove(folder / name)
    _move(before, folder, [last, *names])
    before.rmdir()


def _move(here: Path, there: Path, names: Sequence[str]) -> None:
    for name in names:
        if (here / name).exists() or (here / name).is_symlink():
            DISK.rename(here / name, there / name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
