"""Looking changes nothing: with a tape every layer takes the plain path, without one the fused; both give one result."""

from __future__ import annotations

from itertools import cycle

import pytest
import torch
from torch import Tensor

from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from tests.laws.examples import BOTH, DECODERS, ENCODERS, LENGTH, Case, ids

pytestmark = pytest.mark.numeric

CASES = ENCODERS + DECODERS + BOTH
PLACES = {
    "no padding": Coords.span(LENGTH),
    "right": Coords.lengths([LENGTH, 5]),
    "left": Coords.lengths([LENGTH, 5], left=True),
}


def passed(net: Net, at: Coords, both: bool, tape: Tape | None) -> list[Tensor]:
    """The output and the gradient of every parameter."""
    source = (ids(2, LENGTH, seed=1), at) if both else None
    out = net(ids(2, LENGTH), at, source, tape)
    return [out, *torch.autograd.grad(out.sin().sum(), list(net.parameters()), materialize_grads=True)]


@pytest.mark.parametrize(("case", "place"), list(zip(CASES, cycle(PLACES))), ids=lambda v: getattr(v, "name", v))
def test_looked_at_or_not(case: Case, place: str) -> None:
    net, at = case.net().train(), PLACES[place]
    both = case.spec.encoder is not None and case.spec.decoder is not None
    tape = Tape("*")
    for seen, unseen in zip(passed(net, at, both, tape), passed(net, at, both, None), strict=True):
        torch.testing.assert_close(seen, unseen, rtol=1e-9, atol=1e-9)
    if not case.mixer.can.weights:
        return
    blocks = [f"{side}.blocks.{i}" for side in ("encoder", "decoder") if getattr(case.spec, side) for i in range(2)]
    wanted = {f"{block}.mix.weights" for block in blocks}
    wanted |= {f"decoder.blocks.{i}.cross.weights" for i in range(2) if both}
    assert wanted <= set(tape.kept)
    assert set(tape.plans) == {name.removesuffix(".weights") for name in wanted}
    for name in wanted:
        weights = tape.kept[name].transpose(1, 2)[at.kept.expand(2, -1)]
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2], dtype=torch.double))
        assert not weights.requires_grad


def test_only_what_was_asked_for_takes_the_slow_path() -> None:
    case = next(c for c in BOTH)
    tape = Tape("decoder.*.cross.weights")
    passed(case.net(), Coords.span(LENGTH), True, tape)
    assert sorted(tape.kept) == ["decoder.blocks.0.cross.weights", "decoder.blocks.1.cross.weights"]
    slow = {name for name, reason in tape.plans.items() if not reason.startswith("fused")}
    assert slow == {"decoder.blocks.0.cross", "decoder.blocks.1.cross"}
