"""Line charts as inline SVG, without scripts.

A value that cannot be drawn (not finite, or not positive on a logarithmic axis) interrupts its line and is marked with a
cross. Long series are thinned to what a screen can show; extremes are kept.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from regard.report.axis import Axis, Scale, axis, is_drawable
from regard.report.markup import Html, tag
from regard.report.number import compact, number

Point = tuple[float, float]

POINTS = 600
"""Maximum number of points drawn per series."""
DOTTED = 40
"""Series of at most this many points show each as a dot."""
CROSSES = 50
"""Maximum number of crosses drawn per series."""
STOPS = 120
"""Number of places along the horizontal axis where hovering shows the values."""
COLORS = 6
"""Colors in the style sheet; further series are dashed."""


@dataclass(frozen=True)
class Series:
    """A named line through points (x, y)."""

    name: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    """A shaded area around the line: x, and the values that bound it there."""


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x: str = "step",
    x_scale: Scale = "linear",
    x_span: tuple[float, float] | None = None,
    y_scale: Scale = "linear",
    zero: bool = False,
    width: int = 460,
    height: int = 230,
) -> Html:
    """A figure with one line for each series.

    The horizontal axis covers at least `x_span`, so that several charts can share it; with `zero` the vertical axis
    starts at zero.
    """
    lines = [_Line.of(s, i, x_scale, y_scale) for i, s in enumerate(series)]
    reach = [
        *(v for v in x_span or () if is_drawable(v, x_scale)),
        *(p[0] for line in lines for p in (*line.points, *line.lost)),
    ]
    across = axis(reach, scale=x_scale, count=max(3, width // 90), snug=True)
    heights = [y for line in lines for y in (*(p[1] for p in line.points), *(y for _, *ys in line.band for y in ys))]
    up = axis(heights, scale=y_scale, count=max(3, height // 50), zero=zero)
    frame = _Frame.around(across, up, width=width, height=height)
    drawing = [
        frame.draw(x),
        *(line.draw(frame) for line in lines),
        *_stops(lines, frame, x),
        *(line.cross(p, frame, x) for line in lines for p in line.lost[:: len(line.lost) // CROSSES + 1]),
    ]
    keys = [line.key(alone=len(lines) == 1) for line in lines]
    notes = [tag("span", "log scale", class_="note")] if y_scale == "log" else []
    spoken = f"{title} against {x}: {'; '.join(line.summary() for line in lines)}"
    return tag(
        "figure",
        tag("figcaption", tag("b", title), *keys, *notes),
        tag("svg", *drawing, viewBox=f"0 0 {width} {height}", role="img", aria_label=spoken),
        class_="chart",
    )


def decimate(points: Sequence[Point], limit: int = POINTS) -> list[Point]:
    """At most `limit` of the points: both ends, and the lowest and highest of equal stretches between them."""
    if len(points) <= limit:
        return list(points)
    inner, stretches = range(1, len(points) - 1), (limit - 2) // 2
    kept = {0, len(points) - 1}
    for k in range(stretches):
        stretch = inner[len(inner) * k // stretches : len(inner) * (k + 1) // stretches]
        kept.add(min(stretch, key=lambda i: points[i][1]))
        kept.add(max(stretch, key=lambda i: points[i][1]))
    return [points[i] for i in sorted(kept)]


def place(value: float) -> str:
    """A coordinate; a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class _Frame:
    """The rectangle that lines are drawn in, and the axes along its edges."""

    left: float
    top: float
    right: float
    bottom: float
    across: Axis
    up: Axis

    @classmethod
    def around(cls, across: Axis, up: Axis, *, width: int, height: int) -> _Frame:
        """A frame with space for its labels; most are equally wide, so that charts align on a page."""
        left = max(54.0, 14 + 6.6 * max(map(len, up.labels)))
        beyond = 3.3 * len(across.labels[-1])  # half of the last label, which may be at the very end
        return cls(left, 8, width - max(10, beyond), height - 38, across, up)

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * self.across.at(value)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * self.up.at(value)

    def draw(self, name: str) -> Html:
        """Grid lines at the ticks of the vertical axis, tick labels, and the name of the horizontal axis."""
        left, bottom, along = place(self.left), place(self.bottom), f"H{place(self.right)}"
        parts = []
        for value, label in zip(self.up.ticks, self.up.labels, strict=True):
            y = self.y(value)
            parts.append(tag("path", class_="rule", d=f"M{left} {place(y)}{along}"))
            parts.append(tag("text", label, class_="end", x=place(self.left - 8), y=place(y + 3.8)))
        parts.append(tag("path", class_="base", d=f"M{left} {bottom}{along}"))
        for value, label in zip(self.across.ticks, self.across.labels, strict=True):
            x = place(self.x(value))
            parts.append(tag("path", class_="tick", d=f"M{x} {bottom}v4"))
            parts.append(tag("text", label, class_="middle", x=x, y=place(self.bottom + 17)))
        middle = place((self.left + self.right) / 2)
        parts.append(tag("text", name, class_="middle name", x=middle, y=place(self.bottom + 33)))
        return tag("g", *parts, class_="axes")


@dataclass(frozen=True)
class _Line:
    """A series divided into the points that are drawn, from left to right, and those that cannot be drawn."""

    name: str
    color: str
    points: tuple[Point, ...]
    lost: tuple[Point, ...]
    band: tuple[tuple[float, float, float], ...] = ()

    @classmethod
    def of(cls, series: Series, i: int, x_scale: Scale, y_scale: Scale) -> _Line:
        points = sorted((p for p in series.points if is_drawable(p[0], x_scale)), key=lambda p: p[0])
        good = decimate([p for p in points if is_drawable(p[1], y_scale)])
        color = f"s{i % COLORS} dashed" if i >= COLORS else f"s{i}"
        lost = tuple(p for p in points if not is_drawable(p[1], y_scale))
        band = [b for b in series.band if is_drawable(b[0], x_scale) and all(is_drawable(y, y_scale) for y in b[1:])]
        return cls(series.name, color, tuple(good), lost, tuple(sorted(band)))

    def draw(self, frame: _Frame) -> Html:
        """A path through the points, interrupted where a point between two others cannot be drawn."""
        breaks = [p[0] for p in self.lost]
        runs: dict[int, list[Point]] = {}
        for point in self.points:
            runs.setdefault(bisect(breaks, point[0]), []).append(point)
        path = "".join(
            "M" + "L".join(f"{place(frame.x(x))} {place(frame.y(y))}" for x, y in run) for run in runs.values()
        )
        dots = [p for run in runs.values() for p in run if len(self.points) <= DOTTED or len(run) == 1]
        area = [tag("path", d=self._outline(frame), class_="band")] if len(self.band) > 1 else []
        return tag(
            "g", *area, tag("path", d=path), *(self.dot(p, frame, 2.2) for p in dots), class_=f"line {self.color}"
        )

    def _outline(self, frame: _Frame) -> str:
        """The band as a closed path: along its lower edge, and back along its upper one."""
        edge = [(x, low) for x, low, _ in self.band] + [(x, high) for x, _, high in reversed(self.band)]
        return "M" + "L".join(f"{place(frame.x(x))} {place(frame.y(y))}" for x, y in edge) + "Z"

    def dot(self, point: Point, frame: _Frame, radius: float) -> Html:
        return tag("circle", cx=place(frame.x(point[0])), cy=place(frame.y(point[1])), r=radius, class_=self.color)

    def cross(self, point: Point, frame: _Frame, x: str) -> Html:
        """A cross where a value cannot be drawn."""
        left, top = place(frame.x(point[0]) - 3), place(frame.bottom - 3)
        return tag("path", tag("title", self.tell(point, x)), class_="lost", d=f"M{left} {top}l6 6m0 -6l-6 6")

    def tell(self, point: Point, x: str) -> str:
        return f"{self.name}: {number(point[1])} ({x} {number(point[0])})"

    def key(self, *, alone: bool) -> Html:
        """The legend: color, name and last value; a single line shows only the value."""
        last = tag("span", compact(self.points[-1][1]) if self.points else "nothing to draw", class_="last")
        return tag(
            "span", *(() if alone else (tag("i", class_=self.color), tag("bdi", self.name), " ")), last, class_="key"
        )

    def summary(self) -> str:
        """A description of the line for screen readers."""
        ends = f"from {number(self.points[0][1])} to {number(self.points[-1][1])}" if self.points else "nothing to draw"
        return f"{self.name} {ends}"


def _stops(lines: Sequence[_Line], frame: _Frame, x: str) -> list[Html]:
    """Invisible strips, each with the values near it as a title, and dots that show while the pointer is there."""
    near: dict[int, dict[int, Point]] = {}
    for i, line in enumerate(lines):
        usual = median([frame.y(p[1]) for p in line.points] or [0.0])
        for point in line.points:
            stop = near.setdefault(round(frame.across.at(point[0]) * STOPS), {})
            stop[i] = max(stop.get(i, point), point, key=lambda p: abs(frame.y(p[1]) - usual))  # show the spike
    stops = [near[k] for k in sorted(near)]
    middles = [frame.x(next(iter(stop.values()))[0]) for stop in stops]
    edges = [frame.left, *((a + b) / 2 for a, b in pairwise(middles)), frame.right]
    top, height = place(frame.top), place(frame.bottom - frame.top)
    strips = []
    for stop, (left, right) in zip(stops, pairwise(edges), strict=False):
        title = tag("title", "\n".join(lines[i].tell(p, x) for i, p in stop.items()))
        area = tag("rect", x=place(left), y=top, width=place(right - left), height=height)
        strips.append(tag("g", title, area, *(lines[i].dot(p, frame, 4) for i, p in stop.items()), class_="stop"))
    return strips
