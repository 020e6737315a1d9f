"""Twin: a mixer equals the plain mixer that it names."""

from __future__ import annotations

import dataclasses

import torch

from regard.laws.case import CLOSE_GRADIENTS, LENGTH, Case, make_ids, require_close
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MixerSpec


def check_twin(case: Case, at: Coords) -> None:
    """Outputs and gradients equal the twin's; weights are taken over by name."""
    assert isinstance(case.part, MixerSpec)
    side = "encoder" if case.spec.decoder is None else "decoder"
    twin = dataclasses.replace(case, spec=case.spec.replace(f"{side}.block.mix", case.part.twin()))
    mine, other = case.net(), twin.net(1)
    other.load_state_dict(mine.state_dict())
    outs = [net(make_ids(2, LENGTH), at) for net in (mine, other)]
    kept = at.kept.expand(2, -1)
    require_close(outs[0][kept], outs[1][kept], "the output differs from that of twin()")
    grads = [
        torch.autograd.grad(out[kept].sin().sum(), list(net.parameters()), materialize_grads=True)
        for out, net in zip(outs, (mine, other), strict=True)
    ]
    for a, b in zip(*grads, strict=True):
        require_close(a, b, "the gradients differ from those of twin()", CLOSE_GRADIENTS)
