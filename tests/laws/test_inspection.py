"""Looking changes nothing: with a tape every layer takes the plain path, without one the fused; both give one result."""

from __future__ import annotations

import dataclasses
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.families import gpt
from regard.laws.case import LENGTH, Case, make_ids
from regard.laws.inspection import PLACES, check_replacement, check_rows, check_tape, run_with_gradients
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Fixed
from regard.nn.core.mixer import MixerSpec
from regard.nn.mixers.bigbird import BigBird
from regard.nn.mixers.flash import Flash
from regard.nn.mixers.full import Full
from regard.nn.mixers.local import Local
from regard.nn.mixers.lsh import Lsh
from regard.nn.mixers.performer import Performer
from regard.nn.mixers.sparse import Sparse
from tests.laws.examples import BOTH, DECODERS, ENCODERS

pytestmark = pytest.mark.numeric

CASES = ENCODERS + DECODERS + BOTH


@pytest.mark.parametrize(("case", "place"), list(zip(CASES, cycle(PLACES))), ids=lambda v: getattr(v, "name", v))
def test_looked_at_or_not(case: Case, place: str) -> None:
    check_tape(case, place)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_replacing_is_exact(case: Case) -> None:
    check_replacement(case)


@pytest.mark.parametrize(("case", "place"), list(zip(CASES, cycle(PLACES))), ids=lambda v: getattr(v, "name", v))
def test_chosen_rows_are_those_of_the_whole(case: Case, place: str) -> None:
    check_rows(case, place)


def test_only_what_was_asked_for_takes_the_slow_path() -> None:
    tape = Tape("decoder.*.cross.weights")
    run_with_gradients(BOTH[0].net(), Coords.span(LENGTH), True, tape)
    assert sorted(tape.kept) == ["decoder.blocks.0.cross.weights", "decoder.blocks.1.cross.weights"]
    slow = {name for name, reason in tape.plans.items() if not reason.startswith("fused")}
    assert slow == {"decoder.blocks.0.cross", "decoder.blocks.1.cross"}


class Largest(TorchDispatchMode):
    """The size of the largest tensor that an operator makes."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return out


LONG = 1024
LONG_MIXERS: dict[str, MixerSpec] = {
    "full": Full(heads=2),
    "flash": Flash(heads=2),
    "local": Local(heads=2, reach=8),
    "sparse": Sparse(heads=2, pattern=Fixed(32, 4)),
    "bigbird": BigBird(heads=2, block=16, random=2),
    "performer": Performer(heads=2),
    "lsh": Lsh(heads=2, chunk=32, rounds=1),
}


@pytest.mark.parametrize("name", LONG_MIXERS)
def test_chosen_rows_of_a_long_text_need_no_square(name: str) -> None:
    spec = gpt.spec(width=16, depth=1, heads=2, vocab=11, length=LONG)
    body = dataclasses.replace(spec.decoder, causal=False)  # type: ignore[type-var]
    body = dataclasses.replace(body, block=dataclasses.replace(body.block, mix=LONG_MIXERS[name]))  # type: ignore[attr-defined]
    net = dataclasses.replace(spec, decoder=None, encoder=body).build(seed=1).eval()
    tape = Tape("*.mix.weights", rows=[LONG - 1, 5], heads=[0])
    with torch.no_grad(), Largest() as seen:
        net(make_ids(1, LONG), Coords.span(LONG), tape=tape)
    assert tape.kept["encoder.blocks.0.mix.weights"].shape == (1, 1, 2, LONG)
    assert seen.numbers < LONG * LONG / 2
