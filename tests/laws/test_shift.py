"""Positions that act on attention read distances alone: a sequence that starts later is the same sequence."""

from __future__ import annotations

import pytest
import torch

from regard.nn.blocks.memory_hops import MemoryHops
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Fixed
from regard.nn.mixers import Performer
from tests.laws.examples import DECODERS, ENCODERS, Case, make_ids, name_of

pytestmark = pytest.mark.numeric

N = 8


def reads_distances(case: Case) -> bool:
    """Not those that estimate the score of a turned pair: theirs is right on average over random features.

    Nor those whose pattern cuts positions into blocks: it stands where it stands; nor hops, whose question is position 0.
    """
    embed = getattr(case.spec.embed, "position", None)
    blocks = isinstance(getattr(case.part, "pattern", None), Fixed)
    return (
        embed is None
        and case.part.can.length == "any"
        and not (isinstance(case.part, Performer | MemoryHops) or blocks)
    )


@pytest.mark.parametrize("case", [c for c in ENCODERS + DECODERS if reads_distances(c)], ids=name_of)
def test_a_later_start_changes_nothing(case: Case) -> None:
    net, tokens = case.net(), make_ids(2, N)
    with torch.no_grad():
        early = net(tokens, Coords.span(N))
        for first in (1, 4):
            torch.testing.assert_close(net(tokens, Coords.span(N, first)), early, rtol=0, atol=1e-9)
