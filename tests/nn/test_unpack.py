"""Packed rows taken apart and put together again."""

from __future__ import annotations

import pytest
import torch

from regard.nn.attention.unpack import DocumentSplitter
from regard.nn.core.coords import Coords

pytestmark = pytest.mark.numeric

AT = Coords.documents([[2, 1, 3], [4]])


def numbered(rows: int, n: int) -> torch.Tensor:
    return torch.arange(rows * n, dtype=torch.double).view(rows, 1, n, 1) + 1


def test_every_document_gets_a_place_of_its_own() -> None:
    split = DocumentSplitter(AT, 2).split(numbered(2, 6), fill=-1.0)
    assert split.shape == (2, 1, 3, 4, 1)
    assert split[0, 0, ..., 0].tolist() == [[1, 2, -1, -1], [3, -1, -1, -1], [4, 5, 6, -1]]
    assert split[1, 0, ..., 0].tolist() == [[7, 8, 9, 10], [-1] * 4, [-1] * 4]


def test_and_goes_back() -> None:
    apart, x = DocumentSplitter(AT, 2), numbered(2, 6).requires_grad_()
    out = apart.join(apart.split(x))
    assert torch.equal(out, x * AT.kept[:, None, :, None])
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad[:, 0, :, 0], AT.kept.double())


def test_documents_nobody_asked_for_are_left_out() -> None:
    apart = DocumentSplitter(AT, 2, documents=2)
    out = apart.join(apart.split(numbered(2, 6)))
    assert out[0, 0, :, 0].tolist() == [1, 2, 3, 0, 0, 0]


def test_one_row_may_stand_for_all_and_documents_may_alternate() -> None:
    at = Coords(torch.tensor([[0, 0, 1, 1, -1]]), torch.tensor([[1, 0, 1, 0, -1]]), padded=True)
    split = DocumentSplitter(at, 2).split(numbered(2, 5))
    assert split[:, 0, ..., 0].tolist() == [[[2, 4], [1, 3]], [[7, 9], [6, 8]]]


def test_nothing_at_all() -> None:
    at = Coords(torch.full((1, 2), -1), torch.full((1, 2), -1), padded=True)
    apart = DocumentSplitter(at, 1)
    assert (apart.join(apart.split(numbered(1, 2))) == 0).all()
