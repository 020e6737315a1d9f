from __future__ import annotations

import pytest
import torch

from regard.errors import ShapeError
from regard.nn.core.shape import merge_heads, sizes, split_heads


def test_sizes_come_by_name() -> None:
    assert sizes(torch.zeros(2, 7, 64), "b n d", d=64) == (2, 7, 64)


def test_a_wrong_size_is_named() -> None:
    with pytest.raises(ShapeError, match=r"^tensor should be \(b, n, d=64\), got \(2, 7, 48\): d is 48$"):
        sizes(torch.zeros(2, 7, 48), "b n d", d=64)


def test_all_wrong_sizes_are_named() -> None:
    with pytest.raises(ShapeError, match=r"^tensor should be \(b=3, n, d=64\), got \(2, 7, 48\): b is 2, d is 48$"):
        sizes(torch.zeros(2, 7, 48), "b n d", b=3, d=64)


def test_a_wrong_number_of_dimensions() -> None:
    with pytest.raises(ShapeError, match=r"^tensor should be \(b, n, d=8\), got \(2, 8\): 2 dimensions, not 3$"):
        sizes(torch.zeros(2, 8), "b n d", d=8)


def test_heads_are_neighbouring_columns() -> None:
    x = torch.arange(12.0).view(1, 2, 6)
    assert split_heads(x, 3)[0, :, 0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert torch.equal(merge_heads(split_heads(x, 3)), x)
