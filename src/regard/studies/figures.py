"""Tables, report and figures of the complexity study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from regard.report.chart import Series, line_chart
from regard.report.markup import Html, tag
from regard.report.number import duration
from regard.report.page import Section, grid, page
from regard.report.table import Cell, Table
from regard.studies.complexity import Found, Study
from regard.studies.contenders import FULL, Power
from regard.studies.growth import Fit, fit_exponent
from regard.studies.study_report import write_figure
from regard.studies.width_crossing import WidthCrossing


def costs(study: Study) -> Table:
    """Time and memory: measured and theoretical exponents, and the cost of the longest length."""
    return Table.of(_cost(found) for found in study.found)


def _cost(found: Found) -> dict[str, Cell]:
    theory, last = found.contender.theory, found.points[-1] if found.points else None
    return {
        "layer": found.contender.name,
        "time ∝ n^": _fit(found.time),
        "time in theory": _power(theory.time),
        "memory ∝ n^": _fit(found.memory),
        "memory in theory": _power(theory.memory),
        "longest": None if last is None else _tokens(last.n),
        "s per pass": None if last is None else f"{last.seconds:.3g}",
        "MB": None if last is None or last.bytes is None else f"{last.bytes / 2**20:,.0f}",
    }


def races(study: Study) -> Table:
    """Each relative to full attention: from which length it is faster, and its cost at the longest common length."""
    return Table.of(_race(study, found) for found in study.found if found is not study.full())


def _race(study: Study, found: Found) -> dict[str, Cell]:
    quicker, against = study.beats(found), study.against(found)
    n = max(against, default=0)
    time, size = against.get(n, (None, None))
    return {
        "layer": found.contender.name,
        "faster than full attention from": None if quicker is None else _tokens(quicker),
        "at": _tokens(n) if n else None,
        "of its time": None if time is None else f"{time:.3g}",
        "of its memory": None if size is None else f"{size:.3g}",
    }


def crossings(study: Study) -> Table:
    """Recurrent layers beside attention of the same width: from which n / d they take fewer operations, and less time."""
    return Table.of(_cross(each) for each in study.crossings())


def _cross(each: WidthCrossing) -> dict[str, Cell]:
    longest = max(each.times, default=0)
    when = each.time_when_cheaper
    return {
        "layer": each.layer,
        "width d": each.width,
        "fewer operations from n / d": f"{each.cheaper_from / each.width:.2g}",
        "times the time of attention there": None if when is None else f"{when:.3g}",
        "faster from n / d": None if each.faster_from is None else f"{each.faster_from / each.width:.2g}",
        "longest n / d": f"{longest / each.width:g}" if longest else None,
        "times the time of attention at the longest": f"{each.times[longest]:.3g}" if longest else None,
    }


def structure(study: Study) -> Table:
    """Sequential operations and path lengths, at the longest traced length."""
    return Table.of(
        {
            "layer": found.contender.name,
            "sequential operations": _last(found.sequential),
            "they ∝ n^": _growth(found.sequential),
            "they in theory": _power(found.contender.theory.sequential),
            "longest path": _last(found.path),
            "it ∝ n^": _growth(found.path),
            "it in theory": _power(found.contender.theory.path),
        }
        for found in study.found
    )


def parts(study: Study) -> Table:
    """Time shares of encoder, decoder and head."""
    return Table.of(
        {"time of a Transformer in": name}
        | {part: f"{100 * share:.0f} %" for part, share in shares.items() if part != "seconds"}
        for name, shares in study.shares.items()
    )


def render_tables(study: Study) -> str:
    """All tables for a terminal, and the contenders that were stopped."""
    traced = study.found[0].sequential[-1][0]
    lines = [
        costs(study).markdown(),
        races(study).markdown(),
        *([crossings(study).markdown()] if study.crossings() else []),
        f"at {traced} tokens, with windows of 8:\n",
        structure(study).markdown(),
        parts(study).markdown(),
    ]
    lines += [f"{f.name} stopped {f.stopped}" for f in (*study.found, *study.by_width) if f.stopped]
    return "\n".join(lines).rstrip()


def report(study: Study) -> str:
    """The report as a self-contained page."""
    shape, longest = study.settings.shape, max((p.n for f in study.found for p in f.points), default=0)
    lead = tag(
        "p",
        f"One layer of width {shape.width} with {shape.heads} heads and windows of {shape.window}, forward and backward "
        f"over one row of up to {longest:,} tokens, on {study.threads} threads; measured in {duration(study.seconds)}. "
        "Time is the fastest pass, memory the most bytes torch held at once. Exponents are those of the last three "
        "doublings, with their 95 % intervals.",
    )
    groups = dict.fromkeys(f.contender.group for f in study.found)
    stopped = [tag("li", f"{f.name} stopped {f.stopped}") for f in (*study.found, *study.by_width) if f.stopped]
    sections = [
        Section("Time and memory", (costs(study).html(), *([tag("ul", *stopped)] if stopped else []))),
        Section("Time", (grid([_chart(study, g, "seconds per pass", _seconds) for g in groups]),)),
        Section("Memory", (grid([_chart(study, g, "bytes", _bytes) for g in groups]),)),
        Section("Beside full attention", (races(study).html(),)),
        *(
            [Section("Recurrence by width", (_explain_crossings(), _cross_chart(study), crossings(study).html()))]
            if study.crossings()
            else []
        ),
        Section("Depth and distance", (_explained(study), structure(study).html())),
        Section("Encoder and decoder", (parts(study).html(),)),
        Section(
            "Who took part",
            (Table.of({"layer": f.contender.name, "is": f.contender.about} for f in study.found).html(),),
        ),
    ]
    return page("Complexity, measured", sections, lead=[lead])


def draw(study: Study, folder: Path) -> list[Path]:
    """Write figures as files, if matplotlib is installed; returns their paths."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return []
    made = []
    for name, label, of in (("time", "seconds, forward and backward", _seconds), ("memory", "bytes", _bytes)):
        if not any(of(found) for found in study.found):  # nothing to draw, and an axis cannot be made for it
            continue
        figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
        axes = figure.subplots()
        for i, found in enumerate(study.found):
            lengths, values = [n for n, _ in of(found)], [y for _, y in of(found)]
            axes.plot(lengths, values, ("-", "--")[i // 10], marker="o", markersize=3, label=found.contender.name)
        axes.set(yscale="log", xlabel="tokens", ylabel=label)
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small", ncols=2)
        made.append(write_figure(figure, folder / f"{name}.png"))
    return made


def _chart(study: Study, group: str, what: str, of: Callable[[Found], list[tuple[int, float]]]) -> Html:
    shown = [f for f in study.found if f.contender.group == group or f.contender.name == FULL]
    series = [Series(f.contender.name, of(f)) for f in shown if f.points]
    return line_chart(f"{group}: {what}", series, x="tokens", x_scale="log", y_scale="log")


def _explain_crossings() -> Html:
    return tag(
        "p",
        "A recurrent layer takes a multiple of d² operations per token, attention 4nd more than its projections: the longer "
        "the text, the cheaper recurrence is. But its steps wait for one another. The figure shows its time relative to "
        "that of attention of the same width; below 1, it is faster.",
    )


def _cross_chart(study: Study) -> Html:
    lines = [
        Series(f"{each.layer}, d = {each.width}", [(n / each.width, ratio) for n, ratio in sorted(each.times.items())])
        for each in study.crossings()
    ]
    return line_chart("time relative to attention", lines, x="n / d", x_scale="log", y_scale="log")


def _explained(study: Study) -> Html:
    return tag(
        "p",
        f"At {study.found[0].sequential[-1][0]} tokens, with windows of 8. Sequential operations: the longest chain of "
        "calls in the traced graph of the plain way to compute it. Longest path: layers (or steps of a recurrent cell) "
        "until gradients show every output feeling every input; a memory is cut from the graph, so there it has none.",
    )


def _seconds(found: Found) -> list[tuple[int, float]]:
    return found.seconds


def _bytes(found: Found) -> list[tuple[int, float]]:
    return found.bytes


def _fit(fit: Fit | None) -> str | None:
    if fit is None:
        return None
    between = "" if fit.low is None or fit.high is None else f" ({fit.low:.2f}…{fit.high:.2f})"
    return f"{fit.exponent:.2f}{between}"


def _growth(points: list[tuple[int, int]]) -> str | None:
    fit = fit_exponent([(n, float(y)) for n, y in points])
    return None if fit is None else f"{fit.exponent:.2f}"


def _last(points: list[tuple[int, int]]) -> int | None:
    return points[-1][1] if points else None


def _power(power: Power) -> str | None:
    return None if power is None else power if isinstance(power, str) else f"{power:g}"


def _tokens(n: float) -> str:
    return f"{n:,.0f}"
