"""Streaming: chunks with a state equal the whole pass."""

from __future__ import annotations

import random

import torch

from regard.laws.case import (
    CLOSE_GRADIENTS,
    LENGTH,
    Case,
    decode_in_chunks,
    make_ids,
    require,
    require_close,
    run_rows_alone,
)
from regard.nn.core.coords import Coords

N = LENGTH - 2
DIFFERS = "differs from the whole pass; the state must hold all that later tokens read, or declare Can(stream=False)"


def draw_cuts(n: int, seed: int) -> list[int]:
    """Draw chunk borders."""
    rng = random.Random(seed)
    return sorted(rng.sample(range(1, n), rng.randint(1, n - 1)))


def every_token(n: int) -> list[int]:
    """Chunk borders after every token."""
    return list(range(1, n))


@torch.no_grad()
def check_chunks(case: Case) -> None:
    """Chunks of any size, and one token at a time, equal the whole pass."""
    net, tokens, at = case.net(), make_ids(3, N), Coords.span(N)
    whole = net(tokens, at)
    for capacity, cuts in ((N, every_token(N)), (1, draw_cuts(N, 0)), (4, draw_cuts(N, 1)), (N, [])):
        chunks, _ = decode_in_chunks(net, tokens, at, net.start(3, capacity), cuts)
        require_close(chunks, whole, f"decoding with chunk borders at {cuts} {DIFFERS}")


@torch.no_grad()
def check_left_padding(case: Case) -> None:
    """Rows padded on the left stream as they run alone."""
    check_lengths(case, [N, 4, 1], left=True, cuts=[[], [6], every_token(N), draw_cuts(N, 2)], capacity=2)


@torch.no_grad()
def check_lengths(case: Case, lengths: list[int], *, left: bool, cuts: list[list[int]], capacity: int) -> None:
    """Rows of different lengths, padded on either side, stream as they run alone."""
    net, n = case.net(), max(lengths)
    tokens, at = make_ids(len(lengths), n), Coords.lengths(lengths, left=left)
    spans = [slice(n - length, n) if left else slice(length) for length in lengths]
    alone = run_rows_alone(net, [row[span] for row, span in zip(tokens, spans, strict=True)])
    for borders in cuts:
        out, _ = decode_in_chunks(net, tokens, at, net.start(len(lengths), capacity), borders)
        for row, span, wanted in zip(out, spans, alone, strict=True):
            require_close(row[span], wanted, f"a padded row, decoded with chunk borders at {borders}, {DIFFERS}")


@torch.no_grad()
def check_prompts(case: Case) -> None:
    """Prompts of different lengths, padded on the right, can be continued."""
    net, lengths, more = case.net(), [2, 5, 3], 4
    prompts, later = make_ids(3, 5), make_ids(3, more, seed=1)
    alone = run_rows_alone(net, [torch.cat([p[:n], x]) for p, n, x in zip(prompts, lengths, later, strict=True)])
    at = Coords(torch.tensor(lengths).unsqueeze(1) + torch.arange(more))
    for cuts in (every_token(more), [3]):
        _, state = net.decode(prompts, Coords.lengths(lengths), state=net.start(3, 6))
        assert state is not None
        out, _ = decode_in_chunks(net, later, at, state, cuts)
        for row, n, wanted in zip(out, lengths, alone, strict=True):
            require_close(row, wanted[n:], f"continuing prompts of different lengths {DIFFERS}")


@torch.no_grad()
def check_select(case: Case, padded: bool = False) -> None:
    """Two rows become four, then three: each continues from the row it was selected from."""
    net, first, second, third = case.net(), make_ids(2, 4), make_ids(4, 2, seed=1), make_ids(3, 2, seed=2)
    lengths = torch.tensor([4, 2] if padded else [4, 4])
    _, state = net.decode(first, Coords.lengths(lengths.tolist()), state=net.start(2, 5))
    require(state is not None, "a mixer that was given a state must return one")
    for new, rows in ((second, torch.tensor([1, 0, 0, 1])), (third, torch.tensor([3, 1, 0]))):
        assert state is not None
        state, lengths = state.select(rows), lengths[rows]
        at = Coords(lengths.unsqueeze(1) + torch.arange(2)) if padded else Coords.span(2, int(lengths[0]))
        out, state = net.decode(new, at, state=state)
        lengths = lengths + 2
    whole = [  # row r of the last batch: its first tokens, its second, its third
        torch.cat([first[b][: 4 if not padded or b == 0 else 2], second[m], third[r]])
        for r, (m, b) in enumerate([(3, 1), (1, 0), (0, 1)])
    ]
    for row, wanted in zip(out, run_rows_alone(net, whole), strict=True):
        require_close(row, wanted[-2:], f"a state whose rows were selected (as beam search does) {DIFFERS}")


@torch.no_grad()
def check_cut(case: Case) -> None:
    """After `state.cut(n)`, decoding continues as if only n tokens had been read."""
    net, tokens, other = case.net(), make_ids(2, N), make_ids(2, 4, seed=1)
    words = "decoding after `state.cut` differs from the whole pass; implement it, or declare Can(rewind=False)"
    _, state = decode_in_chunks(net, tokens, Coords.span(N), net.start(2, N), draw_cuts(N, 3))
    out, _ = decode_in_chunks(net, other, Coords.span(4, 5), state.cut(5), [1])
    require_close(out, net(torch.cat([tokens[:, :5], other], 1), Coords.span(9))[:, 5:], words)
    again, _ = decode_in_chunks(net, tokens, Coords.span(N), state.cut(0), [2])
    require_close(again, net(tokens, Coords.span(N)), words)


@torch.enable_grad()
def check_gradients(case: Case) -> None:
    """Chunks give the gradients of the whole pass, even when rows are selected between them."""
    net, tokens, swap = case.net(), make_ids(2, N), torch.tensor([1, 0])
    net(tokens, Coords.span(N)).square().sum().backward()
    wanted = [p.grad for p in net.parameters()]
    net.zero_grad()
    first, state = decode_in_chunks(net, tokens[:, :4], Coords.span(4), net.start(2, 3), [2])
    second, state = decode_in_chunks(net, tokens[swap, 4:7], Coords.span(3, 4), state.select(swap), [1])
    third, _ = decode_in_chunks(net, tokens[:, 7:], Coords.span(N - 7, 7), state.select(swap), [])
    torch.cat([first, second[swap], third], 1).square().sum().backward()  # type: ignore[no-untyped-call]
    words = "gradients through a state differ from those of the whole pass; declare Can(grads=False) if they are cut"
    for parameter, grad in zip(net.parameters(), wanted, strict=True):
        zeros = torch.zeros_like(parameter)
        require_close(
            zeros if parameter.grad is None else parameter.grad, zeros if grad is None else grad, words, CLOSE_GRADIENTS
        )
