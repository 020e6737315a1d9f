"""The results page: every file of `results/` as tables for people, with how and on what it was measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bench.headlines import HEADLINES, headline
from bench.provenance import date_commit, describe_changes
from bench.readme import stored

from regard.report.chart import Series, line_chart
from regard.report.page import notebook_frame
from regard.report.page import page as html_page

INTRO = """# Results

Every number here is read from `results/*.json` when this page is built. The command below each table measures it again.
Speed is given beside other libraries measured in the same run on the same machine, because absolute numbers depend on the
processor. Nothing here was measured on a GPU.

Each result says at which commit it was made, and whether files of the code under it (the bench and the packages that it
measures) have changed since: a change need not change a figure, but nobody has looked.

Commands name data under `../shared/data`, which is not part of the repository. Multi30k, CMUdict, SCAN, tinyshakespeare,
MNIST and CIFAR-10 are public; put them there or change the path. [Your own data](data.md) says what each task reads.
"""
CASE = re.compile(r"^(\d+)x(\d+) (.+)$")
"""`32x5 regard`: 32 sentences, a beam of 5, a system."""
WORDS = {
    "best tokens/s": "Tokens/s, best", "median": "Tokens/s, median", "regard is faster by": "Regard is faster by",
    "exact": "Exact match, %", "accuracy": "Accuracy, %", "validation accuracy": "Validation accuracy, %",
    "bleu": "BLEU", "chrf": "chrF", "minutes": "Minutes of training", "MB": "MB", "ms": "ms",
    "chosen": "Chosen by the program", "letter_accuracy": "Letters correct, %", "word_error": "Words wrong, %",
    "phone_error": "Phonemes wrong, %", "none": "No positions", "rouge_l": "ROUGE-L", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2",
    "lstm": "LSTM", "gru": "GRU", "gru-attention": "GRU with attention", "convs2s": "ConvS2S", "bytenet": "ByteNet",
}  # fmt: skip
"""Names of figures that need a unit or another spelling."""
WIDEST = 8
"""Columns of a table, at most."""
CHART_HEIGHT = 440
"""Pixels of a chart with its legend."""
PLAIN = "header { display: none } body { padding: 0 } main > figure { margin-top: 0 }"
"""A chart inside the page needs no title or margins of its own."""


def page() -> str:
    """The whole page."""
    found, lines = stored(), [INTRO]
    for section, rows in HEADLINES.items():
        lines += [f"## {section}", ""]
        for name in (name for name in rows if name in found):
            lines += _result(name, found[name])
    return "\n".join(lines)


def _result(name: str, result: Mapping[str, Any]) -> list[str]:
    title, figures = headline(name, result["figures"])
    lines = [f"### {title} {{#{name}}}", "", f"{_label(figures)}.", ""]
    shown = {key: value for key, value in result["figures"].items() if not key.endswith("∝ n^")}
    body = [*tables(without_curves(shown)), *charts(shown)]
    mark = "???+" if any(isinstance(value, Mapping) for value in result["figures"].values()) else "???"
    return [
        *lines,
        f'{mark} note "All figures"',
        "",
        *(f"    {line}".rstrip() for line in body),
        "",
        *_origin(name, result),
    ]


def without_curves(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that tables can show."""
    kept = {key: value for key, value in figures.items() if not _is_curve(value)}
    return {key: without_curves(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def charts(figures: Mapping[str, Any]) -> list[str]:
    """A chart for each curve that rows have: "BLEU by minute" is drawn for all rows together, minutes across."""
    rows = {key: value for key, value in figures.items() if isinstance(value, Mapping)}
    lines = []
    for curve in dict.fromkeys(key for row in rows.values() for key, value in row.items() if _is_curve(value)):
        what, _, along = curve.partition(" by ")
        drawn = [Series(_label(name), [(x, y) for x, y in row[curve]]) for name, row in rows.items() if curve in row]
        chart = line_chart(what, drawn, x=along, zero=True, width=720, height=360)
        frame = notebook_frame(html_page(curve, [], body=[chart], style=PLAIN), height=CHART_HEIGHT)
        lines += [" ".join(str(frame).split()), ""]
    return lines


def tables(figures: Mapping[str, Any]) -> list[str]:
    """Figures as Markdown: plain ones in one table, grids each in their own, sentences as lists, several lines as they are."""
    plain = {key: value for key, value in figures.items() if not isinstance(value, Mapping) and not _is_text(value)}
    nested = {key: value for key, value in figures.items() if isinstance(value, Mapping)}
    lines = _rows(("", ""), [[_label(key), number(value, key)] for key, value in plain.items()]) if plain else []
    if nested and all(_is_flat(value) for value in nested.values()) and _fits(nested):
        lines += _grid(nested)
    else:
        for key, value in nested.items():
            lines += [f"**{_label(key)}**", "", *tables(value)]
    for key, value in figures.items():
        if _is_prose(value):
            lines += [f"**{_label(key)}**", "", *(f"- {line}" for line in value), ""]
        elif _is_text(value):
            lines += [f"**{_label(key)}**", "", "```text", *value.splitlines(), "```", ""]
    return lines


def _fits(nested: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether one table can hold all rows, as they are or turned."""
    return min(len(nested), len({key for row in nested.values() for key in row})) <= WIDEST


def _grid(nested: Mapping[str, Mapping[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(key for row in nested.values() for key in row))
    if len(columns) > WIDEST:  # few rows with many figures each read better turned
        turned = {column: {key: row[column] for key, row in nested.items() if column in row} for column in columns}
        return _grid(turned)
    cases = [CASE.match(key) for key in nested]
    front = ("sentences", "beam", "system") if all(cases) else ("",)
    rows = []
    for (key, row), case in zip(nested.items(), cases, strict=True):
        first = list(case.groups()) if case and all(cases) else [_label(key)]
        rows.append([*first, *(number(row[c], c) if c in row else "" for c in columns)])
    return _rows((*front, *map(_label, columns)), rows)


def _rows(header: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    numeric = [all(re.match(r"^[-−]?[\d.,× %to]*$", row[i]) for row in rows) for i in range(len(header))]
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("--:" if right else "---" for right in numeric) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [*lines, ""]


def number(value: Any, key: str) -> str:
    """A figure with separators and, where its name tells, its unit."""
    if isinstance(value, list):
        between = " to " if key in ("seeds", "chains") and len(value) == 2 else ", "
        return between.join(number(item, "") for item in value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, str):
        return value.replace("\n", " ")
    if key.startswith("share of"):
        return f"{100 * value:.0f} %"
    if isinstance(value, float) and 0 < abs(value) < 5e-5:
        return f"{value:.1e}"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4f}".rstrip("0").rstrip(".")
    return f"{text}×" if "faster" in key or "times one" in key else text


def _label(key: str) -> str:
    """A name as the first words of a line."""
    if key in WORDS or not re.match(r"[a-z]+\b", key) or key.startswith(("torch.", "x-transformers")):
        return WORDS.get(key, key)
    return f"{key[0].upper()}{key[1:]}"


def _is_prose(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _is_text(value: Any) -> bool:
    """Whether a figure is no number: sentences, or a text of several lines such as a program."""
    return _is_prose(value) or (isinstance(value, str) and "\n" in value)


def _is_curve(value: Any) -> bool:
    """Whether a figure is a list of points."""
    return isinstance(value, list) and bool(value) and all(isinstance(p, list) and len(p) == 2 for p in value)


def _is_flat(value: Mapping[str, Any]) -> bool:
    return all(not isinstance(item, Mapping) and not _is_text(item) for item in value.values())


def _origin(name: str, result: Mapping[str, Any]) -> list[str]:
    facts = [result["machine"], f"torch {result['versions']['torch']}"]
    facts += [f"{key} {number(result[key], key)}" for key in ("threads", "seed", "seeds", "steps") if key in result]
    day = date_commit(result["commit"])
    facts.append(f"commit {result['commit']}{f' of {day}' if day else ''}")
    facts.append(describe_changes(name, result["command"], result["commit"]))
    return [f"`{result['command']}`<br>", f"<small>{'; '.join(facts)}; `results/{name}.json`</small>", ""]
