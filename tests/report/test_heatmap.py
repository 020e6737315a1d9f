"""A cell for each number, a label for each row and column, whatever the script."""

import math

import pytest
from reading import Reader

from regard.errors import ShapeError
from regard.report.heatmap import CELLS, heatmap


def test_each_cell_is_as_full_as_its_number():
    read = Reader(heatmap("head 0", [[0.0, 0.25], [0.5, 1.0]], rows=["a", "b"], columns=["x", "y"]))
    cells = {(c["x"], c["y"]): c["fill-opacity"] for c in read.all("rect")}
    assert cells == {("0", "0"): "0.00", ("1", "0"): "0.25", ("0", "1"): "0.50", ("1", "1"): "1.00"}
    assert "\u2068a\u2069 → \u2068y\u2069: 0.25" in read.said("title")


def test_the_scale_may_be_given():
    read = Reader(heatmap("head 0", [[0.5, 3.0]], rows=["a"], columns=["x", "y"], low=0, high=2))
    assert [c["fill-opacity"] for c in read.all("rect")] == ["0.25", "1.00"]


def test_all_equal_is_blank_and_not_finite_is_framed():
    read = Reader(heatmap("head 0", [[1.0, math.nan, -math.inf]], rows=["a"], columns=["x", "y", "z"]))
    assert [(c.get("fill-opacity"), c.get("class")) for c in read.all("rect")] == [
        ("0.00", None), (None, "lost"), (None, "lost"),
    ]  # fmt: skip


def test_labels_of_any_script_are_shown_and_escaped():
    rows, columns = ["שלום", "</svg><script>"], ["مرحبا", "日本語", "👩‍👩‍👧"]
    read = Reader(heatmap("<i>", [[0.0] * 3] * 2, rows=rows, columns=columns))
    assert read.said("text") == rows + columns
    assert not read.all("script") and not read.all("i", class_="") and read.said("b") == ["<i>"]


def test_blanks_can_be_seen():
    read = Reader(heatmap("head 0", [[0.0] * 4], rows=["a"], columns=[" ", "\n", "\t", ""]))
    assert read.said("text") == ["a", "␣", "↵", "⇥", "∅"]


def test_long_labels_are_cut_and_told_in_full():
    long, wide = "antidisestablishmentarianism", "長" * 5000
    read = Reader(heatmap("head 0", [[0.0], [0.0]], rows=[long, wide], columns=["x"]))
    assert read.said("text") == ["antidisestablis…", "長長長長長長長…", "x"]
    assert long in read.said("title") and wide in read.said("title")


def test_labels_thin_out_where_cells_are_small():
    names = [str(i) for i in range(CELLS)]
    read = Reader(heatmap("head 0", [[0.0] * CELLS], rows=["a"], columns=names))
    assert read.said("text") == ["a", *names[::3]]


def test_nothing_is_a_map_too():
    assert not Reader(heatmap("head 0", [], rows=[], columns=[])).all("rect")


def test_labels_must_fit_the_matrix():
    with pytest.raises(ShapeError) as error:
        heatmap("head 0", [[1.0, 2.0], [1.0]], rows=["a"], columns=["x", "y"])
    assert str(error.value) == (
        "heatmap 'head 0' should have a label for each row and column: the matrix is 2 x 1 or 2, the labels are 1 x 2"
    )


def test_a_map_too_large_to_read_is_refused():
    with pytest.raises(ShapeError) as error:
        heatmap("head 0", [[0.0] * 300], rows=["a"], columns=["x"] * 300)
    assert str(error.value) == (
        "heatmap 'head 0' should have at most 256 rows and columns, got 1 x 300; draw a part of it"
    )
