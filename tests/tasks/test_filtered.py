"""Filters and bad pairs from the command to the report: what is dropped is told, logged and shown, and never of validation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.data.filters import Length
from regard.errors import DataError, SpecError
from regard.files.folder import Folder
from regard.recipes.merge import parse_yaml
from regard.tasks.embed import Embed, EmbedData
from regard.tasks.translate import Translate, TranslateData
from regard.training import finetune, train
from regard.training.request import TrainRequest
from regard.training.train import run_training
from tests.training.small import events, tiny

ROWS = [f"{'abcdefgh'[n % 8] * (2 + n % 3)} {n:03}\t{n:03} {'stuvwxyz'[n % 8]}" for n in range(40)]
DATA = {"tokenizer": "chars", "metrics": ["exact"], "max_length": 64}
GREEK = " ".join("αβγδεζηθικλμνξοπρστυφχψω")


def put(path: Path, *more: bytes) -> str:
    path.write_bytes("".join(f"{row}\n" for row in ROWS).encode() + b"".join(line + b"\n" for line in more))
    return str(path)


def test_a_run_tells_logs_and_shows_what_it_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = put(tmp_path / "x.tsv", b"\xff\tb", b"same\tSame", ROWS[3].encode(), b"a b c d\te", b"a\t")
    filters = [{"kind": "length", "max": 3}, "identity", "duplicates"]
    recipe = {"task": "translate", "data": {**DATA, "filters": filters}}
    order = tiny(tmp_path / "run", recipe, (corpus,), data__on_bad="drop", train__steps=4)
    run_training(dataclasses.replace(order, quiet=False))
    told = capsys.readouterr().err
    for line in (
        f"1 dropped: not UTF-8, such as {corpus}, line 41: not UTF-8 at byte ",
        f"1 dropped: an empty side, such as {corpus}, line 45: the target is empty",
        "1 dropped: length, max 3, such as line 44: a b c d ||| e",
        "1 dropped: identity, such as line 42: same ||| Same",
        f"1 dropped: duplicates, such as line 43: {ROWS[3].replace(chr(9), ' ||| ')}",
    ):
        assert line in told
    start = next(event for event in events(tmp_path / "run") if event["event"] == "start")
    assert [(row["corpus"], row["reason"], row["count"]) for row in start["dropped"]] == [
        ("x.tsv", "not UTF-8", 1),
        ("x.tsv", "an empty side", 1),
        ("x.tsv", "length, max 3", 1),
        ("x.tsv", "identity", 1),
        ("x.tsv", "duplicates", 1),
    ]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Left out" in page and "line 42: same ||| Same" in page
    kept = parse_yaml((tmp_path / "run" / "recipe.yaml").read_text(), "recipe")["data"]
    assert [each["kind"] for each in kept["filters"]] == ["length", "identity", "duplicates"]


def read(tmp_path: Path, kind: Any = Translate, valid: str | None = None, **settings: Any) -> Any:
    corpus = put(tmp_path / "x.tsv", b"same\tsame")
    data = {"train": [{"paths": [corpus]}], "valid": [{"paths": [valid]}] if valid else [], **settings}
    return kind.read(kind.Settings.parse(data), 1)


def test_without_filters_nothing_is_dropped_but_told(tmp_path: Path) -> None:
    raw = read(tmp_path, valid=put(tmp_path / "y.tsv"))
    assert (len(raw.train[0]), raw.dropped) == (41, [])
    assert any("the standard filters would drop" in line and "identity" in line for line in raw.messages)
    raw = read(tmp_path, filters=["identity"])
    assert not any("the standard filters" in line for line in raw.messages)


@pytest.mark.parametrize("kind", [Translate, Embed])
def test_pairs_to_be_judged_by_are_not_filtered(tmp_path: Path, kind: Any) -> None:
    raw = read(tmp_path, kind, valid=put(tmp_path / "y.tsv", b"same\tsame"), filters=["identity"])
    assert (len(raw.train[0]), len(raw.valid[0])) == (40, 41)
    assert [row["reason"] for row in raw.dropped] == ["identity"]
    assert any(line.startswith("  1 dropped: identity") for line in raw.messages)


@pytest.mark.parametrize("kind", [Translate, Embed])
def test_bad_pairs_of_all_corpora_are_dropped_if_the_data_part_says_so(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(DataError, match=r"y\.tsv, line 41: the source is empty; fix it, or set on_bad: drop"):
        read(tmp_path, kind, valid=put(tmp_path / "y.tsv", b"\tb"))
    raw = read(tmp_path, kind, valid=str(tmp_path / "y.tsv"), on_bad="drop")
    assert (len(raw.valid[0]), raw.dropped[0]["corpus"]) == (40, "y.tsv")


def test_a_model_is_judged_by_its_own_corpus_as_that_was_read_and_by_others_in_full(tmp_path: Path) -> None:
    own, other = put(tmp_path / "x.tsv", b"\tb"), put(tmp_path / "y.tsv", b"\tb")
    settings = TranslateData.parse({"train": [{"paths": [own]}], "on_bad": "drop", "filters": ["identity"]})
    assert [len(pairs) for pairs in Translate.read_test(settings, [own])] == [40]
    with pytest.raises(DataError, match=r"y\.tsv, line 41: the source is empty"):
        Translate.read_test(settings, [other])


def test_when_filters_leave_nothing_they_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"x\.tsv contains no pairs: 41 dropped: length, max 1, unit characters, such as line"
    ):
        read(tmp_path, filters=[Length(1, unit="characters").plain()])


@pytest.mark.parametrize("learned", ["x", "xy", "yx"])
def test_swapped_validation_files_are_refused_unless_the_model_goes_both_ways(tmp_path: Path, learned: str) -> None:
    latin = [
        f"{a}{b} {b}{a} word{n}" for n, (a, b) in enumerate(zip("abcdefghijkl" * 2, "mnopqrstuvwx" * 2, strict=True))
    ]
    greek = [f"{GREEK} {n}" for n in range(24)]
    for name, (one, other) in {"x": (latin, greek), "y": (greek, latin)}.items():
        rows = (f"{a}\t{b}\n" for a, b in zip(one, other, strict=True))
        (tmp_path / f"{name}.tsv").write_text("".join(rows))
    data = TranslateData.parse(
        {
            part: [
                {"paths": [str(tmp_path / f"{name}.tsv")], "prefix": f"{name}: ", "on_bad": "drop"} for name in names
            ]
            for part, names in (("train", learned), ("valid", "y"))
        }
    )
    if learned == "x":
        with pytest.raises(
            DataError, match=r"y\.tsv.*: source and target are swapped: .*; name the files in the other order"
        ):
            Translate.read(data, 1)
    else:
        assert not any("swapped" in line for line in Translate.read(data, 1).messages)


def test_pairs_that_were_held_out_cannot_be_swapped() -> None:
    """Numbers and their reverse: sources of validation occur among the targets of training."""
    problem = {"kind": "algorithm", "problem": "reverse", "base": 10, "min_digits": 1, "max_digits": 5}
    data = TranslateData.parse({"generate": {**problem, "count": 50_000, "valid": 300, "seed": 1}})
    assert any(report["swapped"] for report in Translate.read(data, 1).statistics["valid"])


def test_on_bad_of_the_command_line_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[TrainRequest] = []
    monkeypatch.setattr(train, "run_training", lambda order: orders.append(order) or Path("there"))
    for words in (["--on-bad", "drop"], []):
        assert CliRunner().invoke(app, ["train", "translate", "a", "b", *words]).exit_code == 0
    assert [order.set for order in orders] == [{"data.on_bad": "drop"}, {}]
    assert orders[0].command == "regard train translate a b --set data.on_bad=drop"


def test_what_to_do_about_bad_pairs_is_one_of_two() -> None:
    for kind in (TranslateData, EmbedData):
        with pytest.raises(SpecError, match="on_bad: input should be 'error' or 'drop', got 'skip'"):
            kind.parse({"on_bad": "skip"})


def test_filters_belong_to_the_data_and_do_not_come_with_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TranslateData(filters=(Length(),), on_bad="drop", max_length=9).plain()
    monkeypatch.setattr(finetune, "read_config", lambda _: {"task": "translate", "settings": settings, "decode": {}})
    under, over = finetune.inherit_settings(Folder(Path(), {}), "translate", TranslateData)
    assert under["data"]["max_length"] == over["data"]["max_length"] == 9
    assert not {"filters", "on_bad"} & (under["data"].keys() | over["data"].keys())
