"""Model folders: what a finished model is, self-contained and movable."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from regard.decode import Search
from regard.errors import CheckpointError, SpecError
from regard.files.folder import Folder, write_folder
from regard.files.storage import DISK, Storage
from regard.files.tensors import pack
from regard.model.build import weight_faults
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.tasks import find
from regard.tasks.common.task import Task

FORMAT = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
LAYERS = 1000
"""Of one side of a model that somebody sent us."""
COMPUTED = 1 << 24
"""Numbers that no file holds and that are made when a model is built: BigBird's draws, ALiBi's slopes."""
TIES = 4
"""How many times as many weights a model may have as its file stores; where head and embedding are tied, nearly twice."""


def export(
    path: Path,
    *,
    task: Task,
    name: str,
    net: Net,
    search: Search,
    weights: Mapping[str, Tensor],
    card: str,
    storage: Storage = DISK,
) -> None:
    """Write a model folder: spec and task, tokenisers, weights, card, manifest."""
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
        WEIGHTS: pack(weights),
        CARD: card.encode(),
        **task.files(),
    }
    write_folder(path, files, storage=storage)


def config_of(folder: Folder) -> dict[str, Any]:
    """What a model folder says of its model, in a format that we read."""
    config: dict[str, Any] = folder.json(CONFIG)
    wanted = {"format", "task", "settings", "model", "decode"}
    if not isinstance(config, dict) or set(config) - {"regard"} != wanted or not isinstance(config["settings"], dict):
        raise CheckpointError(f"{folder.path / CONFIG} is not the configuration of a model")
    if config["format"] != FORMAT:
        raise CheckpointError(
            f"{folder.path} has format {config['format']}, this version reads {FORMAT}; update regard"
        )
    return config


def restore(folder: Folder, changes: Mapping[str, Any] | None = None) -> tuple[Net, Task, Search]:
    """The model of a folder: built from its spec, with every weight accounted for.

    `changes` to its `model` or `data` settings may be such that the weights still fit: a longer memory, another context.
    """
    config, tensors = config_of(folder), folder.tensors(WEIGHTS)
    changes = changes or {}
    for key in changes:
        if key not in ("model", "data"):
            raise SpecError(f"of a finished model only `model.…` and `data.…` can be set, got {key!r}")
    try:
        kind = find(config["task"])
        task = kind.load(kind.Settings.parse(config["settings"]).overlay(changes.get("data", {})), folder.files)
        search, spec = (
            Search.parse(config["decode"]),
            ModelSpec.parse(config["model"]).overlay(changes.get("model", {})),
        )
        _demand_vocabulary(spec, task)
        if task.fit(spec) != spec:
            raise SpecError(f"its head is not one for the task {config['task']} and what that tells apart")
        outline = outline_of(spec, layers=len(tensors))
        if faults := weight_faults(outline.shapes(), tensors):
            if changes:
                raise SpecError(f"its weights do not fit a model so changed: {'; '.join(faults)}")
            raise CheckpointError(f"{folder.path / WEIGHTS} does not fit the model: {'; '.join(faults)}")
        _demand_stored(outline, tensors)
        net = spec.filled(tensors)
    except SpecError as error:
        if changes:
            raise SpecError(f"{folder.path}: {error}") from None
        raise CheckpointError(f"{folder.path / CONFIG}: {error}") from None
    return net.eval(), task, search


def _demand_vocabulary(spec: ModelSpec, task: Task) -> None:
    """Every token the tokenisers write must be one the model reads."""
    facts, read = task.facts(), spec.source or spec.embed
    for name, there in (("vocab", spec.embed.vocab), ("source_vocab", read.vocab)):
        if facts.get(name, 0) > there:
            raise SpecError(f"the tokenizer has {facts[name]} tokens, the model only {there}")


def _demand_stored(outline: Net, tensors: Mapping[str, Tensor]) -> None:
    """A file may say that weights are tied, but not so that a small one becomes a large model."""
    needed = sum(weight.numel() for weight in outline.parameters())
    stored = sum(tensor.numel() for tensor in {id(tensor): tensor for tensor in tensors.values()}.values())
    if needed > TIES * stored:
        raise SpecError(f"this model has {needed} weights, and {WEIGHTS} stores {stored}, which it ties too often")


def shapes_of(spec: ModelSpec, layers: int) -> dict[str, tuple[int, ...]]:
    """The shape of every weight, before anything is allocated. More layers than the file has weights are not built."""
    return outline_of(spec, layers).shapes()


def outline_of(spec: ModelSpec, layers: int) -> Net:
    """The model without its numbers, if there can be one of this size."""
    for path, part in spec.walk():
        for name, count in (("depth", getattr(part, "depth", None)), ("blocks", len(getattr(part, "blocks", ())))):
            if (count or 0) > layers:
                raise SpecError(f"{path}.{name} is {count}, but there are only {layers} weights")
            if (count or 0) > LAYERS:
                raise SpecError(f"{path}.{name} is {count}, and no model that we open has over {LAYERS} layers")
    try:
        with torch.device("meta"):
            net = spec.build()
    except (RuntimeError, OverflowError, TypeError) as error:  # sizes that no tensor can have
        raise SpecError(f"this model cannot be built: {str(error).partition(chr(10))[0]}") from None
    stored = net.state_dict()
    computed = sum(buffer.numel() for name, buffer in net.named_buffers() if name not in stored)
    if computed > COMPUTED:
        raise SpecError(f"this model computes {computed} numbers when it is built; we open none with over {COMPUTED}")
    return net


def card(title: str, scores: Mapping[str, float], signatures: Mapping[str, str], facts: Mapping[str, Any]) -> str:
    """The README of a model folder."""
    lines = [
        f"# {title}",
        "",
        "Trained with [Regard](https://pypi.org/project/regard/).",
        "",
        "| score | value | |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {value:.4g} | {_cell(signatures.get(name, ''))} |" for name, value in scores.items()]
    lines += ["", "| fact | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    lines += [
        "",
        "```python",
        "import regard",
        "",
        'model = regard.load("path/to/this/folder")',
        'model.run(["…"])',
        "```",
        "",
    ]
    return "\n".join(lines)


def versions() -> dict[str, str]:
    """What a number may depend on."""
    return {"regard": regard.__version__, "torch": torch.__version__, "python": platform.python_version()}


def _cell(value: Any) -> str:
    text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def metric_signatures(names: Sequence[str]) -> dict[str, str]:
    from regard.tasks.common.metrics import METRICS

    return {name: METRICS[name].signature() for name in names}
