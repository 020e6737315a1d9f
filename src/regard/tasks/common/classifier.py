"""What classifiers share: head, outputs, files."""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from regard.data.batch import IGNORE
from regard.errors import CheckpointError, DataError, SpecError
from regard.files.folder import JSON_LIMIT
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Classes
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.spec import Plain
from regard.tasks.common.task import Output

CLASSES_FILE = "classes.json"


def add_class_head(
    spec: ModelSpec, count: int, pool: Literal["first", "mean"] | None, *, hidden: bool, dropout: float
) -> ModelSpec:
    """The model with a head for `count` classes; a head that fits already is kept."""
    if spec.encoder is None or spec.decoder is not None:
        raise SpecError("a classifier needs a model with an encoder and no decoder; use "
                        "model.family: bert for texts, vit for images")  # fmt: skip
    head = spec.head
    if isinstance(head, Classes) and head.count == count and (head.pool is None) is (pool is None):
        return spec
    return dataclasses.replace(spec, head=Classes(count, pool, hidden=hidden, dropout=dropout), beside=None)


def class_logits(net: Net, ids: Tensor, at: Coords, tape: Tape | None = None) -> Tensor:
    """A score for every class: (b, classes), or (b, n, classes) if each token has one."""
    return net.logits(net(ids, at, tape=tape), at)


def average_log_probs(told: Sequence[Tensor]) -> Tensor:
    """The log-probabilities of an ensemble: those of the mean probability."""
    each = torch.stack([one.double().log_softmax(-1) for one in told])
    return each.logsumexp(0) - torch.log(torch.tensor(float(len(told)), dtype=each.dtype))


def rank_classes(log_probs: Tensor, classes: Sequence[str], n_best: int) -> list[Output]:
    """The likeliest classes, best first. The best comes with the probability of every class."""
    probabilities = log_probs.exp().tolist()
    order = sorted(range(len(classes)), key=lambda i: (-probabilities[i], i))
    found = [Output(classes[i], probabilities[i], float(log_probs[i])) for i in order[:n_best]]
    return [
        dataclasses.replace(found[0], more={"probabilities": dict(zip(classes, probabilities, strict=True))}),
        *found[1:],
    ]


def label_indices(labels: Sequence[str], classes: Sequence[str], name: str) -> list[int]:
    """The index of each label among the classes of the model."""
    where = {label: i for i, label in enumerate(classes)}
    if unknown := sorted(set(labels) - where.keys()):
        raise DataError(f"{name} has a class {unknown[0]!r} that the model does not have; it has {_excerpt(classes)}")
    return [where[label] for label in labels]


def wanted_class(output: str, classes: Sequence[str]) -> list[int]:
    """The index of a class to explain; IGNORE if none is given."""
    return label_indices([output], classes, "what is asked about") if output else [IGNORE]


def list_classes(labels: Iterable[str], name: str) -> tuple[str, ...]:
    """The distinct labels, sorted; at least two."""
    found = sorted(set(labels))
    if len(found) < 2:
        raise DataError(f"{name} has {len(found)} class ({_excerpt(found)}); at least two are needed")
    return check_class_names(found, name)


def check_class_names(classes: Sequence[str], name: str) -> tuple[str, ...]:
    """The same classes, unless a terminal would obey a name instead of showing it."""
    if strange := [label for label in classes if any(unicodedata.category(c) == "Cc" for c in label)]:
        raise DataError(f"{name} has a class {strange[0][:80]!r}; class names cannot have control characters")
    return tuple(classes)


def pack_classes(classes: Sequence[str], **more: object) -> dict[str, bytes]:
    """The file of a model folder that names the classes, with other settings that belong to them."""
    return {CLASSES_FILE: json.dumps({"classes": list(classes), **more}, indent=2, ensure_ascii=False).encode()}


def unpack_classes(files: Mapping[str, bytes]) -> Plain:
    """The content of the file that `pack_classes` makes."""
    if CLASSES_FILE not in files:
        raise CheckpointError(f"there is no {CLASSES_FILE} among {', '.join(files)}; this is not a classifier")
    if len(files[CLASSES_FILE]) > JSON_LIMIT:
        raise CheckpointError(f"{CLASSES_FILE} is too large: a list of classes has at most {JSON_LIMIT} bytes")
    try:
        found = json.loads(files[CLASSES_FILE])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{CLASSES_FILE} is not JSON: {error}") from None
    names = found.get("classes") if isinstance(found, dict) else None
    if not isinstance(names, list) or len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise CheckpointError(
            f"{CLASSES_FILE} should be an object with the names of at least two classes, got {str(found)[:80]}"
        )
    return {**found, "classes": check_class_names(names, CLASSES_FILE)}


def _excerpt(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:8]) + (" …" if len(names) > 8 else "")
