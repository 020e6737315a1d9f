"""The quick way to the largest few equals torch's own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decode import topk as module
from regard.decode.topk import topk

pytestmark = pytest.mark.numeric


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 900), st.integers(1, 12), st.sampled_from([1, 3, 8]))
def test_the_largest_few_and_where_they_stand(seed: int, rows: int, v: int, k: int, block: int) -> None:
    x = torch.randn(rows, v, generator=torch.Generator().manual_seed(seed))
    k = min(k, v)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMALL", 0)
        patch.setattr(module, "BLOCK", block)
        values, where = topk(x, k)
    wanted = x.topk(k)
    assert torch.equal(values, wanted.values)
    assert torch.equal(where, wanted.indices)


def test_at_its_real_size_with_what_is_forbidden() -> None:
    x = torch.randn(20, 5003)
    x[:, 1::2] = -torch.inf
    x[3] = -torch.inf
    x[3, 5002] = 0.0  # in the rest that fills no block
    for k in (1, 5):
        values, where = topk(x, k)
        assert torch.equal(values, x.topk(k).values)
        assert torch.equal(x.gather(1, where), values)
        assert all(len(set(row)) == k for row in where.tolist())
    assert int(topk(x, 1)[1][3]) == 5002


def test_the_first_of_equals_is_the_largest() -> None:
    x = torch.zeros(20, 5000)
    x[:, [4999, 70, 3000]] = 1.0
    assert topk(x, 1)[1].flatten().tolist() == [70] * 20 == x.argmax(1).tolist()
