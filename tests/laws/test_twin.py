"""A mixer that names a plain twin equals it, weights taken over by name."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.nn.core.coords import Coords
from tests.laws.examples import DECODERS, ENCODERS, LENGTH, Case, ids, name_of
from tests.laws.running import CLOSE

pytestmark = pytest.mark.numeric

TWINS = [c for c in DECODERS + ENCODERS if c.mixer.twin() is not None]


@pytest.mark.parametrize("case", TWINS, ids=name_of)
@pytest.mark.parametrize(
    "at",
    [Coords.span(LENGTH), Coords.lengths([LENGTH, 5]), Coords.lengths([LENGTH, 5], left=True)],
    ids=["", "right", "left"],
)
def test_a_mixer_is_its_twin(case: Case, at: Coords) -> None:
    side = "encoder" if case.spec.decoder is None else "decoder"
    twin = dataclasses.replace(case, spec=case.spec.replace(f"{side}.block.mix", case.mixer.twin()))
    mine, other = case.net(), twin.net(1)
    other.load_state_dict(mine.state_dict())
    outs = [net(ids(2, LENGTH), at) for net in (mine, other)]
    kept = at.kept.expand(2, -1)
    torch.testing.assert_close(outs[0][kept], outs[1][kept], **CLOSE)
    pairs = zip(
        *(
            torch.autograd.grad(out[kept].sin().sum(), list(n.parameters()), materialize_grads=True)
            for out, n in zip(outs, (mine, other), strict=True)
        ),
        strict=True,
    )
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
