"""A whole pass = chunks of any sizes = one token at a time, with states chosen, cut and padded on the way."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.nn.core.coords import Coords
from tests.laws.examples import LENGTH, STREAMING, Case, ids, name_of
from tests.laws.running import CLOSE, one_by_one, rows_alone, run, some_cuts

pytestmark = pytest.mark.numeric

N = LENGTH - 2
cases = pytest.mark.parametrize("case", STREAMING, ids=name_of)
GRADUAL = [c for c in STREAMING if c.mixer.can.grads]
rewinding = pytest.mark.parametrize("case", [c for c in STREAMING if c.mixer.can.rewind], ids=name_of)


@pytest.fixture(autouse=True)
def _no_gradients() -> object:  # type: ignore[misc]
    with torch.no_grad():
        yield


@cases
def test_in_chunks(case: Case) -> None:
    net, tokens, at = case.net(), ids(3, N), Coords.span(N)
    whole = net(tokens, at)
    for capacity, cuts in ((N, one_by_one(N)), (1, some_cuts(N, 0)), (4, some_cuts(N, 1)), (N, [])):
        chunks, _ = run(net, tokens, at, net.start(3, capacity), cuts)
        torch.testing.assert_close(chunks, whole, **CLOSE)


@cases
def test_with_padding_at_the_left(case: Case) -> None:
    net, lengths = case.net(), [N, 4, 1]
    tokens, at = ids(3, N), Coords.lengths(lengths, left=True)
    alone = rows_alone(net, [row[N - n :] for row, n in zip(tokens, lengths, strict=True)])
    for cuts in ([], [6], one_by_one(N), some_cuts(N, 2)):
        out, _ = run(net, tokens, at, net.start(3, 2), cuts)
        for row, n, wanted in zip(out, lengths, alone, strict=True):
            torch.testing.assert_close(row[N - n :], wanted, **CLOSE)


@cases
def test_prompts_of_different_lengths_padded_at_the_right_then_extended(case: Case) -> None:
    net, lengths, more = case.net(), [2, 5, 3], 4
    prompts, later = ids(3, 5), ids(3, more, seed=1)
    alone = rows_alone(net, [torch.cat([p[:n], x]) for p, n, x in zip(prompts, lengths, later, strict=True)])
    at = Coords(torch.tensor(lengths).unsqueeze(1) + torch.arange(more))
    for cuts in (one_by_one(more), [3]):
        _, state = net.decode(prompts, Coords.lengths(lengths), state=net.start(3, 6))
        assert state is not None
        out, _ = run(net, later, at, state, cuts)
        for row, n, wanted in zip(out, lengths, alone, strict=True):
            torch.testing.assert_close(row, wanted[n:], **CLOSE)


@cases
@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
def test_after_rows_were_chosen(case: Case, padded: bool) -> None:
    """Two rows become four, then three: each goes on from the row it was chosen from."""
    net, first, second, third = case.net(), ids(2, 4), ids(4, 2, seed=1), ids(3, 2, seed=2)
    lengths = torch.tensor([4, 2] if padded else [4, 4])
    _, state = net.decode(first, Coords.lengths(lengths.tolist()), state=net.start(2, 5))
    assert state is not None
    for new, rows in ((second, torch.tensor([1, 0, 0, 1])), (third, torch.tensor([3, 1, 0]))):
        state, lengths = state.select(rows), lengths[rows]
        at = Coords(lengths.unsqueeze(1) + torch.arange(2)) if padded else Coords.span(2, int(lengths[0]))
        out, state = net.decode(new, at, state=state)
        lengths = lengths + 2
    whole = [  # row r of the last batch: its first tokens, its second, its third
        torch.cat([first[b][: 4 if not padded or b == 0 else 2], second[m], third[r]])
        for r, (m, b) in enumerate([(3, 1), (1, 0), (0, 1)])
    ]
    for row, wanted in zip(out, rows_alone(net, whole), strict=True):
        torch.testing.assert_close(row, wanted[-2:], **CLOSE)


@rewinding
def test_after_a_cut(case: Case) -> None:
    net, tokens, other = case.net(), ids(2, N), ids(2, 4, seed=1)
    _, state = run(net, tokens, Coords.span(N), net.start(2, N), some_cuts(N, 3))
    out, _ = run(net, other, Coords.span(4, 5), state.cut(5), [1])
    wanted = net(torch.cat([tokens[:, :5], other], 1), Coords.span(9))[:, 5:]
    torch.testing.assert_close(out, wanted, **CLOSE)
    again, _ = run(net, tokens, Coords.span(N), state.cut(0), [2])
    torch.testing.assert_close(again, net(tokens, Coords.span(N)), **CLOSE)


@pytest.mark.parametrize("case", GRADUAL[:: max(len(GRADUAL) // 30, 1)], ids=name_of)
def test_with_gradients(case: Case) -> None:
    """Chunks give the whole pass's gradients too, even when rows are chosen between them."""
    net, tokens = case.net(), ids(2, N)
    swap = torch.tensor([1, 0])
    with torch.enable_grad():
        net(tokens, Coords.span(N)).square().sum().backward()
        wanted = [p.grad for p in net.parameters()]
        net.zero_grad()
        first, state = run(net, tokens[:, :4], Coords.span(4), net.start(2, 3), [2])
        second, state = run(net, tokens[swap, 4:7], Coords.span(3, 4), state.select(swap), [1])
        third, _ = run(net, tokens[:, 7:], Coords.span(N - 7, 7), state.select(swap), [])
        torch.cat([first, second[swap], third], 1).square().sum().backward()
    for parameter, grad in zip(net.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-9, atol=1e-9)


@settings(max_examples=40)
@given(
    st.sampled_from(STREAMING),
    st.lists(st.integers(1, N), min_size=1, max_size=4),
    st.booleans(),
    st.sets(st.integers(1, N - 1)),
    st.integers(0, 2 * N),
)
def test_any_case_lengths_side_and_chunks(
    case: Case, lengths: list[int], left: bool, cuts: set[int], capacity: int
) -> None:
    net, n = case.net(), max(lengths)
    tokens = ids(len(lengths), n)
    out, _ = run(
        net,
        tokens,
        Coords.lengths(lengths, left=left),
        net.start(len(lengths), capacity),
        sorted(c for c in cuts if c < n),
    )
    spans = [slice(n - length, n) if left else slice(length) for length in lengths]
    alone = rows_alone(net, [row[span] for row, span in zip(tokens, spans, strict=True)])
    for row, span, wanted in zip(out, spans, alone, strict=True):
        torch.testing.assert_close(row[span], wanted, **CLOSE)
