"""The study: what it asks of children, when it stops them, and what it makes of their answers."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from regard.errors import CheckpointError, SpecError
from regard.studies import complexity, figures, run_study
from regard.studies.complexity import Found, Point, Settings, Study, parse_names, study
from regard.studies.contenders import CONTENDERS, Shape
from regard.studies.study_options import parse_numbers
from regard.studies.time_shares import Size, measure_shares
from regard.studies.width_crossing import count_operations, find_cheaper
from regard.studies.worker import Stopped
from tests.faulty import limited_file_size

pytestmark = pytest.mark.numeric


class Answers:
    """A child that takes time and memory as the papers say, without taking any."""

    asked: ClassVar[list[Any]] = []

    def __init__(self, module: str, memory: int) -> None:
        assert module == "regard.studies.measure"
        self.theory = CONTENDERS["fused"].theory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        self.asked.append(question)
        if "name" in question:
            self.theory = CONTENDERS[question["name"]].theory
            return {"ready": True}
        n = question["n"]
        if n == 3000:
            raise Stopped("it took longer than 1 s")
        time, memory = 1e-8 * n**self.theory.time, 100 * n**self.theory.memory
        slow = [2 * time, 4 * time]
        return {
            "n": n,
            "bytes": memory,
            "grown": 0,
            "passes": [slow, [time / 3, time * 2 / 3], slow],
            "least": 3 * time,
        }


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complexity, "SMALL", complexity.SMALL[:2])
    monkeypatch.setattr(complexity, "Child", Answers)
    monkeypatch.setattr(complexity, "measure_shares", lambda: measure_shares(Size(16, 1, 2, 11, 2, 4), rounds=1))
    monkeypatch.setattr(complexity, "free_memory", lambda: 2 << 30)
    monkeypatch.setattr(Answers, "asked", [])


def made(**settings: Any) -> tuple[Study, list[str]]:
    said: list[str] = []
    return study(Settings(**{"minutes": 100.0, "threads": 1, **settings}), said.append), said


@pytest.mark.usefixtures("quick")
class TestStudy:
    def test_exponents_are_those_of_the_answers(self) -> None:
        found, said = made(mixers=("local", "plain", "strided"), lengths=(8192, 1024, 2048, 4096))
        assert [f.contender.name for f in found.found] == ["fused", "plain", "local", "strided"]
        fits = {f.contender.name: (f.time, f.memory) for f in found.found}
        for name, time, memory in (("fused", 2, 1), ("plain", 2, 2), ("local", 1, 1), ("strided", 1.5, 1.5)):
            assert [round(fit.exponent, 6) for fit in fits[name] if fit] == [time, memory]
        local = found.found[2]
        assert [p.n for p in local.points] == [1024, 2048, 4096, 8192]
        assert local.points[0].seconds == pytest.approx(1e-8 * 1024)
        assert local.points[0].passes == 3
        assert "  8,192 tokens: 0.1 ms, 0.8 MB" in "\n".join(said)
        assert found.beats(local) == 1024
        assert found.against(local)[4096] == pytest.approx((1 / 4096, 1))
        assert found.beats(found.full()) is None

    def test_structure_is_measured_not_quoted(self) -> None:
        found, _ = made(mixers=("local", "gru"), lengths=(64, 128))
        local, gru = found.found[1:]
        assert local.path == [(16, 4), (32, 8)]
        assert gru.path == [(16, 15), (32, 31)]
        assert local.sequential[0][1] == local.sequential[1][1]

    def test_too_much_memory_is_foreseen(self) -> None:
        found, said = made(mixers=("plain",), lengths=(1024, 2048, 4096))
        wanted = "after 2,048: 4,096 tokens would take about 1.6 GB of memory, and 1.0 GB is the limit"
        assert found.found[1].stopped == wanted
        assert f"  plain stopped {wanted}" in said
        assert {"n": 4096} not in [{"n": q.get("n")} for q in Answers.asked[-2:]]
        assert f"plain stopped {wanted}" in found.render()

    def test_too_much_time_is_foreseen(self) -> None:
        found, _ = made(mixers=("local",), lengths=(1024, 1 << 22), minutes=0.2)
        stopped = found.found[0].stopped
        assert stopped is not None
        assert re.fullmatch(
            r"after 1,024: 4,194,304 tokens would take about 527765\.6 s, and \d+\.\d s are left for it",
            stopped,
        )

    def test_a_child_that_had_to_be_ended_is_named(self) -> None:
        found, _ = made(mixers=("local",), lengths=(3000, 6000))
        assert found.found[1].stopped == "before the first length: it took longer than 1 s"
        assert found.found[1].time is None
        assert "| local | –  " in found.render()

    def test_recurrence_is_compared_by_width(self) -> None:
        """Answers grow with n² for attention and with n for recurrence, whatever the width: they cross at n = 1."""
        found, _ = made(mixers=("lstm", "gru"), lengths=(64, 128), widths=(64,))
        assert [(f.name, len(f.points)) for f in found.by_width] == [
            ("fused of width 64", 7), ("lstm of width 64", 7), ("gru of width 64", 7),
        ]  # fmt: skip
        assert [q["shape"]["width"] for q in Answers.asked if "name" in q][-3:] == [64, 64, 64]
        lstm, gru = found.crossings()
        assert (lstm.faster_from, gru.faster_from) == (32, 32), "the shortest length that was measured"
        assert lstm.times[256] == lstm.time_when_cheaper == pytest.approx(1 / 256), "operations are equal at n = 2d"
        assert "fewer operations from n / d" in found.render()
        assert "Recurrence by width" in found.page()
        assert json.loads(json.dumps(found.plain()))["recurrence"][0]["cheaper_from"] == lstm.cheaper_from
        assert made(mixers=("local",), lengths=(64, 128))[0].crossings() == []

    def test_json_says_it_all(self) -> None:
        found, _ = made(mixers=("local",), lengths=(1024, 2048), threads=1)
        plain = json.loads(json.dumps(found.plain()))
        assert plain["machine"]["threads"] == 1
        assert plain["layer"] == {"width": 256, "heads": 4, "window": 512}
        row = plain["contenders"][1]
        assert (row["name"], row["theory"]["time"], row["quicker_from"], row["stopped"]) == ("local", 1, 1024, None)
        assert row["time"]["exponent"] == pytest.approx(1)
        assert row["path"] == {"16": 4, "32": 8}
        assert [point["n"] for point in row["points"]] == [1024, 2048]
        assert set(plain["shares"]) == {"training", "decoding"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(lengths=(512,)), "lengths should be two or more, each above one, such as 1024,2048,4096; got 512"),
        (dict(lengths=(1, 512)), "each above one, such as 1024,2048,4096; got 1,512"),
        (dict(widths=(64, 30)), "widths should be multiples of the 4 heads, such as 64,128; got 64,30"),
        (dict(minutes=0), "minutes and threads should be positive, got 0 and 0"),
        (dict(mixers=("fuzed",)), "no contender 'fuzed'; did you mean 'fused'?"),
    ],
)
def test_what_cannot_be_asked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        Settings(**{"minutes": 1.0, **settings})


def test_options_as_they_are_typed() -> None:
    assert parse_numbers("512,1_024", "--lengths") == (512, 1024)
    assert parse_names(["local,performer", "gru"]) == ("local", "performer", "gru")
    with pytest.raises(
        SpecError, match=re.escape("--widths should be whole numbers with commas, such as 64,128; got '1k'")
    ):
        parse_numbers("1k", "--widths")


@pytest.mark.parametrize(("name", "ratio"), [("rnn", 0), ("gru", 1), ("lstm", 2)])
def test_operations_cross_where_the_formula_says(name: str, ratio: int) -> None:
    """8d² + 4nd of attention against 4d², 12d² and 16d² of the recurrent layers, biases aside."""
    for width in (64, 256):
        n = find_cheaper(CONTENDERS[name], width)
        own, full = (count_operations(CONTENDERS[x], Shape(n, width)) for x in (name, "fused"))
        assert own < full
        if n > 1:
            assert count_operations(CONTENDERS["fused"], Shape(n - 1, width)) <= own
        assert n == pytest.approx(max(ratio * width, 1), abs=3)


def test_shares_add_up() -> None:
    found = measure_shares(Size(16, 1, 2, 11, 2, 4), rounds=1)
    for parts in found.values():
        assert parts["encoder"] + parts["decoder"] + parts["head"] == pytest.approx(1)
        assert min(parts.values()) > 0


def small() -> Study:
    points = [Point(n, 1e-6 * n, 2e-6 * n, 100 * n, 0, 3, 0.1) for n in (512, 1024, 2048, 4096)]
    found = [
        Found(CONTENDERS[name], points, [(16, 7), (32, 7)], [(16, 2), (32, 4)]) for name in ("fused", "local", "lstm")
    ]
    found[2].stopped = "after 4,096: <it took too long>"
    return Study(
        Settings(1.0), 2, found, {"training": {"encoder": 0.4, "decoder": 0.5, "head": 0.1, "seconds": 1.0}}, 65.0
    )


class TestFigures:
    def test_tables(self) -> None:
        assert figures.costs(small()).rows[1][:5] == ("local", "1.00 (1.00…1.00)", "1", "1.00 (1.00…1.00)", "1")
        assert figures.structure(small()).rows[1] == ("local", 7, "0.00", "0", 4, "1.00", "1")
        assert [row[0] for row in figures.races(small()).rows] == ["local", "lstm"]
        assert figures.races(small()).rows[0] == ("local", None, "4,096", "1", "1")
        assert figures.parts(small()).rows == (("training", "40 %", "50 %", "10 %"),)

    def test_what_was_not_counted_is_a_dash(self) -> None:
        made = small()
        made.found[1].points[:] = [dataclasses.replace(p, bytes=None) for p in made.found[1].points]
        assert made.found[1].memory is None
        assert figures.costs(made).rows[1][3::4] == (None, None)
        assert figures.races(made).rows[0][4] is None
        assert "<svg" in figures.report(made)

    def test_the_report_stands_alone_and_escapes(self) -> None:
        page = figures.report(small())
        assert "lstm stopped after 4,096: &lt;it took too long&gt;" in page
        assert page.count("<svg") == 6  # time and memory, for each group of contenders
        assert not re.search(r"(src|href)=\"(?!#|data:)", page)
        assert "<script" not in page
        assert "measured in 1 min 05 s" in page

    def test_figures_as_files(self, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        made = figures.draw(small(), tmp_path)
        assert [path.name for path in made] == ["time.png", "memory.png"]
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)

    def test_without_matplotlib_there_are_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        assert figures.draw(small(), tmp_path) == []
        assert "pip install '.[plots]'" in run_study.PLOTS


def test_the_window_is_that_of_the_paper() -> None:
    assert Shape(1).window == 512


def test_minutes_that_are_too_few_are_kept_and_said(quick: None) -> None:
    """It went on for minutes, and ended in an error of the library that draws."""
    with pytest.raises(
        SpecError, match=r"nothing was measured: 0\.0001 minutes are too few for \d+ layers .* more --minutes"
    ):
        made(minutes=0.0001)
    assert Answers.asked == [], "no process is started after the end"


def test_a_figure_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "time.png").write_bytes(b"the old one")
    with limited_file_size(1000), pytest.raises(CheckpointError, match=r"cannot write time\.png in .*File too large"):
        figures.draw(small(), tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"the old one"]


def test_a_figure_without_data_is_not_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = [
        Found(
            CONTENDERS["fused"], [Point(512, 1.0, 1.0, None, 0, 1, 2.0), Point(1024, 2.0, 2.0, None, 0, 1, 4.0)], [], []
        )
    ]
    drawn = figures.draw(Study(Settings(1.0), 1, found, {}, 1.0), tmp_path)
    assert [path.name for path in drawn] == ["time.png"]
