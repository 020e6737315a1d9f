"""Head and probabilities that classifiers share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from regard.data.batch import IGNORE
from regard.errors import SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Classes
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.tasks.common.class_names import label_indices


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


def average_log_probs(logits: Sequence[Tensor]) -> Tensor:
    """The log-probabilities of an ensemble: those of the mean probability."""
    each = torch.stack([one.double().log_softmax(-1) for one in logits])
    return each.logsumexp(0) - torch.log(torch.tensor(float(len(logits)), dtype=each.dtype))


def wanted_class(output: str, classes: Sequence[str]) -> list[int]:
    """The index of a class to explain; IGNORE if none is given."""
    return label_indices([output], classes, "what is asked about") if output else [IGNORE]
