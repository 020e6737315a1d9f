"""The four terms of Transformer-XL, one by one, in every place and by both ways of finding a pair's distance."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.mixers import Full
from regard.nn.positions.position import sinusoid
from regard.nn.positions.relative import Distance, DistancePosition
from regard.nn.positions.skew import relative_shift
from tests.nn.odd import writer

pytestmark = pytest.mark.numeric

HEADS, E, D = 4, 3, 6


def built(clamp: int | None = None, causal: bool = True) -> DistancePosition:
    made = Distance(clamp).build(Site("p", D, 16, heads=HEADS, head_width=E, causal=causal)).double()
    assert isinstance(made, DistancePosition)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


def unknown(at: Coords) -> Coords:
    """The same places, with nothing known beforehand."""
    return dataclasses.replace(at, first=None)


def scores(p: DistancePosition, q: Tensor, k: Tensor, layer: torch.nn.Linear, at_q: Coords, at_k: Coords) -> Tensor:
    return p.score(q, k, p.project(p.prepare(at_q, at_k), layer))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("clamp", [None, 3])
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("known", [True, False])
def test_the_terms_are_those_of_the_paper(causal: bool, clamp: int | None, groups: int, known: bool) -> None:
    p, layer = built(clamp, causal), torch.nn.Linear(D, HEADS * E, bias=False).double()
    q, k = torch.randn(2, HEADS, 4, E).double(), torch.randn(2, groups, 9, E).double()
    at_q, at_k = Coords.span(4, 5), Coords.span(9)
    found = scores(p, q, k, layer, *((at_q, at_k) if known else (unknown(at_q), unknown(at_k))))
    for i in range(4):
        for j in range(9):
            far = 5 + i - j
            if causal and far < 0:
                continue
            code = sinusoid(torch.tensor([max(-(clamp or 99), min(far, clamp or 99))]), D, "halves", torch.double)
            r = layer(code).view(HEADS, E)
            for h in range(HEADS):
                key = k[:, h * groups // HEADS, j]
                wanted = q[:, h, i] @ r[h] + key @ p.u[h] + p.v[h] @ r[h]  # (b), (c), (d)
                torch.testing.assert_close(found[:, h, i, j], wanted)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("first", "n", "before", "m"), [(7, 1, 0, 8), (7, 5, 2, 10), (0, 6, 0, 6), (0, 1, 0, 1), (2, 3, 0, 9)]
)
def test_the_shift_finds_what_the_index_does(causal: bool, first: int, n: int, before: int, m: int) -> None:
    """The queries may be the last of the keys, some in the middle of them, or all of them."""
    p, layer = built(None, causal), torch.nn.Linear(D, HEADS * E).double()
    q, k = torch.randn(1, HEADS, n, E).double(), torch.randn(1, HEADS, m, E).double()
    at_q, at_k = Coords.span(n, first), Coords.span(m, before)
    a, b = scores(p, q, k, layer, at_q, at_k), scores(p, q, k, layer, unknown(at_q), unknown(at_k))
    seen = (at_q.pos.unsqueeze(2) >= at_k.pos.unsqueeze(1)) | torch.tensor(not causal)
    torch.testing.assert_close(*(t.masked_fill(~seen, 0.0) for t in (a, b)))


def test_a_shift_is_drawn() -> None:
    x = torch.tensor([[3, 2, 1, 0, -1], [13, 12, 11, 10, 9], [23, 22, 21, 20, 19]])  # distances, from far to near
    assert relative_shift(x, 3).tolist() == [[1, 0, -1], [12, 11, 10], [23, 22, 21]]
    assert relative_shift(x[:1], 4).tolist() == [[3, 2, 1, 0]]


def test_far_places_need_no_more_codes_than_near_ones() -> None:
    """Codes are made for the distances that occur, wherever on earth the tokens stand."""
    p = built()
    for known in (lambda at: at, unknown):
        codes, _ = p.prepare(known(Coords.span(4, 10_000)), known(Coords.span(9, 9_995)))
        assert codes.shape[0] <= 10
    rows = Coords(torch.tensor([[900, 901], [3, 4], [-1, -1]]), padded=True)
    codes, index = p.prepare(rows, Coords(torch.tensor([[899, 900, 901], [2, 3, 4], [-1, -1, -1]]), padded=True))
    assert codes.shape[0] == 3
    assert index is not None
    assert index[1].tolist() == [[1, 2, 2], [0, 1, 2]]
    codes, index = p.prepare(rows.part(slice(0, 0)), rows)
    assert codes.shape[0] == 1


def test_beyond_the_clamp_all_is_alike() -> None:
    p, layer = built(4), torch.nn.Linear(D, HEADS * E).double()
    q, k = torch.randn(1, HEADS, 1, E).double(), torch.zeros(1, HEADS, 12, E).double()
    for known in (lambda at: at, unknown):
        row = scores(p, q, k, layer, known(Coords.span(1, 11)), known(Coords.span(12)))[0, 0, 0]
        assert len({round(x, 9) for x in row.tolist()}) == 5
        assert (row[:8] - row[7]).abs().max() < 1e-12


def test_the_stack_owns_u_and_v_and_each_layer_its_map() -> None:
    names = [
        n for n, _ in writer(Full(2), position=Distance()).build().named_parameters() if "position" in n or ".r." in n
    ]
    assert names == [
        "decoder.position.u",
        "decoder.position.v",
        *(f"decoder.blocks.{i}.mix.r.weight" for i in range(3)),
    ]
    own = [
        n for n, _ in writer(Full(2, position=Distance())).build().named_parameters() if "position" in n or ".r." in n
    ]
    assert [n.removeprefix("decoder.blocks.1.mix.") for n in own if ".1." in n] == [
        "position.u",
        "position.v",
        "r.weight",
    ]


def test_no_weight_depends_on_the_clamp() -> None:
    near, far = (writer(Full(2), position=Distance(clamp)).build(0).eval() for clamp in (2, None))
    far.load_state_dict(near.state_dict())
    ids = torch.randint(11, (1, 3))
    torch.testing.assert_close(near(ids, Coords.span(3)), far(ids, Coords.span(3)))


def test_all_terms_are_divided_alike() -> None:
    """The softmax sees (a + b + c + d) / √e."""
    mixer = Full(2, position=Distance()).build(Site("m", 8, 16, causal=True)).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter)
    x, tape = torch.randn(1, 5, 8).double(), Tape("*")
    mixer(x, Context(Coords.span(5), tape=tape))
    q, k = (part(x).view(5, 2, 4) for part in (mixer.q, mixer.k))
    r = mixer.r(sinusoid(torch.arange(5), 8, "halves", torch.double)).view(5, 2, 4)  # type: ignore[misc]
    u, v = mixer.position.u, mixer.position.v  # type: ignore[union-attr]
    for h in range(2):
        wanted = torch.stack([(q[4, h] + u[h]) @ k[j, h] + (q[4, h] + v[h]) @ r[4 - j, h] for j in range(5)]) / 2  # type: ignore[index]
        torch.testing.assert_close(tape.kept["m.weights"][0, h, 4], wanted.softmax(0).detach())
