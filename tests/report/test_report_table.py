"""One table, three ways to show it."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import Reader
from rich.console import Console

from regard.errors import ShapeError
from regard.report.table import Table, display_width

SCORES = Table(
    ("model", "BLEU", "parameters", "tied"),
    (("base | big", 27.31, 44140544, True), ("<b>LSTM</b>", 25.4, None, False), ("日本語", None, 5, None)),
)


def test_markdown():
    assert SCORES.markdown() == (
        "| model           |  BLEU | parameters | tied |\n"
        "| --------------- | ----: | ---------: | ---- |\n"
        "| base \\| big     | 27.31 | 44,140,544 | yes  |\n"
        "| \\<b\\>LSTM\\</b\\> | 25.40 |          – | no   |\n"
        "| 日本語          |     – |          5 | –    |\n"
    )


def test_html():
    read = Reader(SCORES.html())
    assert read.said("th") == ["model", "BLEU", "parameters", "tied"]
    assert read.said("td")[:8] == ["base | big", "27.31", "44,140,544", "yes", "<b>LSTM</b>", "25.40", "–", "no"]
    assert len(read.all("td", class_="number")) == 6
    assert not read.all("b")


def test_terminal():
    out = io.StringIO()
    Console(file=out, width=80).print(Table(("model", "score"), (("[red]x[/red]", 0.5), ("y", 12.25))).terminal())
    lines = [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]
    assert lines[0].split() == ["model", "score"]
    assert [line.split() for line in lines[2:]] == [["[red]x[/red]", "0.50"], ["y", "12.25"]]


def test_records_make_columns_in_order_of_appearance():
    table = Table.of([{"a": 1, "b": "x"}, {"c": 2.5, "a": 3}])
    assert table == Table(("a", "b", "c"), ((1, "x", None), (3, None, 2.5)))


def test_a_column_with_words_is_not_a_column_of_numbers():
    assert "number" not in Table(("a",), ((1,), ("x",))).html()
    assert "number" not in Table(("a",), ((None,),)).html()


def test_markdown_keeps_names_readable():
    table = Table(("tokens_per_s", "_x_"), (("a*b `c` [d](e) $5", "R&D &lt; two\nlines"),))
    head, _, row = table.markdown().splitlines()
    assert [c.strip() for c in head.strip("|").split(" | ")] == ["tokens_per_s", "\\_x\\_"]
    assert "a\\*b \\`c\\` \\[d\\](e) \\$5" in row and "R&D &amp;lt; two lines" in row


def test_rows_must_fit_the_heading():
    with pytest.raises(ShapeError) as error:
        Table(("a", "b"), ((1, 2), (3,)))
    assert str(error.value) == "row 1 should have 2 cells (a, b), got 1"


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(), st.one_of(st.none(), st.floats(), st.integers(), st.booleans())), max_size=5))
def test_any_cells_make_a_rectangle(rows):
    table = Table(("text", "value"), tuple(rows))
    lines = table.markdown().split("\n")[:-1]
    assert len(lines) == len(rows) + 2
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines} == {3}
    assert len(Reader(table.html()).all("tr")) == len(rows) + 1


def test_display_width():
    assert [display_width(t) for t in ("abc", "日本", "e\u0301", "\u200d", "")] == [3, 4, 1, 0, 0]
