"""Padding without a loop, against a loop."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch import IGNORE, Batch, PaddedTokens, pad_rows
from regard.data.ragged import Ragged

ROWS = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=6)
MARK = st.none() | st.integers(100, 109)


@given(
    rows=ROWS,
    picked=st.lists(st.integers(0, 5), min_size=1),
    fill=st.sampled_from([0, IGNORE]),
    before=MARK,
    after=MARK,
)
def test_padded_is_the_loop(
    rows: list[list[int]], picked: list[int], fill: int, before: int | None, after: int | None
) -> None:
    indices = [i % len(rows) for i in picked]
    side = pad_rows(Ragged.of(rows), np.array(indices), fill, before=before, after=after)
    whole = []
    for i in indices:
        whole.append(([] if before is None else [before]) + rows[i] + ([] if after is None else [after]))
    n = max(map(len, whole))
    assert side.ids.tolist() == [row + [fill] * (n - len(row)) for row in whole]
    assert side.lengths == tuple(map(len, whole))
    assert side.ids.dtype == torch.int64


def test_a_batch_moves_whole() -> None:
    side = PaddedTokens(torch.zeros(1, 2, dtype=torch.long), (2,))
    batch = Batch(side, torch.zeros(1, 2), side, 2).to("meta")
    assert batch.source is not None
    assert {batch.given.ids.device.type, batch.wanted.device.type, batch.source.ids.device.type} == {"meta"}
    assert Batch(side, torch.zeros(1, 2), None, 2).to("cpu").source is None
    assert batch.tokens == 2
