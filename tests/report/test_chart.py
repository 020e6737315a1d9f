"""Lines go through the points they should, and say what could not be drawn."""

import math
import re
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st
from reading import Reader

from regard.report.chart import POINTS, STOPS, Series, decimate, line_chart

FLOATS = st.floats(allow_nan=True, allow_infinity=True)


def paths(chart: str) -> list[list[list[tuple[float, float]]]]:
    """For each line, its runs of points."""
    found = re.findall(r'<g class="line [^"]*"><path d="([^"]*)">', chart)
    return [
        [[(float(x), float(y)) for x, y in (p.split() for p in run.split("L"))] for run in d.split("M")[1:]]
        for d in found
    ]


def test_each_point_is_drawn_where_it_belongs():
    chart = line_chart("Loss", [Series("a", [(0, 0), (50, 1), (100, 2)]), Series("b", [(0, 2), (100, 0)])])
    (a,), (b,) = paths(chart)
    assert len(a) == 3 and len(b) == 2
    assert a[0][0] < a[1][0] < a[2][0] and a[0][1] > a[1][1] > a[2][1]  # down the page is less
    assert a[0] == (b[0][0], b[1][1]) and a[2] == (b[1][0], b[0][1])
    assert abs(a[1][0] - (a[0][0] + a[2][0]) / 2) < 0.11


def test_log_axes_make_powers_straight():
    ((line,),) = paths(
        line_chart("Time", [Series("n²", [(2**k, 4**k) for k in range(9)])], x_scale="log", y_scale="log")
    )
    slopes = [(d - b) / (c - a) for (a, b), (c, d) in pairwise(line)]
    assert max(slopes) - min(slopes) < 0.02


def test_points_come_in_any_order():
    assert line_chart("t", [Series("a", [(2, 1), (0, 3), (1, 2)])]) == line_chart(
        "t", [Series("a", [(0, 3), (1, 2), (2, 1)])]
    )


def test_what_cannot_be_drawn_interrupts_and_is_marked():
    points = [(0, 1.0), (1, 2.0), (2, math.nan), (3, 2.0), (4, math.inf), (5, 1.0), (6, 1.5)]
    chart = line_chart("Loss", [Series("training", points)])
    assert [len(run) for run in paths(chart)[0]] == [2, 1, 2]
    read = Reader(chart)
    assert len(read.all("path", class_="lost")) == 2
    assert {"training: nan (step 2)", "training: inf (step 4)"} <= set(read.said("title"))


def test_a_log_axis_marks_what_is_not_positive():
    read = Reader(line_chart("Norm", [Series("a", [(0, 0.0), (1, 1.0), (2, 100.0)])], y_scale="log"))
    assert len(read.all("path", class_="lost")) == 1
    assert "log scale" in read.said("span")


def test_one_point_is_a_dot():
    read = Reader(line_chart("Loss", [Series("a", [(100, 0.5)])]))
    assert len([c for c in read.all("circle") if c["r"] == "2.2"]) == 1


def test_nothing_to_draw_says_so():
    for points in ([], [(1, math.nan)], [(math.nan, 1.0)]):
        assert "nothing to draw" in Reader(line_chart("Loss", [Series("a", points)])).said("span")


def test_hovering_tells_the_values_of_all_series():
    chart = line_chart("Loss", [Series("a", [(0, 1.5), (10, 2.5)]), Series("b", [(10, 3.5)])])
    assert Reader(chart).said("title") == ["a: 1.5 (step 0)", "a: 2.5 (step 10)\nb: 3.5 (step 10)"]


def test_legend_names_the_series_in_its_colour():
    read = Reader(line_chart("Loss", [Series(f"series {i}", [(0, i)]) for i in range(8)]))
    assert read.said("bdi") == [f"series {i}" for i in range(8)]
    assert [i["class"] for i in read.all("i")] == ["s0", "s1", "s2", "s3", "s4", "s5", "s0 dashed", "s1 dashed"]
    assert not Reader(line_chart("Loss", [Series("alone", [(0, 1)])])).all("i")


def test_charts_over_one_span_share_their_axis():
    def labels(points):
        return re.findall(
            r'class="middle" x="([^"]*)" y="[^"]*">([^<]*)<', line_chart("t", [Series("a", points)], x_span=(0, 90))
        )

    assert labels([(10, 1), (90, 2)]) == labels([(50, 1), (60, 2)])


def test_labels_do_not_overlap():
    for high in (1, 7, 3000, 12_000, 99_999, 1_000_000, 2.5e9):
        chart = line_chart("t", [Series("a", [(0, 1), (high, 2)])])
        found = re.findall(r'class="middle" x="([^"]*)" y="[^"]*">([^<]*)<', chart)
        ends = [(float(x) - 3.3 * len(t), float(x) + 3.3 * len(t)) for x, t in found]
        assert all(a[1] < b[0] for a, b in pairwise(ends)), found
        assert ends[-1][1] <= 461


def test_text_is_escaped():
    read = Reader(line_chart("<b>t</b>", [Series("<script>", [(0, 1)]), Series('"&', [(0, 1)])], x="</svg>"))
    assert not read.all("script") and read.said("bdi") == ["<script>", '"&']


def test_decimation_keeps_ends_and_extremes():
    points = [(float(i), math.sin(i / 1000)) for i in range(100_000)]
    points[70_123], points[33] = (70_123.0, 9.0), (33.0, -9.0)
    kept = decimate(points)
    assert len(kept) <= POINTS
    assert {points[0], points[-1], points[70_123], points[33]} <= set(kept)
    assert kept == sorted(kept)


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), max_size=200), st.integers(4, 50))
def test_decimation_is_a_part_that_keeps_extremes(values, limit):
    points = [(float(i), v) for i, v in enumerate(values)]
    kept = decimate(points, limit)
    assert len(kept) == len(points) if len(points) <= limit else 4 <= len(kept) + 2 <= limit + 2
    assert kept == sorted(set(kept) & set(points))
    if values:
        ys = [y for _, y in kept]
        assert (min(ys), max(ys)) == (min(values), max(values))


def test_a_huge_log_stays_small():
    chart = line_chart("Loss", [Series("a", [(i, math.cos(i)) for i in range(200_000)])])
    assert sum(len(run) for run in paths(chart)[0]) <= POINTS
    assert len(Reader(chart).said("title")) <= STOPS + 1
    assert len(chart) < 60_000


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(FLOATS, FLOATS), max_size=12), max_size=3),
    st.sampled_from(["linear", "log"]),
    st.sampled_from(["linear", "log"]),
    st.booleans(),
)
@example([[(4e-308, 0.0)]], "linear", "linear", False)
def test_any_numbers_make_a_chart_inside_its_frame(lines, x_scale, y_scale, zero):
    series = [Series(str(i), points) for i, points in enumerate(lines)]
    chart = line_chart("t", series, x_scale=x_scale, y_scale=y_scale, zero=zero)
    Reader(chart)
    assert all(0 <= x <= 460 and 0 <= y <= 230 for line in paths(chart) for run in line for x, y in run)
