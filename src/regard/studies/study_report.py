"""The report of a study: for a terminal, as a page and as PNG.

A study says what it found as chapters of sentences, tables and charts; how they are shown is written once, here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from regard.files.storage import write_file
from regard.report.axis import Scale
from regard.report.chart import Series, line_chart
from regard.report.markup import Html, tag
from regard.report.page import Section, grid, notebook_frame, page
from regard.report.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis; a series of one point is a dot, and its band an error bar."""

    title: str
    series: Sequence[Series]
    x: str
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    wide: bool = False
    crossed: Collection[str] = ()
    """Series whose points are crosses, not dots."""
    mark: float | None = None
    """A place on the horizontal axis that is marked."""

    def html(self) -> Html:
        size = (760, 380) if self.wide else (460, 230)
        return line_chart(
            self.title, self.series, x=self.x, x_scale=self.x_scale, y_scale=self.y_scale, width=size[0], height=size[1]
        )


@dataclass(frozen=True)
class Chapter:
    """A part of a report: sentences, tables and charts in their order."""

    title: str
    parts: Sequence[str | Table | Chart]
    figure: str = ""
    """The name of the file for its charts."""
    page_only: bool = False
    """Not shown in a terminal."""

    @property
    def charts(self) -> list[Chart]:
        return [part for part in self.parts if isinstance(part, Chart)]

    @property
    def words(self) -> list[str | Table]:
        return [part for part in self.parts if not isinstance(part, Chart)]

    def section(self) -> Section:
        words = [part.html() if isinstance(part, Table) else tag("p", part) for part in self.words]
        charts = [grid([chart.html() for chart in self.charts])] if self.charts else []
        return Section(self.title, (*words, *charts))

    def render(self) -> str:
        return "\n".join(part.markdown() if isinstance(part, Table) else part for part in self.words).strip("\n")


@dataclass(frozen=True)
class StudyReport:
    """Report of a study."""

    title: str
    chapters: Sequence[Chapter]

    def render(self) -> str:
        """The tables and sentences, for a terminal."""
        return "\n\n".join(text for chapter in self.chapters if not chapter.page_only and (text := chapter.render()))

    def page(self) -> str:
        """The report as a self-contained page."""
        return page(self.title, [chapter.section() for chapter in self.chapters])

    def draw(self, folder: Path) -> list[Path]:
        """Write one PNG for each chapter with charts, if matplotlib is installed; returns their paths."""
        made = []
        for chapter in self.chapters:
            if chapter.charts and (path := draw_charts(chapter.charts, folder / f"{chapter.figure}.png")):
                made.append(path)
        return made


class Reporting:
    """The views of a result, all from its `report`."""

    def report(self) -> StudyReport:
        raise NotImplementedError

    def render(self) -> str:
        return self.report().render()

    def page(self) -> str:
        return self.report().page()

    def draw(self, folder: Path) -> list[Path]:
        return self.report().draw(folder)

    def _repr_html_(self) -> str:
        return notebook_frame(self.page())


def mean_cell(values: Sequence[float]) -> float | None:
    """The mean over seeds for a table; None if no seed has a value."""
    return round(sum(values) / len(values), 4) if values else None


class StudyResult(Protocol):
    """Result of a study: for programs, for a terminal, as a page and as figures."""

    def plain(self) -> dict[str, object]: ...
    def render(self) -> str: ...
    def page(self) -> str: ...
    def draw(self, folder: Path) -> list[Path]: ...


def draw_charts(charts: Sequence[Chart], path: Path) -> Path | None:
    """Draw charts side by side; None if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    wide = len(charts) == 1 and charts[0].wide
    figure = Figure(figsize=(7, 4.5) if wide else (5 * len(charts), 4), dpi=150, layout="constrained")
    for chart, axes in zip(charts, figure.subplots(1, len(charts), squeeze=False)[0], strict=True):
        for each in chart.series:
            marker = "x" if each.name in chart.crossed else "o" if len(each.points) <= 40 else ""
            (line,) = axes.plot(
                [x for x, _ in each.points], [y for _, y in each.points], marker=marker, markersize=3, label=each.name
            )
            if len(each.band) == 1:
                ((x, low, high),) = each.band
                axes.vlines([x], low, high, colors=line.get_color())
            elif each.band:
                axes.fill_between(*zip(*each.band, strict=True), alpha=0.2, color=line.get_color())
        if chart.mark is not None:
            axes.axvline(chart.mark, linestyle=":", color="gray")
        axes.set(xscale=chart.x_scale, yscale=chart.y_scale, xlabel=chart.x, ylabel=chart.title)
        axes.grid(alpha=0.3)
        if chart.series:
            axes.legend(fontsize="small")
    return write_figure(figure, path)


def write_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as a PNG file, whole or not at all."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    write_file(path, drawn.getvalue())
    return path
