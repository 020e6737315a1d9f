"""Attention by tiles is attention: outputs, gradients and weights, in memory that grows with the length alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.nn.attention.attend import attend
from regard.nn.attention.plan import Plan
from regard.nn.attention.tiled import TiledProblem, _Tile, compute_weights, tiled_attention
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Causal, Everything, Rule, Tagged, Window, visible
from regard.nn.core.mixer import Site
from regard.nn.positions.position import ALiBi, Bucketed, PositionSpec, Relative
from regard.nn.positions.relative import Distance

pytestmark = pytest.mark.numeric

HEADS, E = 4, 3
PLACES: dict[str, Callable[[int], Coords]] = {
    "one row for all": Coords.span,
    "padded at the right": lambda n: Coords.lengths([n, n // 2]),
    "padded at the left": lambda n: Coords.lengths([n // 3, n], left=True),
    "documents": lambda n: Coords.documents([[n - n // 2, n // 2], [n // 3]] if n > 2 else [[n], [1]]),
}
RULES: dict[str, Rule] = {
    "everything": Everything(),
    "causal": Causal(),
    "window": Window(3),
    "causal window": Causal() & Window(4),
    "global tokens": Tagged() | Window(1),
}
TERMS: list[PositionSpec] = [ALiBi(), Bucketed(8, 6), Relative(3), Relative(2, values=False), Distance(), Distance(4)]


def tensors(n: int, m: int, groups: int = HEADS, rows: int = 2) -> list[Tensor]:
    shapes = (rows, HEADS, n, E), (rows, groups, m, E), (rows, groups, m, E)
    return [torch.randn(shape, dtype=torch.double, requires_grad=True) for shape in shapes]


def plain(q: Tensor, k: Tensor, v: Tensor, problem: TiledProblem) -> tuple[Tensor, Tensor]:
    """Every score at once, under a mask of coordinates."""
    keep = visible(problem.rule, problem.q, problem.k)
    plan = Plan(False, "", keep=None if keep is None else keep.unsqueeze(1), empty=True)
    p = bias = content = None
    if problem.position is not None:
        p = problem.position.prepare(problem.q, problem.k)
        p = p if problem.layer is None else problem.position.project(p, problem.layer)
        bias = problem.position.bias(p)
        content = (problem.position, p) if "content" in problem.position.acts else None
    out, weights = attend(q, k, v, plan, scale=problem.scale, bias=bias, content=content)
    assert weights is not None
    return out, weights


def same(q: Tensor, k: Tensor, v: Tensor, problem: TiledProblem) -> None:
    """Outputs where there are tokens, and gradients of all that takes part."""
    into, kept = [q, k, v, *problem.parameters()], problem.q.kept.unsqueeze(1).unsqueeze(-1)
    outs = [out * kept for out in (tiled_attention(q, k, v, problem), plain(q, k, v, problem)[0])]
    torch.testing.assert_close(*outs, rtol=0, atol=1e-9)
    way = torch.randn_like(outs[0])
    for a, b in zip(*(torch.autograd.grad(out, into, way) for out in outs), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rule", RULES)
def test_it_is_attention(place: str, rule: str) -> None:
    at = PLACES[place](17)
    at = Coords(at.pos, at.doc, (torch.arange(17) % 6 == 2).long().unsqueeze(0), at.first, at.padded)
    for groups, tile in ((HEADS, 5), (2, 4), (1, 17), (HEADS, 1), (HEADS, 100)):
        same(*tensors(17, 17, groups), TiledProblem(RULES[rule], at, at, 0.7, tile=tile))


@settings(max_examples=60)
@given(
    st.integers(1, 13), st.integers(0, 9), st.integers(1, 9), st.sampled_from(list(RULES)), st.sampled_from([1, 2, 4])
)
def test_newcomers_to_what_is_remembered(n: int, before: int, tile: int, rule: str, groups: int) -> None:
    """Queries that are the last of the keys, in tiles of any size."""
    old, new = Coords.span(before), Coords.span(n, before)
    problem = TiledProblem(RULES[rule], new, old.extend(new), 0.5, tile=tile)
    same(*tensors(n, before + n, groups), problem)


@pytest.mark.parametrize("position", TERMS, ids=repr)
@pytest.mark.parametrize("place", PLACES)
def test_what_positions_add(position: PositionSpec, place: str) -> None:
    """Biases, terms with queries and keys, what joins the output; each with the gradient of what is learned in it."""
    for rule, causal, groups in ((Causal(), True, HEADS), (Everything(), False, 2)):
        site = Site("", width=6, length=32, heads=HEADS, head_width=E, causal=causal)
        made = position.build(site).double()
        for parameter in made.parameters():
            torch.nn.init.normal_(parameter)
        layer = torch.nn.Linear(6, HEADS * E).double() if position.projects else None
        at = PLACES[place](14)
        problem = TiledProblem(rule, at, at, 0.6, made, layer, tile=4)
        assert len(problem.parameters()) == len(list(made.parameters())) + (2 if layer else 0)
        same(*tensors(14, 14, groups), problem)


def test_nothing_to_see_gives_zeros() -> None:
    at = Coords.lengths([6, 0])
    q, k, v = tensors(6, 6)
    out = tiled_attention(q, k, v, TiledProblem(Everything(), at, at, 1.0, tile=4))
    assert (out[1] == 0).all()
    for grad in torch.autograd.grad(out.square().sum(), [q, k, v]):
        assert (grad[1] == 0).all()
        assert grad.isfinite().all()


def test_scores_of_any_size() -> None:
    """A running maximum: nothing overflows, and a later tile may dwarf an earlier one."""
    at = Coords.span(12)
    q, k, v = tensors(12, 12)
    same(q, k * torch.linspace(0, 1e4, 12).view(1, 1, 12, 1), v, TiledProblem(Causal(), at, at, 1.0, tile=3))
    same(q, k * torch.linspace(1e4, 0, 12).view(1, 1, 12, 1), v, TiledProblem(Everything(), at, at, 1.0, tile=3))


class TestDropout:
    at = Coords.span(7)

    def test_the_way_back_drops_what_the_way_there_did(self) -> None:
        made = Relative(2).build(Site("", 6, 8, heads=HEADS, head_width=E)).double()
        for parameter in made.parameters():
            torch.nn.init.normal_(parameter)
        problem = TiledProblem(Causal(), self.at, self.at, 0.8, made, dropout=0.4, tile=3)

        def run(*inputs: Tensor) -> Tensor:
            torch.manual_seed(5)
            return tiled_attention(*inputs, problem)

        assert torch.autograd.gradcheck(run, tensors(7, 7, 2, rows=1), fast_mode=True)

    def test_weights_are_dropped_one_by_one_and_the_rest_scaled(self) -> None:
        """Values that say where they came from: each weight is 0 or its share / (1 − p)."""
        q, k, _ = tensors(7, 7)
        v = torch.eye(7, dtype=torch.double).expand(2, HEADS, 7, 7)
        whole, thinned = (
            tiled_attention(q, k, v, TiledProblem(Everything(), self.at, self.at, 0.8, dropout=p, tile=3))
            for p in (0.0, 0.25)
        )
        gone = thinned == 0
        torch.testing.assert_close(thinned, whole.masked_fill(gone, 0.0) / 0.75)
        assert 0.15 < gone.double().mean() < 0.35
        assert len({tuple(row) for row in gone.flatten(0, 1).flatten(1).tolist()}) == 2 * HEADS


class TestPrecision:
    at = Coords.span(40)

    def test_low_precision_sums_in_single(self) -> None:
        exact = tensors(40, 40)
        low = [t.detach().bfloat16().requires_grad_() for t in exact]
        wide = [t.detach().double().requires_grad_() for t in low]
        problem = TiledProblem(Causal(), self.at, self.at, 0.5, tile=8)
        out, wanted = tiled_attention(*low, problem), tiled_attention(*wide, problem)
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out.double(), wanted, rtol=0.01, atol=0.01)
        for a, b in zip(torch.autograd.grad(out.sum(), low), torch.autograd.grad(wanted.sum(), wide), strict=True):
            assert a.dtype == torch.bfloat16
            torch.testing.assert_close(a.double(), b, rtol=0.02, atol=0.04)

    @pytest.mark.parametrize("outside", [True, False])
    def test_mixed_precision(self, outside: bool) -> None:
        """Queries come in low precision and position tables in single; the way back may run outside."""
        made = Relative(3).build(Site("", 6, 8, heads=HEADS, head_width=E))
        for parameter in made.parameters():
            torch.nn.init.normal_(parameter)
        exact = [t.detach().float().requires_grad_() for t in tensors(40, 40)]
        problem = TiledProblem(Causal(), self.at, self.at, 0.5, made, tile=8)
        into = [*exact, *problem.parameters()]
        wanted = plain(*exact, problem)[0]
        with torch.autocast("cpu", torch.bfloat16):
            out = tiled_attention(*(t.bfloat16() for t in exact), problem)
            found = None if outside else torch.autograd.grad(out.float().sum(), into)
        found = found or torch.autograd.grad(out.float().sum(), into)
        torch.testing.assert_close(out.float(), wanted, rtol=0.03, atol=0.03)
        for a, b in zip(found, torch.autograd.grad(wanted.sum(), into), strict=True):
            torch.testing.assert_close(a, b, rtol=0.05, atol=0.15)


class Largest(TorchDispatchMode):
    """The size of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, Sequence) else [out]:
            if isinstance(t, Tensor):
                self.numbers = max(self.numbers, t.numel())
        return out


def peak(run: Callable[[], object]) -> int:
    """The most bytes held at once, by the allocator's own account."""
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    held = most = 0
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


class TestMemory:
    n, tile = 256, 16

    def problem(self, n: int, position: PositionSpec | None = None) -> TiledProblem:
        at = Coords(torch.arange(n).unsqueeze(0))  # nothing known beforehand: masks are made of coordinates
        made = None if position is None else position.build(Site("", 6, n, heads=HEADS, head_width=E)).double()
        layer = torch.nn.Linear(6, HEADS * E).double() if position is not None and position.projects else None
        return TiledProblem(Causal(), at, at, 0.5, made, layer, tile=self.tile)

    @pytest.mark.parametrize("position", [None, Bucketed(), Relative(4), Distance()], ids=repr)
    def test_nothing_of_queries_times_keys_is_ever_made(self, position: PositionSpec | None) -> None:
        q, k, v = tensors(self.n, self.n, rows=1)
        problem = self.problem(self.n, position)
        with Largest() as mode:
            tiled_attention(q, k, v, problem).sum().backward()
        assert mode.numbers <= max(q.numel(), HEADS * self.tile**2 * E)
        assert mode.numbers < self.n**2 / 8
        with Largest() as mode:
            plain(q, k, v, problem)
        assert mode.numbers >= HEADS * self.n**2

    def test_what_is_saved_grows_with_the_length(self) -> None:
        saved: list[Tensor] = []
        q, k, v = tensors(self.n, self.n, rows=1)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
            tiled_attention(q, k, v, self.problem(self.n, Relative(4)))
        assert sum(t.numel() for t in saved) == 4 * q.numel() + HEADS * self.n

    def test_the_peak_grows_with_the_length(self) -> None:
        """Forward and backward: twice the length, twice the bytes. The plain way needs four times as many."""

        def bytes_at(n: int, run: Callable[..., Any]) -> int:
            q, k, v = tensors(n, n, rows=1)
            problem = self.problem(n)
            return peak(lambda: run(q, k, v, problem).sum().backward())

        small, large = (bytes_at(n, tiled_attention) for n in (256, 512))
        assert 0 < large <= 2.1 * small
        plain_small, plain_large = (bytes_at(n, lambda *a: plain(*a)[0]) for n in (256, 512))
        assert plain_large > 3.5 * plain_small
        assert plain_large > 10 * large

    def test_rows_of_weights_take_room_for_those_rows(self) -> None:
        q, k, _ = tensors(self.n, self.n, rows=1)
        with Largest() as mode:
            compute_weights(q, k, self.problem(self.n), [5, 200], [1])
        assert mode.numbers <= HEADS * self.n * E  # the keys themselves

    def test_tiles_in_which_nobody_sees_anybody_are_passed_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[_Tile] = []
        scores = _Tile.scores
        monkeypatch.setattr(_Tile, "scores", lambda self, *a: made.append(self) or scores(self, *a))
        at = Coords.span(64)
        q, k, v = tensors(64, 64)
        tiled_attention(q, k, v, TiledProblem(Causal(), at, at, 1.0, tile=8))
        assert len(made) == 8 * 9 / 2
        assert sum(tile.keep is not None for tile in made) == 8
        made.clear()
        tiled_attention(q, k, v, TiledProblem(Causal() & Window(8), at, at, 1.0, tile=8)).sum().backward()
        assert len(made) == 2 * (8 + 7)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("position", [None, Relative(3)], ids=repr)
def test_rows_of_weights_are_exact(place: str, position: PositionSpec | None) -> None:
    at = PLACES[place](15)
    made = None if position is None else position.build(Site("", 6, 16, heads=HEADS, head_width=E)).double()
    for parameter in () if made is None else made.parameters():
        torch.nn.init.normal_(parameter)
    q, k, v = tensors(15, 15, 2)
    problem = TiledProblem(Causal(), at, at, 0.9, made, tile=4)
    _, wanted = plain(q, k, v, problem)
    torch.testing.assert_close(compute_weights(q, k, problem), wanted, rtol=0, atol=1e-12)
    rows, heads = [14, 3, 7, 0, 9], [2, 0]
    some = compute_weights(q, k, problem, rows, heads)
    torch.testing.assert_close(some, wanted[:, heads][:, :, rows], rtol=0, atol=1e-12)
    assert not some.requires_grad
