"""What all tasks share in which an encoder reads one sequence and a decoder writes another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import IGNORE, Batch, PaddedTokens, pad_rows
from regard.data.ragged import Ragged
from regard.errors import SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Classes, Vector
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.tasks.common.losses import sequence_loss
from regard.tasks.common.task import Loss
from regard.text import Tokenizer


def both_sides(spec: ModelSpec) -> ModelSpec:
    """The model, if it reads and writes."""
    if spec.encoder is None or spec.decoder is None or isinstance(spec.head, Classes | Vector):
        raise SpecError("to write one text for another a model has both an encoder and a decoder, and writes tokens; use "
                        "model.family: transformer")  # fmt: skip
    return spec


def pair_batch(
    source: Ragged,
    target: Ragged,
    indices: NDArray[np.int64],
    reads: Tokenizer,
    writes: Tokenizer,
    given: Ragged | None = None,
) -> Batch:
    """Sources with their end mark; targets after a start mark as what is given, before an end mark as what is wanted.

    `given` is what is read in the place of targets, if that is something else; what is wanted stays.
    """
    read = pad_rows(source, indices, reads.pad, after=reads.eos)
    told = pad_rows(target if given is None else given, indices, writes.pad, before=writes.bos)
    wanted = pad_rows(target, indices, IGNORE, after=writes.eos)
    return Batch(told, wanted.ids, read, sum(wanted.lengths))


def pair_loss(net: Net, batch: Batch, smoothing: float) -> Loss:
    assert batch.source is not None
    tape = Tape()
    stream = net(batch.given.ids, _at(batch.given), (batch.source.ids, _at(batch.source)), tape)
    return sequence_loss(net, stream, batch, smoothing, tape)


def pair_weights(net: Net, source: Sequence[int], given: Sequence[int]) -> dict[str, Tensor]:
    """Attention weights (h, n, m) by place for one pair."""
    tape = Tape("*.weights")
    (read, at), (ids, here) = (
        (torch.tensor([side], device=net.device), Coords.span(len(side), device=net.device)) for side in (source, given)
    )
    with torch.no_grad():
        net(ids, here, (read, at), tape)
    return {name.removesuffix(".weights"): w[0].cpu() for name, w in tape.kept.items()}


def _at(side: PaddedTokens) -> Coords:
    return Coords.lengths(side.lengths, side.ids.device)
