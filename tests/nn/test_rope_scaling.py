"""Stretched angles: slow waves turn `factor` times slower, fast ones as ever, and none faster. (Parity: tests/convert.)"""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import SpecError
from regard.nn.positions.position import Rotary
from regard.nn.positions.rope_scaling import Linear, Llama3, StretchSpec, Yarn

RATES = 1e4 ** (-torch.arange(0, 64, 2, dtype=torch.double) / 64)


@pytest.mark.parametrize("stretch", [Linear(4.0), Llama3(4.0, 256), Yarn(4.0, 256)], ids=lambda s: type(s).__name__)
def test_between_as_ever_and_so_many_times_slower(stretch: StretchSpec) -> None:
    share = stretch.slowed(RATES, 1e4) / RATES
    assert (share >= 1 / 4 - 1e-12).all() and (share <= 1 + 1e-12).all()
    assert (share.diff() <= 1e-12).all(), "the slower a wave, the more it is slowed down"
    assert share[-1] == pytest.approx(1 / 4)
    assert isinstance(stretch, Linear) or share[0] == pytest.approx(1)


def test_waves_that_come_round_often_enough_stay() -> None:
    rounds = 256 * RATES / (2 * math.pi)
    share = Llama3(4.0, 256, low=1.0, high=4.0).slowed(RATES, 1e4) / RATES
    assert ((share > 1 - 1e-9) == (rounds >= 4)).all() and ((share < 1 / 4 + 1e-9) == (rounds <= 1)).all()


def test_strength() -> None:
    assert Yarn(4.0, 256).gain == pytest.approx(1 + math.log(4) / 10)
    assert (Yarn(4.0, 256, strength=1.5).gain, Linear(4.0).gain) == (1.5, 1.0)


def test_what_makes_no_sense() -> None:
    with pytest.raises(SpecError, match=r"^high should be above low=2.0, got 1.0$"):
        Llama3(2.0, 8, low=2.0, high=1.0)
    with pytest.raises(SpecError, match=r"^fast should be above slow=3.0, got 2.0$"):
        Yarn(2.0, 8, fast=2.0, slow=3.0)
    with pytest.raises(SpecError, match=r"^base should be above 1 for angles that are stretched, got 1.0$"):
        Rotary(1.0, stretch=Linear(2.0))
