"""Pieces of rows: views forward, sums backward; tokens chosen, moved side by side, and dealt out to lanes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.nn.attention.banded import Lanes, Strip, TokenSubset, attend_to_neighbors, run_compacted, zero_padding
from regard.nn.core.context import Context
from regard.nn.core.coords import PAD, Coords

pytestmark = pytest.mark.numeric


class TestStrip:
    @given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5))
    def test_a_piece_is_a_slice(self, block: int, ends: list[tuple[int, int]]) -> None:
        ends = [(min(e), max(e)) for e in ends if e[0] != e[1]]
        whole = torch.randn(2, 3, 20, 2, dtype=torch.double, requires_grad=True)
        strip, weight = Strip(whole, block), torch.randn(20, 2, dtype=torch.double)
        pieces, slices = [strip[e] for e in ends], [whole[:, :, a:b] for a, b in ends]
        for piece, part in zip(pieces, slices, strict=True):
            assert torch.equal(piece, part)
            assert piece.data_ptr() == part.data_ptr()
        found = [
            torch.autograd.grad(sum((p * weight[: p.shape[2]]).sum() for p in parts) + 0 * whole.sum(), whole)[0]
            for parts in (pieces, slices)
        ]
        torch.testing.assert_close(*found)

    def test_no_gradient_of_a_piece_is_as_long_as_the_strip(self) -> None:
        whole = torch.randn(1, 1, 1000, 2, requires_grad=True)
        piece, lengths = Strip(whole, 10)[95, 115], []
        made = piece.grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        made.register_hook(lambda grads, _: lengths.extend(g.shape[1] for g in grads if g is not None))
        piece.sum().backward()
        assert lengths == [10, 10, 10]

    def test_without_gradients_it_is_the_slice(self) -> None:
        assert Strip(torch.randn(1, 1, 9, 2), 4)[2, 7].grad_fn is None


class TestChosen:
    AT = Coords.lengths([4, 3])

    def test_in_the_order_of_their_columns(self) -> None:
        those = torch.tensor([[False, True, False, True], [True, False, False, True]])
        chosen = TokenSubset.of(those, self.AT)
        assert chosen is not None
        assert chosen.columns.tolist() == [[1, 3], [0, -1]]
        assert chosen.at.pos.tolist() == [[1, 3], [0, PAD]]
        x = torch.arange(8.0).view(2, 1, 4, 1)
        assert chosen.take(x)[0].flatten().tolist() == [1, 3]
        put = chosen.scatter(torch.tensor([[10.0, 11.0], [12.0, 13.0]]).view(2, 1, 2, 1), x)
        assert put.flatten(1).tolist() == [[0, 10, 2, 11], [12, 5, 6, 7]]

    def test_none(self) -> None:
        assert TokenSubset.of(torch.tensor([[False] * 4, [False, False, False, True]]), self.AT) is None


def test_side_by_side_and_back() -> None:
    at = Coords(torch.tensor([[-1, 0, -1, 1], [0, 1, 2, -1]]), padded=True)
    x = torch.arange(8.0).view(2, 4, 1)
    given = []

    def mix(ctx: Context, x: torch.Tensor) -> torch.Tensor:
        given.append((x.squeeze(2).tolist(), ctx.at.pos.tolist()))
        return x + 10

    assert torch.equal(run_compacted(Context(at), mix, x), x + 10)
    assert given == [([[1, 3, 0, 2], [4, 5, 6, 7]], [[0, 1, -1, -1], [0, 1, 2, -1]])]
    for straight in (Coords.span(4), Coords.lengths([4, 2]), Coords.documents([[1, 3], [2, 2]])):
        ctx = Context(straight)
        run_compacted(ctx, lambda ctx, x, was=ctx: x if ctx is was else pytest.fail("nothing to move"), x)


def test_blanked() -> None:
    x = torch.ones(2, 3, 2)
    assert zero_padding(x, Coords.span(3)) is x
    assert zero_padding(x, Coords.lengths([3, 1])).sum((1, 2)).tolist() == [6, 2]


class TestLanes:
    @pytest.mark.parametrize("count", [2, 3, 5])
    @pytest.mark.parametrize("before", [0, 1, 4])
    @pytest.mark.parametrize("n", [1, 6, 7])
    def test_every_count_th_is_in_one_lane(self, count: int, before: int, n: int) -> None:
        at = Coords.span(before + n)
        lanes = Lanes(count, 2, before=before, n=n)
        x = at.pos[0].double().view(1, 1, -1, 1).expand(2, 1, -1, 1) + 1
        dealt, stand = lanes.deal(x), lanes.stand(at)
        assert stand.pos.shape == (2 * count, dealt.shape[2])
        assert torch.equal(dealt[:, 0, :, 0], (stand.pos + 1).double())
        for row in stand.pos.tolist():
            there = [p for p in row if p != PAD]
            assert there == list(range(there[0], there[0] + count * len(there), count)) if there else True
        last = x[:, :, before:]
        assert torch.equal(lanes.collect(lanes.deal(last)), last)
        assert torch.equal(lanes.deal(last), dealt[:, :, dealt.shape[2] - lanes.deal(last).shape[2] :])


def test_tiles_that_look_alike_share_their_coordinates() -> None:
    seen = []

    def look(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, here: Coords, there: Coords) -> torch.Tensor:
        seen.append((here, there))
        assert (q.shape[2], k.shape[2], v.shape[2]) == (here.n, there.n, there.n)
        return q

    q, k = torch.randn(1, 1, 20, 2), torch.randn(1, 1, 26, 2)
    out = attend_to_neighbors(
        q, k, k, Context(Coords.span(20, 6)), Coords.span(26), look, tile=4, back=5, ahead=3, alike=True
    )
    assert torch.equal(out, q)
    assert len({id(here) for here, _ in seen}) == 2  # all but the last, which has nothing ahead
    assert [there.n for _, there in seen] == [12, 12, 12, 12, 9]
    assert seen[0][0].pos.tolist() == [[5, 6, 7, 8]]
