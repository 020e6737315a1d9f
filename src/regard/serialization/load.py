"""Load a model from its folder: spec, task, weights.

A folder may come from a stranger: sizes are checked against the stored weights before anything is allocated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from regard.decode import Search
from regard.engine.quantized_weights import restore_weights
from regard.errors import CheckpointError, SpecError
from regard.files.folder import WEIGHTS, Folder
from regard.model.build import nan_faults, weight_faults
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.serialization.model_folder import CONFIG, read_config
from regard.spec import Plain
from regard.tasks import find
from regard.tasks.common.task import Task

PLUGIN_HINT = "if a plugin adds it, load the plugin first: --plugin FILE, or import it in Python"
"""For a folder that names a part we do not have; a folder can never name the file that adds it."""
MAX_COMPUTED = 1 << 24
"""Numbers computed at build time that no file stores, such as BigBird's random blocks or ALiBi's slopes."""
MAX_TIES = 4
"""Weights of a model per stored number; a model that ties head and embedding has almost two."""


def load_model(folder: Folder, changes: Mapping[str, Mapping[str, object]] | None = None) -> tuple[Net, Task, Search]:
    """Build the model of a folder and fill in its weights, every one of which must fit.

    `changes` to `model` or `data` are possible where the weights still fit: a longer memory, another context.
    """
    config, tensors = read_config(folder), restore_weights(folder.tensors(WEIGHTS))
    changes = changes or {}
    for key in changes:
        if key not in ("model", "data"):
            raise SpecError(f"only `model.…` and `data.…` of a finished model can be changed, got {key!r}")
    try:
        task = _load_task(folder, config, changes)
        search = Search.parse(config["decode"])
        spec = ModelSpec.parse(config["model"]).overlay(changes.get("model", {}))
        _check_vocabulary(spec, task)
        if task.adapt_spec(spec) != spec:
            raise SpecError(f"the model's head does not fit the task {config['task']} and its classes")
        outline = build_outline(spec, layers=len(tensors))
        if faults := weight_faults(outline.shapes(), tensors) or nan_faults(tensors):
            if changes:
                raise SpecError(f"the weights do not fit the changed model: {'; '.join(faults)}")
            raise CheckpointError(f"{folder.path / WEIGHTS} does not fit the model: {'; '.join(faults)}")
        _check_ties(outline, tensors)
        net = spec.build_with(tensors)
    except SpecError as error:
        if changes:
            raise SpecError(f"{folder.path}: {error}") from None
        hint = f"; {PLUGIN_HINT}" if re.search(r"\bno (?!key\b)[a-z]++(?: [a-z]++){0,3} '", str(error)) else ""
        raise CheckpointError(f"{folder.path / CONFIG}: {error}{hint}") from None
    return net.eval(), task, search


def load_task(folder: Folder, changes: Mapping[str, Mapping[str, object]] | None = None) -> Task:
    """The task of a model folder, without the model."""
    try:
        return _load_task(folder, read_config(folder), changes or {})
    except SpecError as error:
        if changes:
            raise SpecError(f"{folder.path}: {error}") from None
        raise CheckpointError(f"{folder.path / CONFIG}: {error}") from None


def _load_task(folder: Folder, config: Plain, changes: Mapping[str, Mapping[str, object]]) -> Task:
    kind = find(config["task"])
    return kind.load(kind.Settings.parse(config["settings"]).overlay(changes.get("data", {})), folder.files)


def build_outline(spec: ModelSpec, layers: int, computed: int | None = MAX_COMPUTED) -> Net:
    """Build a model on the meta device, if a model of this size is possible; `layers` is the number of stored weights.

    `computed` limits the numbers that are computed at build time; None: no limit.
    """
    for path, part in spec.walk():
        for name, count in (("depth", getattr(part, "depth", None)), ("blocks", len(getattr(part, "blocks", ())))):
            if (count or 0) > layers:
                raise SpecError(f"{path}.{name} is {count}, but there are only {layers} weights")
    try:
        with torch.device("meta"):
            net = spec.build()
    except (RuntimeError, OverflowError, TypeError) as error:  # sizes that no tensor can have
        raise SpecError(f"this model cannot be built: {str(error).partition(chr(10))[0]}") from None
    stored = net.state_dict()
    count = sum(buffer.numel() for name, buffer in net.named_buffers() if name not in stored)
    if computed is not None and count > computed:
        raise SpecError(f"building this model computes {count} numbers; the limit is {computed}")
    return net


def _check_vocabulary(spec: ModelSpec, task: Task) -> None:
    """Every token of the tokenizers must have an embedding."""
    facts, read = task.model_arguments(), spec.source or spec.embed
    for name, there in (("vocab", spec.embed.vocab), ("source_vocab", read.vocab)):
        if facts.get(name, 0) > there:
            raise SpecError(f"the tokenizer has {facts[name]} tokens, the model only {there}")


def _check_ties(outline: Net, tensors: Mapping[str, Tensor]) -> None:
    """Weights may be tied, but a small file must not become a huge model."""
    needed = sum(weight.numel() for weight in outline.parameters())
    stored = sum(tensor.numel() for tensor in {id(tensor): tensor for tensor in tensors.values()}.values())
    if needed > MAX_TIES * stored:
        raise SpecError(f"the model has {needed} weights, but {WEIGHTS} stores only {stored} and ties the rest")
