"""What all classifiers share: the head they need, their loss, and outputs with a probability for each class."""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from regard.errors import CheckpointError, DataError, SpecError
from regard.files.folder import JSON_LIMIT
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Classes
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.tasks.common.task import Output

FILE = "classes.json"


def fitted(
    spec: ModelSpec, count: int, pool: Literal["first", "mean"] | None, *, hidden: bool, dropout: float
) -> ModelSpec:
    """The model with a head for so many classes; one that has such a head keeps it as it is."""
    if spec.encoder is None or spec.decoder is not None:
        raise SpecError("a classifier reads with an encoder and writes nothing, and this model has a decoder; use "
                        "model.family: bert for texts, vit for pictures")  # fmt: skip
    head = spec.head
    if isinstance(head, Classes) and head.count == count and (head.pool is None) is (pool is None):
        return spec
    return dataclasses.replace(spec, head=Classes(count, pool, hidden=hidden, dropout=dropout), beside=None)


def logits(net: Net, ids: Tensor, at: Coords, tape: Tape | None = None) -> Tensor:
    """A score for every class: (b, classes), or (b, n, classes) where each token has one."""
    return net.logits(net(ids, at, tape=tape), at)


def mixed(told: Sequence[Tensor]) -> Tensor:
    """log-probabilities of an ensemble: the mean of its members' probabilities."""
    each = torch.stack([one.double().log_softmax(-1) for one in told])
    return each.logsumexp(0) - torch.log(torch.tensor(float(len(told)), dtype=each.dtype))


def ranked(log_probs: Tensor, classes: Sequence[str], n_best: int) -> list[Output]:
    """The likeliest classes, best first; with the best comes the probability of every class."""
    probabilities = log_probs.exp().tolist()
    order = sorted(range(len(classes)), key=lambda i: (-probabilities[i], i))
    found = [Output(classes[i], probabilities[i], float(log_probs[i])) for i in order[:n_best]]
    return [
        dataclasses.replace(found[0], more={"probabilities": dict(zip(classes, probabilities, strict=True))}),
        *found[1:],
    ]


def places(labels: Sequence[str], classes: Sequence[str], name: str) -> list[int]:
    """Each label as its place among the classes of the model."""
    where = {label: i for i, label in enumerate(classes)}
    if unknown := sorted(set(labels) - where.keys()):
        raise DataError(f"{name} has a class {unknown[0]!r} that the model does not know; it knows {_some(classes)}")
    return [where[label] for label in labels]


def class_names(labels: Sequence[str], name: str) -> tuple[str, ...]:
    """The classes there are, in order; one alone is nothing to learn."""
    found = sorted(set(labels))
    if len(found) < 2:
        raise DataError(f"{name} has {len(found)} class ({_some(found)}); at least two are needed to tell apart")
    return plainly_named(found, name)


def plainly_named(classes: Sequence[str], name: str) -> tuple[str, ...]:
    """The same classes, if a terminal shows what they are called instead of obeying it."""
    if strange := [label for label in classes if any(unicodedata.category(c) == "Cc" for c in label)]:
        raise DataError(f"{name} has a class {strange[0][:80]!r}; what a class is called has no control characters")
    return tuple(classes)


def packed(classes: Sequence[str], **more: Any) -> dict[str, bytes]:
    """The file of a model folder that names the classes, with what else belongs to them."""
    return {FILE: json.dumps({"classes": list(classes), **more}, indent=2, ensure_ascii=False).encode()}


def unpacked(files: Mapping[str, bytes]) -> dict[str, Any]:
    """What `packed` put there."""
    if FILE not in files:
        raise CheckpointError(f"there is no {FILE} among {', '.join(files)}; this is no classifier")
    if len(files[FILE]) > JSON_LIMIT:
        raise CheckpointError(f"{FILE} is refused: no list of classes has over {JSON_LIMIT} bytes")
    try:
        found = json.loads(files[FILE])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{FILE} is not JSON: {error}") from None
    names = found.get("classes") if isinstance(found, dict) else None
    if not isinstance(names, list) or len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise CheckpointError(
            f"{FILE} should be an object with the names of two classes or more, got {str(found)[:80]}"
        )
    return {**found, "classes": plainly_named(names, FILE)}


def _some(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:8]) + (" …" if len(names) > 8 else "")
