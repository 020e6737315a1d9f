"""A decoder that cannot run token by token is decoded all the same: its tokens are remembered and run again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard.decode import Request, Search, SpecialTokens, generate
from regard.errors import StateError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.model.replay import Replay
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers import Full
from tests.nn.odd import Blur, both, in_tables, writer

__all__ = ["in_tables"]
pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("in_tables")]
BLUR = Block(mix=Blur(), cross=Full(2), feed=FeedForward(10))
BOS, EOS, PAD = 0, 1, 2


def net_of(spec: ModelSpec) -> Net:
    net = spec.build(0).double().eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return net


def ids(rows: int, n: int) -> Tensor:
    return torch.randint(11, (rows, n))


def greedy_by_whole_passes(net: Net, source: list[int], longest: int) -> tuple[int, ...]:
    written: list[int] = []
    with torch.no_grad():
        memory = net.encode(torch.tensor([source]), Coords.span(len(source)))
        while len(written) < longest:
            stream, _ = net.decode(torch.tensor([[BOS, *written]]), Coords.span(len(written) + 1), memory)
            logits = net.logits(stream)[0, -1]
            logits[[BOS, PAD]] = -torch.inf
            written.append(int(logits.argmax()))
            if written[-1] == EOS:
                break
    return tuple(t for t in written if t != EOS)


def test_a_model_that_streams_needs_none() -> None:
    assert not isinstance(writer(Full(2)).build().start(2, 4), Replay)
    mixed = writer(Full(2)).replace("decoder", Stack(blocks=(Block(mix=Full(2)), Block(mix=Blur())), causal=True))
    assert isinstance(mixed.build().start(2, 4), Replay)


@pytest.mark.parametrize(
    "search", [Search(beam=1, max_extra=6, repetition_guard=False), Search(beam=3, max_extra=6, repetition_guard=False)]
)
def test_search_finds_what_whole_passes_find(search: Search) -> None:
    net = net_of(both(BLUR))
    sources = [ids(1, n)[0].tolist() for n in (3, 5, 1, 4)]
    found = generate([net], Request(sources, search, SpecialTokens(BOS, EOS, PAD)))
    if search.beam == 1:
        assert [h[0].tokens for h in found] == [greedy_by_whole_passes(net, s, search.limit(len(s))) for s in sources]
        assert len({len(h[0].tokens) for h in found}) > 1, "sentences leave at different times"
    for source, hypotheses in zip(sources, found, strict=True):
        best = hypotheses[0]
        given = torch.tensor([[BOS, *best.tokens]])
        with torch.no_grad():
            stream = net(given, Coords.span(given.shape[1]), (torch.tensor([source]), Coords.span(len(source))))
            log_probs = net.logits(stream)[0].log_softmax(-1)
        ended = len(best.tokens) < search.limit(len(source))
        wrote = [*best.tokens, EOS] if ended else list(best.tokens)
        assert best.log_prob == pytest.approx(sum(float(log_probs[i, t]) for i, t in enumerate(wrote)), abs=1e-9)


@torch.no_grad()
def test_chunks_choices_and_cuts() -> None:
    net, tokens, rows = net_of(writer(Blur())), ids(2, 6), torch.tensor([1, 1, 0])
    whole = net(tokens, Coords.span(6))
    first, state = net.decode(tokens[:, :4], Coords.span(4), state=net.start(2, 6))
    assert isinstance(state, Replay)
    torch.testing.assert_close(first, whole[:, :4])
    second, chosen = net.decode(tokens[rows, 4:], Coords.span(2, 4), state=state.select(rows))
    torch.testing.assert_close(second, whole[rows, 4:])
    assert isinstance(chosen, Replay)
    third, _ = net.decode(tokens[rows, 2:3], Coords.span(1, 2), state=chosen.cut(2))
    torch.testing.assert_close(third, whole[rows, 2:3])
    with pytest.raises(StateError, match=r"^cannot keep 7 of 6 remembered tokens$"):
        chosen.cut(7)


@torch.no_grad()
def test_prompts_of_different_lengths() -> None:
    net, tokens = net_of(writer(Blur())), ids(2, 5)
    _, state = net.decode(tokens[:, :3], Coords.lengths([3, 1]), state=net.start(2, 5))
    out, _ = net.decode(tokens[:, 3:], Coords(torch.tensor([[3, 4], [1, 2]])), state=state)
    torch.testing.assert_close(out[0], net(tokens[:1], Coords.span(5))[0, 3:])
    alone = torch.cat([tokens[1:, :1], tokens[1:, 3:]], 1)
    torch.testing.assert_close(out[1], net(alone, Coords.span(3))[0, 1:])


@torch.no_grad()
def test_to_tensors_and_back() -> None:
    net, tokens = net_of(writer(Blur())), ids(2, 5)
    _, state = net.decode(tokens[:, :3], Coords.span(3), state=net.start(2, 5))
    assert state is not None
    assert list(state.flat()) == ["ids", "at.pos", "at.facts"]
    back = net.start(2, 5).load_flat(state.flat())
    out, _ = net.decode(tokens[:, 3:], Coords.span(2, 3), state=back)
    torch.testing.assert_close(out, net(tokens, Coords.span(5))[:, 3:])


@torch.no_grad()
def test_observers_see_the_whole_pass() -> None:
    net, tape = net_of(both(BLUR)), Tape("*.cross.weights")
    memory = net.encode(ids(1, 4), Coords.span(4))
    _, state = net.decode(ids(2, 3), Coords.span(3), memory, net.start(2, 5))
    net.decode(ids(2, 1), Coords.span(1, 3), memory, state, tape)
    assert tape.kept["decoder.blocks.0.cross.weights"].shape == (2, 2, 4, 4)
