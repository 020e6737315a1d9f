"""Skewed scores of relative positions: those of a gather, in value and gradient, without a buffer for all pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.positions.position import Relative, RelativePosition
from regard.nn.positions.skew import DistanceSpan, relative_shift, relative_unshift

pytestmark = pytest.mark.numeric

B, HEADS, E = 2, 3, 4


def built(reach: int, *, values: bool = False, causal: bool = True, width: int = E) -> RelativePosition:
    made = Relative(reach, values).build(Site("p", 8, 16, heads=HEADS, head_width=width, causal=causal)).double()
    assert isinstance(made, RelativePosition)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


def unknown(at: Coords) -> Coords:
    """The same places, with nothing known beforehand: the way of the gather."""
    return dataclasses.replace(at, first=None)


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("reach", [1, 9, 40])
@pytest.mark.parametrize(
    ("first", "n", "before", "m"),
    [(0, 6, 0, 6), (7, 5, 2, 10), (7, 1, 0, 8), (0, 1, 0, 1), (2, 3, 0, 9), (30, 4, 0, 3), (0, 3, 9, 4)],
)
def test_skewed_is_gathered(reach: int, causal: bool, values: bool, first: int, n: int, before: int, m: int) -> None:
    """Scores, outputs, and the gradients of queries, weights and both tables."""
    position = built(reach, values=values, causal=causal)
    at_q, at_k = Coords.span(n, first), Coords.span(m, before)
    span = DistanceSpan.of(at_q, at_k, causal=causal)
    assert span is not None
    far = max(-span.first, span.last)  # beyond the reach, pairs are gathered all the same
    seen = (at_q.pos.unsqueeze(2) >= at_k.pos.unsqueeze(1)) | torch.tensor(not causal)
    q, k, w = torch.randn(B, HEADS, n, E), torch.randn(B, HEADS, m, E), torch.rand(B, HEADS, n, m)
    push_scores, push_output = torch.randn(B, HEADS, n, m).double(), torch.randn(B, HEADS, n, E).double()

    def run(at_q: Coords, at_k: Coords) -> list[Tensor]:
        position.zero_grad()
        query, weights = q.double().requires_grad_(), (w.double() * seen).requires_grad_()
        prepared = position.prepare(at_q, at_k)
        assert isinstance(prepared, Tensor) == (at_q.first is None or far > reach)
        scores = position.score(query, k.double(), prepared).masked_fill(~seen, 0.0)
        output = position.output_term(weights * seen, prepared)
        total = (scores * push_scores).sum() + (0 if output is None else (output * push_output).sum())
        total.backward()
        out = [scores, query.grad, position.keys.grad]
        if output is not None:
            assert position.values is not None
            out += [output, weights.grad, position.values.grad]
        return [t.detach().clone() for t in out if t is not None]

    for skewed, gathered in zip(run(at_q, at_k), run(unknown(at_q), unknown(at_k)), strict=True):
        torch.testing.assert_close(skewed, gathered, rtol=1e-12, atol=1e-12)


def test_the_skew_of_the_music_transformer() -> None:
    """Huang et al. 2018, figure 1: pad a column on the left, reshape to (n + 1, n), and drop the first row."""
    n, position = 7, built(40)
    q = torch.randn(B, HEADS, n, E).double()
    rel = q @ position.keys[40 - n + 1 : 41].t()  # distances −n + 1 … 0
    paper = F.pad(rel, (1, 0)).view(B, HEADS, n + 1, n)[:, :, 1:]
    at = Coords.span(n)
    ours = position.score(q, q, position.prepare(at, at))
    torch.testing.assert_close(ours.tril(), paper.tril(), rtol=1e-12, atol=1e-12)


def test_the_adjoint_of_the_shift() -> None:
    for n, m, r in ((4, 5, 8), (4, 5, 6), (1, 3, 4), (6, 6, 7)):
        x, y = torch.randn(n, r).double().requires_grad_(), torch.randn(n, m).double()
        if r < n + m - 1:  # what would come from the next row is hidden
            y = y.tril(m - n)
        (relative_shift(x, m) * y).sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad, relative_unshift(y, r))


class Sizes(TorchDispatchMode):
    """The largest tensor that any operator returns, in numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        self.largest = max([self.largest, *(t.untyped_storage().nbytes() // t.element_size() for t in tensors)])
        return out


def largest(n: int, width: int, score: Callable[[Tensor], Tensor]) -> int:
    q = torch.randn(1, HEADS, n, width).double().requires_grad_()
    with Sizes() as sizes:
        score(q).sum().backward()
    return sizes.largest


def test_no_buffer_has_a_vector_for_every_pair() -> None:
    """No operator, forward or backward, makes more than scores by distance, h·n·(n + 1), or the queries, h·n·d."""
    at = Coords.span(24)
    for width in (4, 16, 64):
        position = built(24, width=width)
        score = partial(position.score, k=torch.empty(0), p=position.prepare(at, at))
        assert largest(24, width, score) <= HEADS * 24 * max(25, width), width
    wide = built(24, width=64)

    def by_pairs(q: Tensor) -> Tensor:
        """Shaw et al.'s own way, with a vector for every pair: this is what the measure would notice."""
        vectors = wide.keys[(at.pos[0] - at.pos[0][:, None]).clamp(-24, 24) + 24]
        return torch.einsum("bhne,nme->bhnm", q, vectors)

    assert largest(24, 64, by_pairs) >= 24 * 24 * 64
