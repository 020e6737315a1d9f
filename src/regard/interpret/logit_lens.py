"""Logit lens: what the model would say after each layer.

The stream after each block goes through the last norm and the head (nostalgebraist 2020), as if the blocks above did not exist.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from regard.errors import SpecError
from regard.model.net import Net
from regard.nn.blocks.body import StackBody
from regard.nn.core.context import Tape
from regard.tasks.common.forward_pass import ForwardPass


@dataclasses.dataclass(frozen=True)
class LayerReading:
    """Prediction that one layer would make."""

    place: str
    best: Tensor
    """(k,) index of the likeliest token or class for each prediction."""
    best_log_prob: Tensor
    wanted_log_prob: Tensor
    """(k,) log P of what is wanted."""


@torch.no_grad()
def read_layers(net: Net, read: ForwardPass) -> list[LayerReading]:
    """The predictions after the embedding and after each block of the stack with the head; the last is the model's own."""
    side = "decoder" if net.spec.decoder else "encoder"
    body = getattr(net, side)
    if not isinstance(body, StackBody):
        raise SpecError(f"the {side} of this model is not a stack of blocks, so its layers cannot be read one by one")
    tape = Tape(f"{side}.embed", f"{side}.blocks.*", side)
    read.run(net, tape)
    places = [f"{side}.embed", *(f"{side}.blocks.{i}" for i in range(len(body.blocks)))]
    if missing := [place for place in places if place not in tape.kept]:
        raise SpecError(
            f"the stream after {missing[0]} is not a single tensor, so its layers cannot be read one by one"
        )
    norm = torch.nn.Identity() if body.norm is None else body.norm
    out = []
    for place in places:
        logits = read.at_wanted(net.logits(norm(tape.kept[place]), read.at))
        told = logits.double().log_softmax(-1)[0]
        best = told.max(-1)
        out.append(LayerReading(place, best.indices, best.values, read.choose(logits.double())[0]))
    return out
