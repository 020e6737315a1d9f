from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ShapeError
from regard.nn.core.coords import OPTIONAL, PAD, Coords

counts = st.lists(st.integers(0, 6), min_size=1, max_size=4)


def facts(at: Coords) -> tuple[list[list[int]], int | None, bool]:
    return at.pos.tolist(), at.first, at.padded


def honest(at: Coords) -> bool:
    """Whether the facts that travel with the tensors are true of them."""
    if not at.padded and not bool(at.kept.all()):
        return False
    if at.first is None:
        return True
    row = torch.arange(at.first, at.first + at.n)
    ends = at.kept.sum(1, keepdim=True)
    wanted = torch.where(torch.arange(at.n) < ends, row, PAD)
    return bool((at.pos == wanted).all()) and (at.n == 0 or bool(at.kept[:, 0].all()))


def test_a_span_is_one_row_for_all() -> None:
    assert facts(Coords.span(3, 5)) == ([[5, 6, 7]], 5, False)


def test_lengths_pad_at_the_right() -> None:
    at = Coords.lengths([4, 2])
    assert facts(at) == ([[0, 1, 2, 3], [0, 1, -1, -1]], 0, True)
    assert at.contiguous
    assert not at.packed
    assert at.kept.tolist() == [[True] * 4, [True, True, False, False]]


def test_lengths_pad_at_the_left() -> None:
    assert facts(Coords.lengths([2, 4], left=True)) == ([[-1, -1, 0, 1], [0, 1, 2, 3]], None, True)


def test_rows_that_end_at_one_position() -> None:
    assert facts(Coords.ending([3, 1], 5)) == ([[2, 3, 4], [4, PAD, PAD]], None, True)
    assert facts(Coords.ending([2, 2], 5)) == ([[3, 4]], 3, False)


def test_equal_lengths_need_no_padding() -> None:
    assert facts(Coords.lengths([3, 3], left=True)) == ([[0, 1, 2]], 0, False)


def test_an_empty_row_is_not_contiguous() -> None:
    assert facts(Coords.lengths([2, 0])) == ([[0, 1], [-1, -1]], None, True)


def test_documents_start_again_at_zero() -> None:
    at = Coords.documents([[3, 2], [4]])
    assert facts(at) == ([[0, 1, 2, 0, 1], [0, 1, 2, 3, -1]], None, True)
    assert at.doc is not None
    assert at.doc.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 0, -1]]
    assert at.packed


def test_extending_without_a_gap_stays_contiguous() -> None:
    assert facts(Coords.span(2).extend(Coords.span(2, 2))) == ([[0, 1, 2, 3]], 0, False)
    assert Coords.span(2).extend(Coords.span(2, 3)).first is None
    assert Coords.lengths([2, 1]).extend(Coords.span(1, 2)).first is None


def test_extending_nothing_gives_what_follows() -> None:
    later = Coords.span(2, 7)
    assert Coords.span(0).extend(later) is later


def test_one_row_widens_to_meet_many() -> None:
    at = Coords.span(1).extend(Coords(torch.tensor([[1], [4]])))
    assert at.pos.tolist() == [[0, 1], [0, 4]]


def test_documents_and_tags_are_joined_with_their_absence() -> None:
    at = Coords(torch.tensor([[0]]), tag=torch.tensor([[1]])).extend(Coords(torch.tensor([[0]]), torch.tensor([[1]])))
    assert at.doc is not None
    assert at.tag is not None
    assert (at.doc.tolist(), at.tag.tolist()) == ([[0, 1]], [[1, 0]])


def test_select_repeats_and_reorders_rows() -> None:
    at = Coords.documents([[2, 1], [3]]).select(torch.tensor([1, 1, 0]))
    assert at.pos.tolist() == [[0, 1, 2], [0, 1, 2], [0, 1, 0]]
    assert at.doc is not None
    assert at.doc.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_one_row_stands_for_all_after_select_too() -> None:
    at = Coords.span(3)
    assert at.select(torch.tensor([4, 2])) is at


def test_select_takes_tags_of_each_row_where_one_row_of_positions_stands_for_all() -> None:
    at = dataclasses.replace(Coords.span(2), tag=torch.tensor([[0, 1], [2, 3], [4, 5]]))
    picked = at.select(torch.tensor([2, 0]))
    assert picked.tag is not None
    assert (picked.tag.tolist(), facts(picked)) == ([[4, 5], [0, 1]], ([[0, 1]], 0, False))


def test_segments_go_wherever_their_tokens_go() -> None:
    at = dataclasses.replace(Coords.span(3), segment=torch.tensor([[0, 0, 1], [0, 1, 1]]))
    made = [at.select(torch.tensor([1])), at.cut(2), at.flip(), at.last(1), at.extend(Coords.span(1, 3))]
    assert [m.segment.tolist() for m in made if m.segment is not None] == [
        [[0, 1, 1]],
        [[0, 0], [0, 1]],
        [[1, 0, 0], [1, 1, 0]],
        [[1], [1]],
        [[0, 0, 1, 0], [0, 1, 1, 0]],
    ]


def test_flip_reads_backwards() -> None:
    at = dataclasses.replace(Coords.lengths([3, 1]), tag=torch.tensor([[0, 1, 2]])).flip()
    assert at.tag is not None
    assert (at.tag.tolist(), facts(at)) == ([[2, 1, 0]], ([[2, 1, 0], [-1, -1, 0]], None, True))


def test_last_of_a_padded_batch_is_no_longer_contiguous() -> None:
    assert facts(Coords.span(5).last(2)) == ([[3, 4]], 3, False)
    assert facts(Coords.span(2).last(5)) == ([[0, 1]], 0, False)
    assert facts(Coords.lengths([3, 1]).last(2)) == ([[1, 2], [-1, -1]], None, True)


def test_a_part_of_a_row_without_gaps_has_none() -> None:
    assert facts(Coords.span(5, 3).part(slice(1, 3))) == ([[4, 5]], 4, False)
    assert facts(Coords.lengths([3, 1]).part(slice(0, 2))) == ([[0, 1], [0, -1]], 0, True)
    assert facts(Coords.lengths([3, 1]).part(slice(1, 3))) == ([[1, 2], [-1, -1]], None, True)
    assert facts(Coords.span(5).part(torch.tensor([4, 0]))) == ([[4, 0]], None, False)


@given(counts, st.booleans(), st.data())
def test_what_travels_beside_the_tensors_is_true(lengths: list[int], left: bool, data: st.DataObject) -> None:
    at = Coords.lengths(lengths, left=left)
    n = data.draw(st.integers(0, at.n))
    some = slice(data.draw(st.integers(0, n)), n)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, at.rows - 1), min_size=1, max_size=5)))
    later = data.draw(st.sampled_from([Coords.span(2, at.n), Coords.lengths([1] * (len(lengths) - 1) + [2])]))
    for made in (at, at.cut(n), at.part(some), at.last(n), at.select(rows), at.extend(later), at.flip(), at.to("cpu")):
        assert honest(made)
        assert facts(Coords.from_flat(made.flat())) == facts(made)
    assert at.cut(n).pos.tolist() == at.pos[:, :n].tolist()
    assert at.last(n).pos.tolist() == at.pos[:, at.n - n :].tolist()


def test_documents_tags_and_segments_go_to_tensors_and_back() -> None:
    at = dataclasses.replace(Coords.documents([[2, 1], [3]]), tag=torch.tensor([[0, 1, 0], [1, 0, 0]]))
    at = dataclasses.replace(at, segment=torch.tensor([[0, 0, 1], [0, 1, 1]]))
    for made in (at, *(dataclasses.replace(at, **{name: None}) for name in OPTIONAL)):  # type: ignore[arg-type]
        back = Coords.from_flat(made.flat())
        assert facts(back) == facts(made)
        for name in OPTIONAL:
            was, now = getattr(made, name), getattr(back, name)
            assert (was is None and now is None) or torch.equal(was, now)


def test_taking_columns_of_each_row() -> None:
    at = Coords.documents([[2, 2], [3]])
    taken = at.take(torch.tensor([[3, 0, -1], [-1, 2, 1]]))
    assert facts(taken) == ([[1, 0, PAD], [PAD, 2, 1]], None, True)
    assert taken.doc is not None
    assert taken.doc[0, :2].tolist() == [1, 0]
    assert facts(Coords.span(3, 4).take(torch.tensor([[0, 2], [1, -1]]))) == ([[4, 6], [5, PAD]], None, True)


def test_hiding_tokens() -> None:
    those = torch.tensor([[False, True, False], [True, False, False]])
    assert facts(Coords.span(3).hide(those)) == ([[0, PAD, 2], [PAD, 1, 2]], None, True)


class TestTagging:
    def tags(self, at: Coords) -> object:
        return None if at.tag is None else at.tag.tolist()

    def test_the_first_token_of_each_text(self) -> None:
        assert self.tags(Coords.lengths([3, 2], left=True).with_tags("first")) == [[1, 0, 0], [0, 1, 0]]
        assert self.tags(Coords.documents([[2, 1], [2]]).with_tags("first")) == [[1, 0, 1], [1, 0, 0]]

    def test_what_follows_has_none(self) -> None:
        assert Coords.span(2, 5).with_tags("first").tag is None

    def test_the_first_segment(self) -> None:
        at = dataclasses.replace(Coords.lengths([4, 3]), segment=torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0]]))
        assert self.tags(at.with_tags("segment")) == [[1, 1, 0, 0], [1, 0, 0, 0]]
        assert self.tags(at.with_tags("first")) == [[1, 0, 0, 0], [1, 0, 0, 0]]
        with pytest.raises(ShapeError, match=r"^tags are set to the first segment, and the batch has no segments"):
            Coords.span(3).with_tags("segment")

    def test_tags_of_the_batch_count(self) -> None:
        at = dataclasses.replace(Coords.span(3), tag=torch.tensor([[0, 1, 0]]))
        assert at.with_tags("first") is at


def test_layers_that_shared_coordinates_still_do_after_a_selection() -> None:
    at, rows = Coords.lengths([3, 1]), torch.tensor([1, 0])
    assert at.select(rows) is at.select(rows)
    other = torch.tensor([1, 1])
    assert at.select(other).pos.tolist() == [[0, -1, -1], [0, -1, -1]]
    assert at.select(rows).pos.tolist() == [[0, -1, -1], [0, 1, 2]]
