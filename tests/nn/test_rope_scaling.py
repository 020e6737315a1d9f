"""RoPE scaling: low frequencies are slowed by `factor`, high ones are unchanged. (Parity: tests/conversion.)"""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import SpecError
from regard.nn.positions.position import Rotary
from regard.nn.positions.rope_scaling import LinearScaling, Llama3Scaling, RopeScalingSpec, YarnScaling

pytestmark = pytest.mark.numeric

RATES = 1e4 ** (-torch.arange(0, 64, 2, dtype=torch.double) / 64)


@pytest.mark.parametrize(
    "rope_scaling", [LinearScaling(4.0), Llama3Scaling(4.0, 256), YarnScaling(4.0, 256)], ids=lambda s: type(s).__name__
)
def test_rates_lie_between_unchanged_and_slowed_by_the_factor(rope_scaling: RopeScalingSpec) -> None:
    share = rope_scaling.scale_rates(RATES, 1e4) / RATES
    assert (share >= 1 / 4 - 1e-12).all() and (share <= 1 + 1e-12).all()
    assert (share.diff() <= 1e-12).all(), "the slower a wave, the more it is slowed down"
    assert share[-1] == pytest.approx(1 / 4)
    assert isinstance(rope_scaling, LinearScaling) or share[0] == pytest.approx(1)


def test_high_frequencies_stay_unchanged() -> None:
    rounds = 256 * RATES / (2 * math.pi)
    share = Llama3Scaling(4.0, 256, low_freq_factor=1.0, high_freq_factor=4.0).scale_rates(RATES, 1e4) / RATES
    assert ((share > 1 - 1e-9) == (rounds >= 4)).all() and ((share < 1 / 4 + 1e-9) == (rounds <= 1)).all()


def test_qk_factor() -> None:
    assert YarnScaling(4.0, 256).qk_factor == pytest.approx(1 + math.log(4) / 10)
    assert (YarnScaling(4.0, 256, attention_factor=1.5).qk_factor, LinearScaling(4.0).qk_factor) == (1.5, 1.0)


def test_refuses_contradicting_bounds() -> None:
    with pytest.raises(SpecError, match=r"^high_freq_factor should be above low_freq_factor=2.0, got 1.0$"):
        Llama3Scaling(2.0, 8, low_freq_factor=2.0, high_freq_factor=1.0)
    with pytest.raises(SpecError, match=r"^beta_fast should be above beta_slow=3.0, got 2.0$"):
        YarnScaling(2.0, 8, beta_fast=2.0, beta_slow=3.0)
    with pytest.raises(SpecError, match=r"^base should be above 1 for scaled angles, got 1.0$"):
        Rotary(1.0, rope_scaling=LinearScaling(2.0))
