"""Model and run folders: names, kinds, reading, writing.

    model folder                        run folder
    config.json        spec, task …     run.json, recipe.yaml   what the run is
    model.safetensors  weights          log.jsonl, report.html  what happened
    tokenizer files    of the task      vocabulary/, tokens/    prepared data
    engine.json        engine plan      checkpoints/, snapshots/
    README.md          model card
    manifest.json      checksums        best/, final/           model folders

This is the only module that decides what a folder is, and that spells these names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import regard
from regard.decode import Search
from regard.engine.engine_plan import PLAN
from regard.errors import CheckpointError, SpecError
from regard.files.folder import JSON_LIMIT, MANIFEST, WEIGHTS, Folder, parse_json, read_file, read_folder, write_folder
from regard.files.storage import DISK, Storage, is_lack
from regard.spec import Plain
from regard.tasks.common.capabilities import Framed, supports
from regard.tasks.common.task import Task

if TYPE_CHECKING:  # finding and reading a folder needs no torch
    from torch import Tensor

    from regard.model.net import Net

FORMAT = 1
CONFIG, CARD = "config.json", "README.md"
RECIPE, LOG, FACTS, REPORT = "recipe.yaml", "log.jsonl", "run.json", "report.html"
VOCABULARY, TOKENS, CHECKPOINTS, SNAPSHOTS, TENSORBOARD = (
    "vocabulary",
    "tokens",
    "checkpoints",
    "snapshots",
    "tensorboard",
)
FINAL, BEST = "final", "best"
"""The models of a run, the preferred one first."""
BEFORE = ".before"
"""Folder in which `regard train --fresh` keeps the old run until the new one has started."""
FINISHED = "finished"
"""The key of run.json that a run has once its final model was written: the size and SHA-256 of its log at that time."""


def identify_folder(path: str | Path) -> Literal["model", "run"] | None:
    """Tell whether a folder holds a model or a run; None for any other folder, such as data or a Hugging Face model."""
    path = Path(path)
    if (path / RECIPE).exists() or any((path / name / MANIFEST).exists() for name in (FINAL, BEST)):
        return "run"
    if not (path / MANIFEST).exists():
        return None
    config = _read_json(path, CONFIG)
    if isinstance(config, dict) and "model_type" in config:  # Hugging Face's key; we write such folders, too
        return None
    return "model"


def find_model(path: str | Path, *, map_weights: bool = False) -> Folder:
    """Read a model folder, or the model of a run folder: `final` if there is one, otherwise `best`.

    See `read_folder` for `map_weights`.
    """
    path = Path(path)
    for name in (FINAL, BEST):
        if (path / name).is_symlink():
            raise CheckpointError(
                f"{path / name} is a link, and links in a run folder are not followed; name its target instead"
            )
        try:
            return read_folder(path / name, map_weights=map_weights)
        except SpecError:  # there is none
            _check_not_moved(path)
            if name == FINAL and _was_finished(path):
                raise CheckpointError(
                    f"{path / FINAL} is missing, though this run was finished: run the command that trained it again, which "
                    f"writes {FINAL} again, or name {path / BEST} instead"
                ) from None
        except CheckpointError as error:
            if not (path / FACTS).exists():
                raise
            raise CheckpointError(f"{error}; run the command that trained it again: it writes {name} again") from None
    if identify_folder(path) == "run":
        begun = (path / CHECKPOINTS).exists() or (path / LOG).exists()
        state = "has not validated yet; let it train longer" if begun else "has not started; train it first"
        raise CheckpointError(f"{path} is a run that {state}")
    return read_folder(path, map_weights=map_weights)


def _check_not_moved(run: Path) -> None:
    """Name the old model if a training with --fresh was stopped before the new run started: the user gave that one up."""
    moved = next((run / BEFORE / name for name in (FINAL, BEST) if (run / BEFORE / name / MANIFEST).exists()), None)
    if moved is not None and not (run / BEST).exists():
        raise CheckpointError(
            f"{run} has no model: train --fresh moved the one before to {moved} and was stopped (or is preparing a new run). "
            "Name that folder to use it; train without --fresh moves it back"
        )


def _was_finished(run: Path) -> bool:
    facts = _read_json(run, FACTS)
    return isinstance(facts, dict) and FINISHED in facts


def _read_json(folder: Path, name: str) -> object:
    """Read a JSON file of a folder; None if it is missing or damaged, which whoever opens the folder reports."""
    try:
        return parse_json(read_file(folder, name, JSON_LIMIT), folder / name)
    except CheckpointError as error:
        if is_lack(error):  # it may be whole
            raise
        return None


def read_config(folder: Folder) -> Plain:
    """Read the configuration of a model folder, in the format of this version."""
    config: object = folder.json(CONFIG)
    wanted = {"format", "task", "settings", "model", "decode"}
    if not isinstance(config, dict) or set(config) - {"regard"} != wanted or not isinstance(config["settings"], dict):
        raise CheckpointError(f"{folder.path / CONFIG} is not the configuration of a model")
    if config["format"] != FORMAT:
        raise CheckpointError(
            f"{folder.path} has format {config['format']}, this version reads {FORMAT}; update regard"
        )
    return config


def sign_plan(plan: Plain, files: Mapping[str, bytes | mmap]) -> Plain:
    """A plan with a digest of itself and of what it was made for, as its `files`.

    What it was made for is every file but the card; of weights, their names and shapes. A folder with another plan, or with
    something else beside it, is opened with torch, which computes what the configuration says and checks that everything fits.
    """
    try:
        own = json.loads(json.dumps({key: value for key, value in plan.items() if key != "files"}))
        digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode())
    except RecursionError:
        raise CheckpointError(f"{PLAN} is damaged: it is nested too deeply") from None
    for name in sorted(set(files) - {PLAN, CARD}):
        data = files[name]
        if name == WEIGHTS:
            data = data[: 8 + int.from_bytes(data[:8], "little")]  # of a map, too, these are bytes
        digest.update(json.dumps([name, len(data)]).encode())
        digest.update(data)
    return {**plan, "files": digest.hexdigest()}


def write_model(
    path: Path,
    *,
    task: Task,
    name: str,
    net: Net,
    search: Search,
    weights: Mapping[str, Tensor],
    card: str,
    more: Mapping[str, bytes] | None = None,
    damaged: bool = False,
    storage: Storage = DISK,
) -> None:
    """Write a model folder: configuration, tokenizers, weights, card, `more` files and the manifest.

    There is a plan among them if the native engine can run it. See `write_folder` for `damaged`.
    """
    from regard.engine.quantized_weights import is_quantized, pack_weights
    from regard.engine.write_plan import describe_folder
    from regard.files.tensors import pack

    plan, frame = None, task.frame() if supports(task, Framed) else None
    if frame is not None:
        with suppress(SpecError):  # the native engine cannot run this model
            plan = describe_folder(net)
    config = {
        "format": FORMAT,
        "regard": regard.__version__,
        "task": name,
        "settings": task.settings.plain(),
        "model": net.spec.plain(),
        "decode": search.plain(),
    }
    files = {
        CONFIG: json.dumps(config, indent=2, ensure_ascii=False).encode(),
        WEIGHTS: pack(weights) if plan is None or not is_quantized(weights) else pack_weights(weights, plan),
        CARD: card.encode(),
        **task.files(),
        **(more or {}),
    }
    if plan is not None:
        files[PLAN] = json.dumps(sign_plan({**plan, "frame": frame}, files), ensure_ascii=False).encode()
    write_folder(path, files, damaged=damaged, storage=storage)
