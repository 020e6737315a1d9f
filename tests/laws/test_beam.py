"""Hypotheses of a sentence share what belongs to it: the same as if each had a copy."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.laws.case import CLOSE, decode_in_chunks
from regard.laws.streaming import every_token
from regard.nn.core.coords import Coords
from tests.laws.examples import BOTH, Case, make_ids, name_of

pytestmark = pytest.mark.numeric

SENTENCES, WIDTH, N = 2, 3, 5
EACH = torch.arange(SENTENCES).repeat_interleave(WIDTH)


@pytest.mark.parametrize("case", BOTH, ids=name_of)
def test_a_beam_searches_as_if_each_hypothesis_had_its_own_source(case: Case) -> None:
    """Extend, reorder within sentences, extend, let the first sentence leave, extend."""
    net = case.net()
    tokens = make_ids(SENTENCES * WIDTH, N, seed=1)
    order, leave = torch.tensor([2, 0, 0, 3, 5, 4]), torch.tensor([3, 4, 5])
    with torch.no_grad():
        memory = net.encode(make_ids(SENTENCES, 7), Coords.lengths([7, 4]))
        state = net.start(SENTENCES * WIDTH, 2)
        first, state = decode_in_chunks(net, tokens[:, :2], Coords.span(2), state, every_token(2), memory)
        state = state.select(order)
        second, state = decode_in_chunks(net, tokens[:, 2:4], Coords.span(2, 2), state, every_token(2), memory)
        state = state.select(leave, torch.tensor([1]))
        left = memory.select(torch.tensor([1]))
        third, _ = decode_in_chunks(net, tokens[3:, 4:], Coords.span(1, 4), state, [], left)

        copies = memory.select(EACH)
        whole, _ = net.decode(tokens[:, :2], Coords.span(2), copies)
        torch.testing.assert_close(first, whole, **CLOSE)
        history = torch.cat([tokens[order, :2], tokens[:, 2:4]], 1)
        whole, _ = net.decode(history, Coords.span(4), copies)
        torch.testing.assert_close(second, whole[:, 2:], **CLOSE)
        history = torch.cat([history[leave], tokens[3:, 4:]], 1)
        whole, _ = net.decode(history, Coords.span(5), memory.select(torch.tensor([1, 1, 1])))
        torch.testing.assert_close(third, whole[:, 4:], **CLOSE)


@pytest.mark.parametrize("case", BOTH[:3], ids=name_of)
def test_the_sentences_part_of_a_state_is_not_copied(case: Case) -> None:
    net = case.net()
    with torch.no_grad():
        memory = net.encode(make_ids(SENTENCES, 7), Coords.span(7))
        _, state = net.decode(make_ids(6, 2), Coords.span(2), memory, net.start(6, 4))
    assert state is not None
    before = state.blocks[0]["cross"]  # type: ignore[attr-defined]
    after = state.select(torch.tensor([0, 0, 1, 5, 4, 3])).blocks[0]["cross"]  # type: ignore[attr-defined]
    tensors = [f.name for f in dataclasses.fields(before) if isinstance(getattr(before, f.name), torch.Tensor)]
    assert tensors
    for name in tensors:
        assert getattr(after, name).data_ptr() == getattr(before, name).data_ptr()
        assert getattr(after, name).shape[0] == SENTENCES
