"""Optimisers against torch's own, their state there and back, and averages in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import SpecError, UnknownName
from regard.files.tensors import pack, unpack
from regard.training.optimizer import (
    OPTIMIZERS,
    Adam,
    AdamW,
    OptimizerSpec,
    optimizer_state,
    restore_optimizer,
    set_learning_rate,
)
from regard.training.optimizer import Muon as Muon  # in the table
from regard.training.step.weight_averaging import MovingAverage, average_weights

pytestmark = pytest.mark.numeric


def model(seed: int = 0) -> nn.Module:
    """A bit of everything that a model has: a table, a matrix with a bias, a norm."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3), nn.LayerNorm(3)).double()


def gradients(net: nn.Module, steps: int) -> Iterator[int]:
    """Give the weights random gradients, step by step."""
    for step in range(steps):
        torch.manual_seed(100 + step)
        for p in net.parameters():
            p.grad = torch.randn_like(p)
        yield step


def test_the_table() -> None:
    assert list(OPTIMIZERS) == ["adam", "adamw", "sgd", "muon"]
    assert OptimizerSpec.parse("adamw") == AdamW()
    assert OptimizerSpec.parse({"kind": "adam", "betas": [0.9, 0.999]}) == Adam(betas=(0.9, 0.999))
    with pytest.raises(UnknownName, match="no optimizer 'adamm'; did you mean 'adam'"):
        OptimizerSpec.parse("adamm")
    with pytest.raises(SpecError, match=r"betas\.1: .*less than 1"):
        Adam(betas=(0.9, 1.0))


@pytest.mark.parametrize(
    ("spec", "plain"),
    [
        (Adam(), lambda ps: torch.optim.Adam(ps, betas=(0.9, 0.98), eps=1e-9, fused=False, foreach=False)),
        (Adam(betas=(0.5, 0.9), eps=1e-3), lambda ps: torch.optim.Adam(ps, betas=(0.5, 0.9), eps=1e-3, foreach=False)),
        (AdamW(weight_decay=0.0), lambda ps: torch.optim.Adam(ps, betas=(0.9, 0.98), eps=1e-8, foreach=False)),
    ],
    ids=["paper", "other numbers", "no decay"],
)
def test_steps_are_those_of_torch(spec: OptimizerSpec, plain: Any) -> None:
    ours, theirs = model(), model()
    one, other = spec.build(ours), plain(theirs.parameters())
    for _ in zip(gradients(ours, 5), gradients(theirs, 5), strict=True):
        for optimizer, rate in ((one, 0.1), (other, 0.1)):
            set_learning_rate(optimizer, rate)
            optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_adam_by_hand() -> None:
    """Two steps of the paper's algorithm, written out."""
    net = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        net.weight.fill_(1.0)
    optimizer, m, v, w = Adam(betas=(0.9, 0.98), eps=1e-9).build(net), 0.0, 0.0, 1.0
    set_learning_rate(optimizer, 0.01)
    for t, g in ((1, 0.5), (2, -2.0)):
        net.weight.grad = torch.full_like(net.weight, g)
        optimizer.step()
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        w -= 0.01 * (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)) ** 0.5 + 1e-9)
    assert net.weight.item() == pytest.approx(w, abs=1e-14)


def test_decay_is_decoupled_and_spares_biases_and_norms() -> None:
    net = model()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    optimizer = AdamW(weight_decay=0.5).build(net)
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    for name, p in net.named_parameters():
        factor = 1 - 0.1 * 0.5 if p.dim() > 1 else 1.0
        torch.testing.assert_close(p, before[name] * factor, rtol=1e-14, atol=0)
    assert sorted(name for name, p in net.named_parameters() if torch.equal(p, before[name])) == [
        "1.bias",
        "2.bias",
        "2.weight",
    ]


@pytest.mark.parametrize("spec", [Adam(), AdamW(weight_decay=0.1)], ids=["adam", "adamw"])
def test_state_there_and_back(spec: OptimizerSpec) -> None:
    """Four steps are two steps, a file, and two steps."""
    whole, begun = model(), model()
    straight, first = spec.build(whole), spec.build(begun)
    set_learning_rate(straight, 0.05)
    set_learning_rate(first, 0.05)
    for _ in gradients(whole, 4):
        straight.step()
    grads = gradients(begun, 4)
    for _ in range(2):
        next(grads)
        first.step()
    saved = unpack(pack(optimizer_state(begun, first)), "state")  # type: ignore[arg-type]
    assert {name.split("/")[1] for name in saved} == {"step", "exp_avg", "exp_avg_sq"}
    assert {name.split("/")[0] for name in saved} == {name for name, _ in begun.named_parameters()}
    second = spec.build(begun)
    restore_optimizer(begun, second, saved)
    set_learning_rate(second, 0.05)
    for _ in grads:
        second.step()
    for a, b in zip(whole.parameters(), begun.parameters(), strict=True):
        assert torch.equal(a, b)
    for name, tensor in optimizer_state(whole, straight).items():
        assert torch.equal(tensor, optimizer_state(begun, second)[name])
    for name, tensor in saved.items():  # what was read is not what is stepped on
        if name.endswith("/step"):
            assert float(tensor) == 2


def test_an_optimizer_that_has_not_stepped_has_no_state() -> None:
    net = model()
    optimizer = Adam().build(net)
    assert optimizer_state(net, optimizer) == {}
    restore_optimizer(net, optimizer, {})
    assert optimizer_state(net, optimizer) == {}


def test_moving_average_in_closed_form() -> None:
    """After t updates: s^t w0 + (1 - s) Σ s^(t-i) wi."""
    net, share = model(), 0.8
    path = [{name: p.detach().clone() for name, p in net.named_parameters()}]
    average = MovingAverage(net, share)
    for _ in range(6):
        with torch.no_grad():
            for p in net.parameters():
                p.add_(torch.randn_like(p))
        average.update(net)
        path.append({name: p.detach().clone() for name, p in net.named_parameters()})
    for name, found in average.weights.items():
        wanted = share**6 * path[0][name]
        wanted = wanted + sum((1 - share) * share ** (6 - i) * path[i][name] for i in range(1, 7))
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    average.weights["1.bias"].zero_()
    assert net[1].bias.abs().sum() > 0, "the average is not the weights"  # type: ignore[index, union-attr]


def test_mean_in_closed_form_and_in_the_dtype_it_came_in() -> None:
    sets: list[dict[str, Tensor]] = [
        {"w": torch.tensor([float(i), 2.0**24]), "b": torch.tensor([i / 3])} for i in range(5)
    ]
    found = average_weights(sets)
    assert torch.equal(found["w"], torch.tensor([2.0, 2.0**24]))  # a sum in float32 would lose the last bit
    assert found["w"].dtype == torch.float32
    torch.testing.assert_close(found["b"], torch.tensor([2 / 3]))
    assert torch.equal(average_weights(iter(sets[:1]))["w"], sets[0]["w"])
    halves = average_weights([{"w": torch.ones(2, dtype=torch.bfloat16)}, {"w": torch.zeros(2, dtype=torch.bfloat16)}])
    assert halves["w"].dtype == torch.bfloat16
    assert halves["w"].tolist() == [0.5, 0.5]
