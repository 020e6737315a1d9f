"""Every compression against its formula; padding and other documents take no part."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard.errors import SpecError
from regard.nn.core.coords import Coords
from regard.nn.mixers.compress import (
    CompressionSpec,
    Convolution,
    MostUsed,
    OldMemories,
    Pooling,
    number_slots,
    windows,
)

pytestmark = pytest.mark.numeric

D = 4


def old(n: int, at: Coords | None = None, rows: int = 2, used: Tensor | None = None) -> OldMemories:
    return OldMemories(torch.randn(rows, n, D).double(), at or Coords.span(n), used)


def test_pooling() -> None:
    o = old(6)
    for by, pool in (("mean", torch.nn.functional.avg_pool1d), ("max", torch.nn.functional.max_pool1d)):
        small, at = Pooling(9, 3, by).build(D)(o)  # type: ignore[arg-type]
        torch.testing.assert_close(small, pool(o.x.mT, 3).mT)
        assert (at.n, at.padded) == (2, False)


def test_a_convolution() -> None:
    o, compressor = old(8), Convolution(9, 4).build(D).double()
    weight = compressor.maps[0].weight.view(D, 4, D).mT  # type: ignore[index, union-attr, operator]
    torch.testing.assert_close(compressor(o)[0], torch.nn.functional.conv1d(o.x.mT, weight, stride=4).mT)


@pytest.mark.parametrize("rate", [2, 3, 4, 7])
def test_dilated_convolutions(rate: int) -> None:
    """One of width two for each doubling, with a gap twice as wide each time; a window starts with silence if need be."""
    o, compressor = old(2 * rate), Convolution(9, rate, dilated=True).build(D).double()
    steps = (rate - 1).bit_length()
    assert len(compressor.maps) == steps  # type: ignore[arg-type]
    for w in range(2):
        x = o.x[:, w * rate : (w + 1) * rate].mT
        x = torch.nn.functional.pad(x, (2**steps - rate, 0))
        for i, part in enumerate(compressor.maps):  # type: ignore[arg-type]
            x = torch.nn.functional.conv1d(x.relu() if i else x, part.weight.view(D, 2, D).mT, dilation=2**i)
        torch.testing.assert_close(compressor(o)[0][:, w], x[..., -1])


def test_the_most_used_stay_in_order() -> None:
    used = torch.tensor([[5.0, 1.0, 9.0, 2.0, 0.0, 3.0], [0.0, 0.0, 1.0, 9.0, 8.0, 7.0]])
    o = old(6, used=used)
    small, at = MostUsed(9, 2).build(D)(o)
    for row, best in enumerate([[0, 2, 5], [3, 4, 5]]):
        assert torch.equal(small[row], o.x[row, best])
    assert at.n == 3


PADDED = Coords(torch.tensor([[-1, -1, -1, 0, 1, 2], [0, 1, 2, 3, 4, 5]]), padded=True)


@pytest.mark.parametrize(
    "spec", [Pooling(9, 2), Pooling(9, 2, "max"), Convolution(9, 2), Convolution(9, 2, dilated=True)], ids=repr
)
def test_padding_takes_no_part(spec: CompressionSpec) -> None:
    compressor, o = spec.build(D).double(), old(6, PADDED)
    loud = OldMemories(torch.where(PADDED.kept.unsqueeze(-1), o.x, 1e6), o.at)
    small, at = compressor(o)
    assert torch.equal(compressor(loud)[0], small)
    assert at.kept.tolist() == [[False, True, True], [True, True, True]]
    assert at.padded
    if isinstance(spec, Pooling):
        torch.testing.assert_close(small[0, 1], o.x[0, 3])


def test_padding_is_never_the_most_used() -> None:
    o = old(6, PADDED, used=torch.tensor([[9.0, 9.0, 9.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]))
    small, at = MostUsed(9, 3).build(D)(o)
    assert torch.equal(small[0, 1], o.x[0, 5])
    assert at.kept.tolist() == [[False, True], [True, True]], "a row of which fewer leave keeps fewer"
    _, at = MostUsed(9, 1).build(D)(o)
    assert at.kept.tolist() == PADDED.kept.tolist()


def test_a_window_belongs_to_its_last_document() -> None:
    at = Coords(
        torch.tensor([[0, 1, 2, 3, 0, 1, 2, -1, -1]]), torch.tensor([[0, 0, 0, 0, 1, 1, 1, -1, -1]]), padded=True
    )
    there, small = windows(at, 3)
    assert there.tolist() == [[[True, True, True], [False, True, True], [True, False, False]]]
    assert small.doc is not None
    assert small.doc.tolist() == [[0, 1, 1]]


class TestPlaces:
    def test_a_slot_stands_where_its_index_says(self) -> None:
        at = number_slots(Coords.span(3, 100), Coords.span(4, 12))
        assert at.extend(Coords.span(4, 12)).first == 9
        assert at.pos.tolist() == [[9, 10, 11]]

    def test_a_row_at_a_time_where_there_is_padding(self) -> None:
        slots = Coords(torch.tensor([[-1, 0, 0], [0, 0, -1], [-1, -1, -1]]), padded=True)
        recent = Coords(torch.tensor([[-1, 7, 8], [9, 10, 11], [-1, 0, 1]]), padded=True)
        assert number_slots(slots, recent).pos.tolist() == [[-1, 5, 6], [7, 8, -1], [-1, -1, -1]]

    def test_another_document_is_over(self) -> None:
        slots = Coords(torch.zeros(1, 3).long(), torch.tensor([[0, 1, 1]]))
        recent = Coords(torch.tensor([[4, 5]]), torch.tensor([[1, 1]]))
        assert number_slots(slots, recent).pos.tolist() == [[-1, 2, 3]]


def test_autoencoding_counts_what_is_there() -> None:
    compressor, o = Convolution(9, 2, loss="autoencode").build(D).double(), old(6, PADDED)
    small, _ = compressor(o)
    back = compressor.decoder(small).view(2, 6, D)  # type: ignore[operator, misc]
    wanted = (back - o.x).square().mean(-1)[PADDED.kept].mean()
    torch.testing.assert_close(compressor.autoencoding_loss(o, small), wanted)


def test_a_dilated_convolution_joins_at_least_two() -> None:
    with pytest.raises(
        SpecError, match=r"^dilated convolutions join two memories at a time: rate should be at least 2, got 1$"
    ):
        Convolution(3, 1, dilated=True)
