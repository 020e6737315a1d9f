"""The names of classes: ranking, checking, files."""

from __future__ import annotations

import dataclasses
import json
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from regard.errors import CheckpointError, DataError
from regard.files.folder import JSON_LIMIT
from regard.spec import Plain
from regard.tasks.common.task import Output

CLASSES_FILE = "classes.json"


def rank_classes(log_probs: Sequence[float], classes: Sequence[str], n_best: int) -> list[Output]:
    """The likeliest classes, best first. The best comes with the probability of every class."""
    probabilities = [math.exp(value) for value in log_probs]
    order = sorted(range(len(classes)), key=lambda i: (-probabilities[i], i))
    found = [Output(classes[i], probabilities[i], log_probs[i]) for i in order[:n_best]]
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


def list_classes(labels: Iterable[str], name: str) -> tuple[str, ...]:
    """The distinct labels, sorted; at least two."""
    found = sorted(set(labels))
    if len(found) < 2:
        raise DataError(f"{name} has {len(found)} class ({_excerpt(found)}); at least two are needed")
    return check_class_names(found, name)


def check_class_names(classes: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the classes; refuse names that a terminal would obey instead of showing them."""
    if strange := [label for label in classes if any(unicodedata.category(c) in ("Cc", "Cs") for c in label)]:
        raise DataError(
            f"{name} has a class {strange[0][:80]!r}; class names cannot have control characters or halves of characters"
        )
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
