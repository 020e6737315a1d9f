"""Muon: its orthogonal steps against the singular value decomposition and torch's own, and AdamW for all else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.families import transformer
from regard.training.optimizer import (
    UPDATE_RMS,
    AdamW,
    Muon,
    optimizer_state,
    orthogonalize,
    restore_optimizer,
    set_learning_rate,
)

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 5, 12), (2, 12, 5)])
def test_a_step_keeps_the_singular_vectors_and_evens_out_the_values(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=torch.float64)
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    core = u.mT @ orthogonalize(x, 5) @ v.mT
    values = core.diagonal(dim1=-2, dim2=-1)
    assert (core - torch.diag_embed(values)).abs().max() < 1e-9
    assert values.min() > 0.6 and values.max() < 1.3


def net(seed: int = 1) -> nn.Module:
    return transformer.spec(width=8, depth=1, heads=2, hidden=16, vocab=11).build(seed=seed).double()


def stepped(spec: Muon | AdamW, steps: int, rate: float = 0.01) -> nn.Module:
    one = net()
    optimizer = spec.build(one)
    for step in range(steps):
        _gradients(one, step)
        set_learning_rate(optimizer, rate)
        optimizer.step()
    return one


def _gradients(one: nn.Module, step: int) -> None:
    torch.manual_seed(step)
    for p in one.parameters():
        p.grad = torch.randn_like(p)


def test_matrices_of_the_layers_go_its_way_and_the_rest_is_adamw() -> None:
    ours, plain = dict(stepped(Muon(), 3).named_parameters()), dict(stepped(AdamW(), 3).named_parameters())
    for name, p in ours.items():
        inner = p.dim() == 2 and name.startswith(("encoder", "decoder"))
        assert torch.equal(p, plain[name]) is not inner, name


def test_the_first_step_in_closed_form() -> None:
    """One step: momentum is the gradient but for a factor (0.05, and 0.0975 with the look ahead)."""
    one, rate = net(), 0.01
    optimizer = Muon(weight_decay=0.1).build(one)
    _gradients(one, 0)
    weight = one.get_parameter("encoder.blocks.0.feed.up.weight")
    before, grad = weight.detach().clone(), weight.grad
    assert grad is not None
    set_learning_rate(optimizer, rate)
    optimizer.step()
    wanted = before * (1 - rate * 0.1) - rate * UPDATE_RMS * 16**0.5 * orthogonalize(0.0975 * grad[None], 5)[0]
    assert (weight - wanted).abs().max() < 1e-12


def test_against_torch() -> None:
    """torch has Muon for matrices alone, in bfloat16: so many digits agree."""
    one, two = net(), net()
    ours = Muon(weight_decay=0.0).build(one)
    name = "decoder.blocks.0.feed.down.weight"
    mine, theirs = one.get_parameter(name), two.get_parameter(name)
    other = torch.optim.Muon([theirs], lr=0.01, weight_decay=0.0, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    start = mine.detach().clone()
    for step in range(4):
        _gradients(one, step)
        assert mine.grad is not None
        theirs.grad = mine.grad.clone()
        set_learning_rate(ours, 0.01)
        ours.step()
        other.step()
    assert (mine - theirs).norm() < 0.02 * (mine - start).norm()


def test_its_state_goes_there_and_back() -> None:
    one, two = stepped(Muon(), 2), net(2)
    first, second = Muon().build(one), Muon().build(two)
    for step in (5, 6):
        _gradients(one, step)
        set_learning_rate(first, 0.01)
        first.step()
    two.load_state_dict(one.state_dict())
    restore_optimizer(two, second, optimizer_state(one, first))
    for optimizer, each in ((first, one), (second, two)):
        _gradients(each, 9)
        set_learning_rate(optimizer, 0.01)
        optimizer.step()
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_matrix_without_gradient_stays() -> None:
    one = net()
    weight = one.get_parameter("encoder.blocks.0.mix.q.weight")
    before = weight.detach().clone()
    optimizer = Muon().build(one)
    _gradients(one, 1)
    weight.grad = None
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    assert torch.equal(weight, before)
