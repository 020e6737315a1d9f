"""Dropout draws few random bits; these show that they are enough.

Bounds are five standard deviations of what independent draws give: real, and wide enough that a fixed seed never meets them
by chance.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard.nn.layers.dropout import Dropout, dropout

pytestmark = pytest.mark.numeric

N = 1 << 20


def kept(p: float, seed: int, shape: tuple[int, ...] = (N,)) -> Tensor:
    torch.manual_seed(seed)
    return (dropout(torch.ones(shape), p) != 0).double()


def correlation(a: Tensor, b: Tensor) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).mean() / (a.square().mean() * b.square().mean()).sqrt())


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_rate_is_the_one_asked_for(p: float, seed: int) -> None:
    dropped = 1 - kept(p, seed).mean().item()
    assert abs(dropped - p) < 5 * math.sqrt(p * (1 - p) / N) + 0.5 / 65536


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_neighbours_are_independent(p: float) -> None:
    mask = kept(p, 3)
    for apart in (1, 2, 3, 4, 5, 7, 8, 16, 64, 512):  # four elements share a word of 64 bits
        assert abs(correlation(mask[:-apart], mask[apart:])) < 5 / math.sqrt(N), apart


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_places_in_a_word_are_alike_and_independent(p: float) -> None:
    """Each of the four places drops at the same rate, and all patterns of four come as often as they should."""
    words = kept(p, 4).view(-1, 4)
    patterns = (words @ torch.tensor([8.0, 4.0, 2.0, 1.0], dtype=torch.double)).long().bincount(minlength=16)
    chance = torch.tensor([math.prod(1 - p if i >> j & 1 else p for j in range(4)) for i in range(16)])
    wanted = chance * len(words)
    chi_squared = ((patterns - wanted).square() / wanted).sum().item()
    assert chi_squared < 15 + 5 * math.sqrt(2 * 15)


def test_calls_are_independent() -> None:
    torch.manual_seed(5)
    masks = [(dropout(torch.ones(N), 0.3) != 0).double() for _ in range(4)]
    for i in range(4):
        for j in range(i):
            assert abs(correlation(masks[i], masks[j])) < 5 / math.sqrt(N)


def test_rows_and_columns_drop_alike() -> None:
    mask = kept(0.2, 6, (1024, 1024))
    for mean in (mask.mean(0), mask.mean(1)):
        assert (mean - 0.8).abs().max() < 5 * math.sqrt(0.2 * 0.8 / 1024)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.75])
def test_what_stays_is_scaled_so_that_the_mean_stays(p: float) -> None:
    x = torch.randn(N, dtype=torch.double)
    y = dropout(x, p)
    stays = y != 0
    torch.testing.assert_close(y[stays], x[stays] / (1 - p), rtol=1e-4, atol=0)
    assert abs(dropout(torch.ones(N), p).mean().item() - 1) < 5 * math.sqrt(p / (1 - p) / N) + 1e-4


def test_the_gradient_passes_where_the_value_did() -> None:
    x = torch.randn(1000, dtype=torch.double, requires_grad=True)
    y = dropout(x, 0.4)
    pull = torch.randn(1000, dtype=torch.double)
    y.backward(pull)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, pull * (y / x).detach())


def test_the_same_seed_draws_the_same_mask() -> None:
    assert torch.equal(kept(0.3, 7), kept(0.3, 7))
    assert not torch.equal(kept(0.3, 7), kept(0.3, 8))


def test_a_seed_given_draws_the_same_mask_whatever_torchs_state() -> None:
    x = torch.ones(1000, requires_grad=True)
    a, b, other = dropout(x, 0.3, seed=3), dropout(x, 0.3, seed=3), dropout(x, 0.3, seed=4)
    assert torch.equal(a, b)
    assert not torch.equal(a, other)
    before = torch.get_rng_state()
    dropout(x, 0.3, seed=5).sum().backward()
    assert torch.equal(torch.get_rng_state(), before)
    assert x.grad is not None
    assert torch.equal(x.grad, dropout(torch.ones(1000), 0.3, seed=5))


def test_torchs_random_state_is_all_there_is_to_save() -> None:
    dropout(torch.ones(9), 0.5)
    saved = torch.get_rng_state()
    first = [dropout(torch.ones(99), 0.5) for _ in range(3)]
    torch.set_rng_state(saved)
    assert all(torch.equal(a, dropout(torch.ones(99), 0.5)) for a in first)


@pytest.mark.parametrize("p", [0.0, 1e-6])
def test_nothing_to_drop_is_the_input_itself(p: float) -> None:
    x = torch.randn(5)
    before = torch.get_rng_state()
    assert dropout(x, p) is x
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_is_the_input_itself() -> None:
    x, layer = torch.ones(100), Dropout(0.5)
    assert (layer(x) == 0).any()
    assert layer.eval()(x) is x
    assert repr(layer) == "Dropout(p=0.5)"


def test_almost_all_may_be_dropped() -> None:
    assert dropout(torch.ones(1000), 1 - 1e-9).isfinite().all()


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (3, 5), (2, 3, 7)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_any_shape_and_type(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    y = dropout(torch.ones(shape, dtype=dtype), 0.5)
    assert (y.shape, y.dtype) == (shape, dtype)
    assert set(y.flatten().tolist()) <= {0, 2}


def test_a_transposed_input() -> None:
    x = torch.randn(6, 4).t()
    y = dropout(x, 0.5)
    torch.testing.assert_close(y[y != 0], 2 * x[y != 0])
