"""Documents packed in one row are documents in rows of their own."""

from __future__ import annotations

import pytest
import torch

from regard.nn.core.coords import Coords
from tests.laws.examples import BOTH, DECODERS, ENCODERS, STREAMING, Case, ids, name_of
from tests.laws.running import CLOSE, one_by_one, rows_alone, run

pytestmark = pytest.mark.numeric

PACKED = [[3, 1, 5], [4, 2]]
AT = Coords.documents(PACKED)
SPANS = [(0, 0, 3), (0, 3, 4), (0, 4, 9), (1, 0, 4), (1, 4, 6)]


@pytest.mark.parametrize("case", [c for c in ENCODERS + DECODERS if c.mixer.can.packed], ids=name_of)
def test_packed_is_separate(case: Case) -> None:
    net, tokens = case.net(), ids(2, AT.n)
    with torch.no_grad():
        packed = net(tokens, AT)
        alone = rows_alone(net, [tokens[row, a:b] for row, a, b in SPANS])
    for (row, a, b), wanted in zip(SPANS, alone, strict=True):
        torch.testing.assert_close(packed[row, a:b], wanted, **CLOSE)


@pytest.mark.parametrize("case", STREAMING, ids=name_of)
def test_packed_in_chunks(case: Case) -> None:
    net, tokens = case.net(), ids(2, AT.n)
    with torch.no_grad():
        whole = net(tokens, AT)
        for cuts in (one_by_one(AT.n), [2, 7]):
            chunks, _ = run(net, tokens, AT, net.start(2, 3), cuts)
            torch.testing.assert_close(chunks[AT.kept], whole[AT.kept], **CLOSE)


@pytest.mark.parametrize("case", [c for c in BOTH if c.mixer.can.packed], ids=name_of)
def test_packed_pairs_are_separate(case: Case) -> None:
    """Document i of a target sees document i of its source."""
    net, source_at = case.net(), Coords.documents([[2, 4, 1], [1, 3]])
    source, target = ids(2, source_at.n), ids(2, AT.n, seed=1)
    sources = [(0, 0, 2), (0, 2, 6), (0, 6, 7), (1, 0, 1), (1, 1, 4)]
    with torch.no_grad():
        packed = net(target, AT, (source, source_at))
        for (row, a, b), (_, c, d) in zip(SPANS, sources, strict=True):
            alone = net(
                target[row : row + 1, a:b], Coords.span(b - a), (source[row : row + 1, c:d], Coords.span(d - c))
            )
            torch.testing.assert_close(packed[row, a:b], alone[0], **CLOSE)
