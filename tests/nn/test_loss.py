from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.nn.layers import loss as module
from regard.nn.layers.loss import IGNORE, plain_smoothed_loss, smoothed_loss

pytestmark = pytest.mark.numeric

ROWS, WIDTH, VOCAB = 7, 4, 6


def inputs(bias: bool, dtype: torch.dtype = torch.double) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    x, weight = (torch.randn(n, WIDTH, dtype=dtype, requires_grad=True) for n in (ROWS, VOCAB))
    extra = torch.randn(VOCAB, dtype=dtype, requires_grad=True) if bias else None
    target = torch.tensor([3, IGNORE, 0, 5, 5, IGNORE, 1])
    return x, weight, extra, target


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, VOCAB, 2 * VOCAB, 3 * VOCAB + 1, 1 << 22])
def test_is_cross_entropy_of_torch(smoothing: float, bias: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    x, weight, extra, target = inputs(bias)
    leaves = [t for t in (x, weight, extra) if t is not None]
    loss, plain = smoothed_loss(x, weight, extra, target, smoothing)
    logits = F.linear(x, weight, extra)
    wanted = F.cross_entropy(logits, target, ignore_index=IGNORE, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(plain, F.cross_entropy(logits, target, reduction="sum"), rtol=0, atol=1e-12)
    assert not plain.requires_grad
    pairs = zip(torch.autograd.grad(loss * 3, leaves), torch.autograd.grad(wanted * 3, leaves), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_the_twin_is_the_same(bias: bool) -> None:
    mine, twin = (f(*inputs(bias), 0.1) for f in (smoothed_loss, plain_smoothed_loss))
    assert [m.shape for m in mine] == [t.shape for t in twin]
    torch.manual_seed(1)
    given_ = inputs(bias)
    for m, t in zip(smoothed_loss(*given_, 0.1), plain_smoothed_loss(*given_, 0.1), strict=True):
        torch.testing.assert_close(m, t)


def test_rows_that_do_not_count_get_no_gradient() -> None:
    x, weight, extra, target = inputs(True)
    smoothed_loss(x, weight, extra, target, 0.1)[0].backward()
    assert x.grad is not None
    assert ((x.grad == 0).all(1) == (target == IGNORE)).all()


def test_nothing_counts() -> None:
    x, weight, _, target = inputs(False)
    loss, plain = smoothed_loss(x, weight, None, torch.full_like(target, IGNORE), 0.1)
    loss.backward()
    assert loss == plain == 0
    assert weight.grad is not None
    assert (weight.grad == 0).all()


def test_a_target_outside_the_vocabulary_is_an_error() -> None:
    x, weight, _, target = inputs(False)
    for wrong in (-1, VOCAB):
        with pytest.raises(RuntimeError, match="out of bounds"):
            smoothed_loss(x, weight, None, target.clone().fill_(wrong), 0.1)


def test_without_gradients_none_are_formed() -> None:
    x, weight, extra, target = inputs(True)
    with torch.no_grad():
        loss, _ = smoothed_loss(x, weight, extra, target, 0.1)
    assert not loss.requires_grad


@pytest.mark.parametrize("trained", [0, 1, 2])
def test_only_some_inputs_are_trained(trained: int) -> None:
    x, weight, extra, target = inputs(True)
    leaves = [t.detach().requires_grad_(i == trained) for i, t in enumerate((x, weight, extra)) if t is not None]
    smoothed_loss(leaves[0], leaves[1], leaves[2], target, 0.1)[0].backward()
    assert [t.grad is not None for t in leaves] == [i == trained for i in range(3)]


def test_huge_logits_do_not_overflow() -> None:
    x = torch.tensor([[1e4, -1e4, 0.0, 0.0]], dtype=torch.float32, requires_grad=True)
    loss, _ = smoothed_loss(x, torch.eye(4) * 10, None, torch.tensor([1]), 0.1)
    loss.backward()
    assert loss.isfinite()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_in_bfloat16_the_sum_is_single_precision() -> None:
    x, weight, extra, target = inputs(True, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss, plain = smoothed_loss(x, weight, extra, target, 0.1)
    wanted, _ = plain_smoothed_loss(x, weight, extra, target, 0.1)
    assert loss.dtype == plain.dtype == torch.float32
    torch.testing.assert_close(loss, wanted, rtol=2e-2, atol=0)
    loss.backward()
    for leaf in (x, weight, extra):
        assert leaf is not None
        assert leaf.grad is not None
        (theirs,) = torch.autograd.grad(wanted, leaf, retain_graph=True)
        torch.testing.assert_close(leaf.grad, theirs, rtol=0.1, atol=0.1)


@given(st.floats(0, 0.99), st.integers(0, 5))
def test_smoothing_mixes_the_target_with_an_even_spread(smoothing: float, token: int) -> None:
    torch.manual_seed(token)
    x, weight, _, _ = inputs(False)
    target = torch.full((ROWS,), token)
    loss, plain = smoothed_loss(x, weight, None, target, smoothing)
    even = -F.log_softmax(x @ weight.T, 1).mean(1).sum()
    torch.testing.assert_close(loss, (1 - smoothing) * plain + smoothing * even)
