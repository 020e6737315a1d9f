"""The report of a training run, as one HTML page.

Each section is made from one part of the facts; sections without facts are left out.
"""

from __future__ import annotations

import math
import statistics
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from regard.report.chart import Series, line_chart
from regard.report.curve import Row, choose_scale, curve, finite, quantity, score_curves
from regard.report.heatmap import heatmap
from regard.report.markup import Html, tag
from regard.report.number import compact, duration, number
from regard.report.page import Section, figures, grid, page, pre
from regard.report.table import ABSENT, Cell, Table

EVENTS = 50
"""Maximum number of events listed; of more, only the count is given."""
VALIDATIONS = 8
"""Maximum number of validations whose samples are shown."""
MAPS = 4
"""Maximum number of validations whose attention is shown."""


@dataclass(frozen=True)
class RunFacts:
    """Facts for a report: plain data, as stored in the run folder."""

    name: str = "Training run"
    log: Sequence[Row] = ()
    """The objects of `log.jsonl`: events `start`, `train`, `valid`, `done` and others."""
    recipe: str = ""
    tree: str = ""
    examples: Sequence[Row] = ()
    """Each with `source`, `reference` and `output`, any of them optional; `equal` overrides `==`."""
    data: Row = field(default_factory=dict)
    """Statistics of the data; a mapping inside is a part of the corpus and gets its own column."""
    facts: Row = field(default_factory=dict)
    """`parameters`, `device`, `command`, `versions`, and more."""
    dropped: Sequence[Row] = ()
    """Rejected data: each with `corpus`, `reason`, `count`, `remark` and `examples`."""
    least: Collection[str] = ()
    """The scores where lower is better."""


def run_report(run: RunFacts) -> str:
    """The `report.html` of a run."""
    parts = [
        ("Curves", _curves(run.log)),
        ("Examples", _examples(run.examples)),
        ("Samples during training", _samples(run.log)),
        ("Attention during training", _maps(run.log)),
        ("Layers", _layers(run.log)),
        ("Events", _events(run.log)),
        ("Data", _data(run.data)),
        ("Left out", _rejections(run.dropped)),
        ("Architecture", [pre(run.tree)] if run.tree.strip() else []),
        ("Recipe", [pre(run.recipe)] if run.recipe.strip() else []),
        ("Environment", _environment(run.facts)),
    ]
    headline = _headline(run.log, run.facts, run.least)
    lead = [tag("p", _status(run.log), class_="lead")] + ([figures(headline)] if headline else [])
    return page(run.name, [Section(title, tuple(body)) for title, body in parts if body], lead=lead)


def _status(log: Sequence[Row]) -> str:
    """Tell whether the run is finished, unless it continued after that."""
    done = next((row for row in reversed(log) if row.get("event") in ("done", "train")), None)
    if done is None or done["event"] == "train":
        return "Not finished." if log else "Nothing logged yet."
    return f"Finished: {done['reason']}." if isinstance(done.get("reason"), str) else "Finished."


def _headline(log: Sequence[Row], facts: Row, least: Collection[str]) -> list[tuple[str, str, str]]:
    """The first figures of the page: what, how much, and a note."""
    found = []
    scores = score_curves(log)
    end = next((row for row in reversed(log) if row.get("event") == "done"), {})
    done = end.get("scores")
    if isinstance(done, Mapping) and done:
        name = next(iter(scores), next(iter(done)))  # the score that decides, where it is known
        value = done.get(name)
        note = ", ".join(["of the finished model", *_decoding(end)])
        found += [(f"Final {_words(name)}", number(quantity(value)), note)] if finite([value]) else []
    name, points = next(iter(scores.items()), ("validation loss", curve(log, "valid", "loss")))
    if real := [p for p in points if math.isfinite(p[1])]:
        lower = not scores or name in least
        step, best = min(real, key=lambda p: p[1] if lower else -p[1])
        how = _decoding(next((row for row in log if row.get("event") == "valid" and row.get("step") == step), {}))
        found.append((f"Best {_words(name)}", number(best), ", ".join([f"at step {number(step)}", *how])))
    if steps := finite(row.get("step") for row in log):
        found.append(("Steps", number(max(steps)), ""))
    if times := finite(row.get("seconds") for row in log):
        found.append(("Time", duration(times[-1]), ""))
    if rates := finite(y for _, y in curve(log, "train", "tokens_per_s")):
        found.append(("Tokens per second", compact(statistics.median(rates)), "median"))
    if parameters := finite([facts.get("parameters")]):
        found.append(("Parameters", compact(parameters[0]), number(parameters[0]) if parameters[0] >= 10_000 else ""))
    return found


def _curves(log: Sequence[Row]) -> list[Html]:
    """Loss across the page, everything else side by side below, all over the same steps."""
    span = (0.0, max(finite(row.get("step") for row in log), default=1.0))
    both = (Series("training", curve(log, "train", "loss")), Series("validation", curve(log, "valid", "loss")))
    loss = [s for s in both if s.points]
    found = []
    if loss:
        scale = choose_scale([p for s in loss for p in s.points])
        chart = line_chart("Loss", loss, x_span=span, y_scale=scale, width=960, height=300)
        found.append(tag("div", chart, class_="wide"))
    small = [
        line_chart(_title(name), [Series(name, points)], x_span=span, y_scale=choose_scale(points))
        for name, points in score_curves(log).items()
    ]
    if rate := curve(log, "train", "rate"):
        small.append(line_chart("Learning rate", [Series("learning rate", rate)], x_span=span, zero=True))
    if norm := curve(log, "train", "grad_norm"):
        scale = choose_scale(norm)
        small.append(line_chart("Gradient norm", [Series("gradient norm", norm)], x_span=span, y_scale=scale))
    if pace := curve(log, "train", "tokens_per_s"):
        small.append(line_chart("Tokens per second", [Series("tokens per second", pace)], x_span=span, zero=True))
    return [*found, grid(small)] if small else found


def _examples(examples: Sequence[Row]) -> list[Html]:
    """Outputs of the final model beside their references."""
    columns = [c for c in ("source", "reference", "output") if any(c in e for e in examples)]
    if not columns:
        return []
    equal = [_equal(e) for e in examples]
    rows = [
        tag("tr", *(_example_cell(e, c, same) for c in columns), tag("td", _verdict(same)))
        for e, same in zip(examples, equal, strict=True)
    ]
    head = tag("tr", *(tag("th", c, scope="col") for c in (*columns, "")))
    table = tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll examples")
    judged = [same for same in equal if same is not None]
    if not judged:
        return [table]
    return [tag("p", f"{sum(judged)} of these {len(judged)} outputs equal their reference.", class_="note"), table]


def _example_cell(example: Row, column: str, same: bool | None) -> Html:
    text = _text(example.get(column))
    differs = column == "output" and same is False and "reference" in example
    return tag("td", *(_mark_difference(text, _text(example["reference"])) if differs else [text]), dir="auto")


def _samples(log: Sequence[Row]) -> list[Html]:
    """Show how the outputs of a few inputs changed from validation to validation."""
    found = ((row, row.get("samples")) for row in log if row.get("event") == "valid")
    rows = [(row, samples) for row, samples in found if _are_rows(samples)]
    kept = {round(k * (len(rows) - 1) / (VALIDATIONS - 1)) for k in range(VALIDATIONS)} if rows else set()
    rows = [rows[i] for i in sorted(kept)]
    shown: list[tuple[Cell, ...]] = []
    for i in range(max((len(samples) for _, samples in rows), default=0)):
        for n, (row, sample) in enumerate((row, samples[i]) for row, samples in rows if i < len(samples)):
            source, reference, output = (_text(sample.get(k)) for k in ("source", "reference", "output"))
            names = (source, reference) if n == 0 else ("", "")
            shown.append((*names, quantity(row.get("step")), output))
    how = sorted({word for row, _ in rows for word in _decoding(row)})
    note = [tag("p", f"Decoding: {', '.join(how)}.", class_="note")] if how else []
    return [*note, Table(("source", "reference", "step", "output"), tuple(shown)).html()] if shown else []


def _maps(log: Sequence[Row]) -> list[Html]:
    """Show what a few examples attend to, from validation to validation."""
    found = ((row, row.get("attention")) for row in log if row.get("event") == "valid")
    rows = [(quantity(row.get("step")), maps) for row, maps in found if _are_maps(maps)]
    kept = sorted({round(k * (len(rows) - 1) / (MAPS - 1)) for k in range(MAPS)}) if rows else []
    out = []
    for i in range(max((len(maps) for _, maps in rows), default=0)):
        drawn = [
            heatmap(
                f"Step {number(step)}",
                [[value / 100 for value in line] for line in maps[i]["percent"]],
                rows=[_label(token) for token in maps[i]["rows"]],
                columns=[_label(token) for token in maps[i]["columns"]],
                low=0.0,
                high=1.0,
            )
            for step, maps in (rows[k] for k in kept)
            if i < len(maps)
        ]
        first = next(maps[i] for _, maps in rows if i < len(maps))
        out += [tag("p", f"{_text(first.get('source'))} ({_text(first.get('layer'))}, mean of its heads)", dir="auto")]
        out.append(grid(drawn))
    return out


def _are_rows(found: object) -> TypeGuard[Sequence[Row]]:
    """True if this is a list of examples: a log may be damaged."""
    return isinstance(found, list) and all(isinstance(each, dict) for each in found)


def _are_maps(found: object) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """True if these are maps: percentages with a label for each row and column."""
    return _are_rows(found) and all(map(_is_map, found))


def _is_map(found: Row) -> bool:
    rows, columns, percent = (found.get(key) for key in ("rows", "columns", "percent"))
    if not (isinstance(rows, list) and isinstance(columns, list) and isinstance(percent, list)):
        return False
    lines = [line for line in percent if isinstance(line, list) and len(line) == len(columns)]
    numbers = all(isinstance(value, int | float) and 0 <= value <= 100 for line in lines for value in line)
    return len(rows) == len(percent) == len(lines) and numbers


def _label(token: object) -> str:
    return _text(token).replace("▁", " ").strip() or "␣"


def _layers(log: Sequence[Row]) -> list[Html]:
    """Norms of gradients and updates by layer, over the steps before validations."""
    out = []
    for kind, title in (
        ("gradients", "Gradient norm by layer"),
        ("updates", "Update relative to the weights, by layer"),
    ):
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in log:
            layers = row.get("layers")
            found = layers.get(kind) if row.get("event") == "valid" and isinstance(layers, Mapping) else None
            for name, value in found.items() if isinstance(found, Mapping) else ():
                lines.setdefault(_text(name), []).append((quantity(row.get("step")), quantity(value)))
        if lines:
            series = [Series(name, points) for name, points in lines.items()]
            out.append(line_chart(title, series, y_scale="log", width=960, height=300))
    return [tag("div", chart, class_="wide") for chart in out]


def _decoding(row: Row) -> list[str]:
    """Return the decoding of the outputs of an event, if it has any."""
    decoding = row.get("decoding")
    return [decoding] if isinstance(decoding, str) and decoding else []


def _events(log: Sequence[Row]) -> list[Html]:
    """Other events: resumed, skipped a step, stopped."""
    rows = [row for row in log if row.get("event") not in ("start", "train", "valid", "done")]
    if not rows:
        return []
    shown: list[tuple[Cell, ...]] = []
    for row in rows[:EVENTS]:
        step = quantity(row.get("step"))
        rest = (f"{_words(k)}: {_text(v)}" for k, v in row.items() if k not in ("event", "step"))
        shown.append((step if math.isfinite(step) else None, _words(_text(row.get("event"))), ", ".join(rest)))
    more = len(rows) - EVENTS
    note = [tag("p", f"and {number(more)} more, all in log.jsonl", class_="note")] if more > 0 else []
    return [Table(("step", "event", "details"), tuple(shown)).html(), *note]


def _data(data: Row) -> list[Html]:
    """Statistics of the corpus: a column for each part of it, then lists, then what is true of all parts."""
    parts, rest = dict[str, dict[str, object]](), dict[str, object]()
    for name, value in data.items():
        if isinstance(value, Mapping):
            parts[name] = _flat(value)
        elif isinstance(value, Sequence) and value and all(isinstance(part, Mapping) for part in value):
            parts |= {name if len(value) == 1 else f"{name} {i}": _flat(part) for i, part in enumerate(value, 1)}
        else:
            rest[name] = value
    found = []
    lists = dict[str, Sequence[Row]]()
    for name, part in parts.items():
        for key, value in list(part.items()):
            if _is_records(value):
                lists[f"{_words(name)}: {_words(key)}"] = value
                del part[key]
    if parts:
        keys = dict.fromkeys(k for part in parts.values() for k in part)
        rows = tuple((_words(k), *(_cell(part.get(k)) for part in parts.values())) for k in keys)
        found.append(Table(("", *(_words(p) for p in parts)), rows).html())
    for title, records in lists.items():
        table = Table.of([{_words(k): _cell(v) for k, v in record.items()} for record in records])
        found += [tag("h3", title), table.html()]
    return [*found, _listing(rest)] if rest else found


def _is_records(value: object) -> TypeGuard[Sequence[Row]]:
    """True if a value is a list of objects, such as the longest texts."""
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _flat(part: Row, path: str = "") -> dict[str, object]:
    """The facts of a part and of its parts (`source`, `target`) in one mapping, without empty ones."""
    out: dict[str, object] = {}
    for name, value in part.items():
        if isinstance(value, Mapping):
            out |= _flat(value, f"{path}{name} ")
        elif value not in ([], (), "", None):
            out[f"{path}{name}"] = value
    return out


def _rejections(dropped: Sequence[Row]) -> list[Html]:
    """Rejected pairs by reason, with examples."""
    shown = []
    for row in dropped:
        examples = row.get("examples")
        examples = examples if examples and isinstance(examples, Sequence) else [""]
        cells = (_text(row.get("corpus")), _text(row.get("reason")), _text(row.get("remark")), _cell(row.get("count")))
        shown += [(*(cells if i == 0 else ("", "", "", "")), _text(e)) for i, e in enumerate(examples)]
    return [Table(("corpus", "reason", "", "pairs", "such as"), tuple(shown)).html()] if shown else []


def _environment(facts: Row) -> list[Html]:
    """The command that repeats this run, and the machine."""
    command, versions = facts.get("command"), facts.get("versions")
    rest = {k: v for k, v in facts.items() if k not in ("command", "versions")}
    rest |= versions if isinstance(versions, Mapping) else {}
    found = [pre(_text(command))] if command else []
    return [*found, _listing(rest)] if rest else found


def _listing(facts: Row) -> Html:
    """A table of names and values."""
    rows = [tag("tr", tag("th", _words(k), scope="row"), tag("td", _text(v), dir="auto")) for k, v in facts.items()]
    return tag("div", tag("table", tag("tbody", *rows)), class_="scroll")


def _equal(example: Row) -> bool | None:
    """True if the output equals the reference; None without a reference."""
    if "equal" in example:
        return bool(example["equal"])
    return bool(example["output"] == example["reference"]) if {"output", "reference"} <= example.keys() else None


def _verdict(equal: bool | None) -> Html:
    if equal is None:
        return Html()
    word, sign = ("equal", "✓") if equal else ("not equal", "✗")
    return tag("span", sign, class_="yes" if equal else "no", role="img", aria_label=word, title=word)


def _mark_difference(text: str, wanted: str) -> list[str]:
    """The text with the difference marked: everything between the common start and the common end."""
    start = _count_common(text, wanted)
    end = len(text) - _count_common(text[start:][::-1], wanted[start:][::-1])
    while 0 < start < len(text) and unicodedata.combining(
        text[start]
    ):  # keep a letter and its combining marks together
        start -= 1
    while end < len(text) and unicodedata.combining(text[end]):
        end += 1
    return [text[:start], tag("mark", text[start:end]) if start < end else "", text[end:]]


def _count_common(a: str, b: str) -> int:
    """The length of the common prefix of two texts."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _cell(value: object) -> Cell:
    return value if value is None or isinstance(value, (str, int, float)) else _text(value)


def _text(value: object) -> str:
    """A plain value for people to read."""
    match value:
        case None:
            return ABSENT
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return number(value)
        case list() | tuple():
            return ", ".join(map(_text, value))
        case dict():
            return ", ".join(f"{_words(str(key))} {_text(inner)}" for key, inner in value.items())
        case _:
            return str(value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _title(name: str) -> str:
    return _words(name)[:1].upper() + _words(name)[1:]
