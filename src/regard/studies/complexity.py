"""Growth of time and memory of mixers with the length.

The table that textbooks quote, measured on this machine for every mixer and for recurrent and convolutional layers: time and
memory of a layer forward and backward by length, the fitted exponent beside that of the papers, sequential operations, maximum
path length, and the length from which it is faster than full attention. Recurrent layers are measured at several widths, too:
from which n / d they take fewer operations than attention, and from which less time (`width_crossing`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from regard.errors import SpecError
from regard.machine import free_memory, machine, versions
from regard.report.page import notebook_frame
from regard.studies.contenders import CONTENDERS, FULL, Contender, Power, Shape, select_contenders
from regard.studies.grid import Grid
from regard.studies.growth import Fit, extrapolate, find_crossing, fit_exponent
from regard.studies.path_length import path_length
from regard.studies.sequential_depth import depth
from regard.studies.study_options import StudyOptions
from regard.studies.time_shares import measure_shares
from regard.studies.width_crossing import RECURRENT, WIDTHS, WidthCrossing, cross, list_lengths
from regard.studies.worker import Child, Stopped

LENGTHS = tuple(512 << i for i in range(7))
SMALL = tuple(Shape(n, width=16, heads=2, window=8) for n in (16, 32, 64, 128))
"""Shapes for tracing and gradients; windows are small relative to the length."""
START = 60.0
"""Seconds until a child must be ready."""
MINUTES = 9.0
"""About how long it takes if nothing else is said."""
SPARE = 0.5
"""The share of free memory that a contender may use."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study; no `mixers` means all, and 0 `threads` one per core."""

    minutes: float
    mixers: tuple[str, ...] = ()
    lengths: tuple[int, ...] = LENGTHS
    threads: int = 0
    shape: Shape = Shape(0)
    widths: tuple[int, ...] = WIDTHS
    """At which recurrent layers are compared with attention, too."""

    def __post_init__(self) -> None:
        select_contenders(self.mixers)
        if len(set(self.lengths)) < 2 or min(self.lengths) < 2:
            raise SpecError(f"lengths should be two or more, each above one, such as 1024,2048,4096; got {_list(self)}")
        if any(width < 2 or width % self.shape.heads for width in self.widths):
            given = ",".join(map(str, self.widths))
            raise SpecError(f"widths should be multiples of the {self.shape.heads} heads, such as 64,128; got {given}")
        if self.minutes <= 0 or self.threads < 0:
            raise SpecError(f"minutes and threads should be positive, got {self.minutes} and {self.threads}")


@dataclasses.dataclass(frozen=True)
class Point:
    """A layer at one length: seconds of the fastest pass, peak bytes, growth of the process.

    `bytes` is None if they were not counted; `least` is the time that a single measurement took.
    """

    n: int
    forward: float
    backward: float
    bytes: int | None
    grown: int
    passes: int
    least: float

    @property
    def seconds(self) -> float:
        return self.forward + self.backward


@dataclasses.dataclass
class Found:
    """The results of one contender."""

    contender: Contender
    points: list[Point]
    sequential: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    path: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    stopped: str | None = None
    width: int | None = None
    """The width of the layer where it is not that of the study."""

    @property
    def name(self) -> str:
        return self.contender.name if self.width is None else f"{self.contender.name} of width {self.width}"

    @property
    def seconds(self) -> list[tuple[int, float]]:
        return [(p.n, p.seconds) for p in self.points]

    @property
    def bytes(self) -> list[tuple[int, float]]:
        return [(p.n, float(p.bytes)) for p in self.points if p.bytes is not None]

    @property
    def time(self) -> Fit | None:
        return fit_exponent(self.seconds)

    @property
    def memory(self) -> Fit | None:
        return fit_exponent(self.bytes)


@dataclasses.dataclass(frozen=True)
class Study:
    """All results, and the settings they were measured with."""

    settings: Settings
    threads: int
    found: list[Found]
    shares: dict[str, dict[str, float]]
    seconds: float
    by_width: list[Found] = dataclasses.field(default_factory=list)
    """Full attention and the recurrent layers at each width."""

    def render(self) -> str:
        """The tables for a terminal."""
        from regard.studies.figures import render_tables

        return render_tables(self)

    def page(self) -> str:
        """The results as a self-contained page."""
        from regard.studies.figures import report

        return report(self)

    def draw(self, folder: Path) -> list[Path]:
        """Write figures as files, if matplotlib is installed."""
        from regard.studies.figures import draw

        return draw(self, folder)

    def _repr_html_(self) -> str:
        return notebook_frame(self.page())

    def full(self) -> Found:
        return next(f for f in self.found if f.contender.name == FULL)

    def beats(self, found: Found) -> float | None:
        """The length from which it is faster than full attention; None if it never is."""
        return None if found is self.full() else find_crossing(found.seconds, self.full().seconds)

    def against(self, found: Found) -> dict[int, tuple[float, float | None]]:
        """Its time and memory relative to full attention, at every length that both were measured at."""
        full, sizes = {p.n: p for p in self.full().points}, dict(self.full().bytes)
        return {
            p.n: (p.seconds / full[p.n].seconds, p.bytes / sizes[p.n] if p.bytes and p.n in sizes else None)
            for p in found.points
            if p.n in full
        }

    def crossings(self) -> list[WidthCrossing]:
        """The recurrent layers beside attention, by width."""
        full = {found.width: found.seconds for found in self.by_width if found.contender.name == FULL}
        return [
            cross(found.contender.name, found.width, found.seconds, full[found.width])
            for found in self.by_width
            if found.contender.name != FULL and found.width is not None and found.points
        ]

    def plain(self) -> dict[str, object]:
        """All results, ready for JSON."""
        here = machine()
        return {
            "study": "complexity",
            "machine": {"processor": here.processor, "cores": here.cores, "threads": self.threads},
            "versions": versions(),
            "layer": {name: value for name, value in dataclasses.asdict(self.settings.shape).items() if name != "n"},
            "seconds": round(self.seconds, 1),
            "contenders": [self._row(found) for found in self.found],
            "recurrence": [
                dataclasses.asdict(each) | {"time_when_cheaper": each.time_when_cheaper} for each in self.crossings()
            ],
            "shares": self.shares,
        }

    def _row(self, found: Found) -> dict[str, object]:
        fits = {name: fit and dataclasses.asdict(fit) for name, fit in (("time", found.time), ("memory", found.memory))}
        return {
            "name": found.contender.name,
            "about": found.contender.about,
            "theory": dataclasses.asdict(found.contender.theory),
            **fits,
            "sequential": dict(found.sequential),
            "path": dict(found.path),
            "quicker_from": self.beats(found),
            "against_full": {n: {"time": time, "memory": size} for n, (time, size) in self.against(found).items()},
            "stopped": found.stopped,
            "points": [dataclasses.asdict(p) | {"seconds": p.seconds} for p in found.points],
        }


def study(settings: Settings, say: Callable[[str], None] = lambda _: None) -> Study:
    """Measure everything; `say` is called with progress messages."""
    began, asked = time.monotonic(), select_contenders(settings.mixers)
    end = began + 60 * settings.minutes
    threads = settings.threads or machine().cores
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        say("operations that wait for one another, and layers between two tokens")
        found = []
        for contender in asked:
            found.append(Found(contender, [], *_trace(contender)))
            if time.monotonic() > end:
                raise _measured_nothing(settings, len(asked))
        say("encoder and decoder of a small Transformer")
        parts = measure_shares()
    finally:
        torch.set_num_threads(before)
    by_width = _list_by_width(settings, asked)
    for i, one in enumerate([*found, *by_width]):
        left = end - time.monotonic()
        if left <= 0:
            one.stopped = f"before the first length: the {settings.minutes:g} minutes are over"
            continue
        count = len(found) + len(by_width)
        say(f"{i + 1} of {count}: {one.name}, {one.contender.about}; {left:.0f} s left")
        _measure(one, settings, threads, max(left / (count - i), 1.0), end, say)
    if time.monotonic() > end and not any(one.points for one in found):
        raise _measured_nothing(settings, len(found))
    return Study(settings, threads, found, parts, time.monotonic() - began, by_width)


def _list_by_width(settings: Settings, asked: Sequence[Contender]) -> list[Found]:
    """Full attention and the recurrent layers among those asked for, at each width; nothing if there are none."""
    recurrent = [contender for contender in asked if contender.name in RECURRENT]
    return [
        Found(contender, [], width=width)
        for width in settings.widths
        for contender in ([CONTENDERS[FULL], *recurrent] if recurrent else ())
    ]


def run(
    grid: Grid,
    recipes: Sequence[str],
    options: StudyOptions,
    *,
    mixers: Sequence[str] = (),
    lengths: Sequence[int] = LENGTHS,
    threads: int = 0,
    widths: Sequence[int] = WIDTHS,
) -> Study:
    """Measure every mixer, or only `mixers`, in about `options.minutes`; recurrent layers at these `widths`, too.

    With 0 `threads`, torch uses all cores.
    """
    if recipes:
        raise SpecError(f"the study of complexity takes no recipes, got {', '.join(recipes)}")
    options.allow("complexity", "minutes")
    minutes = MINUTES if options.minutes is None else options.minutes
    return study(Settings(minutes, tuple(mixers), tuple(lengths), threads, widths=tuple(widths)), grid.say)


def _measured_nothing(settings: Settings, count: int) -> SpecError:
    return SpecError(
        f"nothing was measured: {settings.minutes:g} minutes are too few for {count} layers on this machine; give more "
        "--minutes, or fewer --mixers"
    )


def _trace(contender: Contender) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Sequential operations and maximum path lengths, by n."""
    depths, paths = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for shape in SMALL:
            depths.append((shape.n, depth(contender.plain(shape), torch.randn(1, shape.n, shape.width))))
            if (hop := contender.hop) is not None:
                x = torch.randn(shape.n, shape.width, dtype=torch.float64)
                length = path_length(lambda i: hop(shape, i), x, causal=contender.causal, most=shape.n)  # noqa: B023
                paths += [] if length is None else [(shape.n, length)]
    return depths, paths


def _measure(
    found: Found, settings: Settings, threads: int, seconds: float, last: float, say: Callable[[str], None]
) -> None:
    """Measure time and memory at every length, shortest first, until its seconds, the `last` moment or a limit is over."""
    limit, shape = int(SPARE * free_memory()), settings.shape
    shape = shape if found.width is None else dataclasses.replace(shape, width=found.width)
    lengths = settings.lengths if found.width is None else list_lengths(found.width)
    with Child("regard.studies.measure", limit) as child:
        try:
            child.ask(
                {"name": found.contender.name, "shape": dataclasses.asdict(shape), "threads": threads},
                _until(last, START),
            )
            end = min(time.monotonic() + seconds, last)
            for n in sorted(set(lengths)):
                left = end - time.monotonic()
                if reason := _exceeds_limits(found, n, left, limit):
                    raise Stopped(reason)
                answer = child.ask({"n": n, "seconds": seconds / 12}, _until(last, left if found.points else seconds))
                forward, backward = min(answer["passes"], key=sum)
                size, passes = answer["bytes"], len(answer["passes"])
                point = Point(n, forward, backward, size, answer["grown"], passes, answer["least"])
                found.points.append(point)
                say(f"  {n:>6,} tokens: {1e3 * point.seconds:,.1f} ms{_and(size)}")
        except Stopped as stopped:
            reached = f"after {found.points[-1].n:,}" if found.points else "before the first length"
            found.stopped = f"{reached}: {stopped}"
            say(f"  {found.name} stopped {found.stopped}")


def _until(last: float, seconds: float) -> float:
    """So many seconds, but not beyond the last moment; at least one, which every answer may take."""
    return max(min(seconds, last - time.monotonic()), 1.0)


def _exceeds_limits(found: Found, n: int, left: float, limit: int) -> str | None:
    """Tell why `n` tokens would be too many, extrapolated from the lengths measured so far; None if they are not."""
    theory = found.contender.theory
    seconds = extrapolate([(p.n, p.least) for p in found.points], n, _power(theory.time))
    size = extrapolate(found.bytes, n, _power(theory.memory))
    if limit and size is not None and size > limit:
        return f"{n:,} tokens would take about {size / 2**30:.1f} GB of memory, and {limit / 2**30:.1f} GB is the limit"
    if seconds is not None and seconds > left:
        return f"{n:,} tokens would take about {seconds:.1f} s, and {max(left, 0):.1f} s are left for it"
    return None


def _and(size: int | None) -> str:
    return "" if size is None else f", {size / 2**20:,.1f} MB"


def _power(theory: Power) -> float:
    return theory if isinstance(theory, (int, float)) else 1.0


def _list(settings: Settings) -> str:
    return ",".join(map(str, settings.lengths)) or "none"


def parse_names(words: Sequence[str]) -> tuple[str, ...]:
    """Parse `local,performer` and repeated options."""
    return tuple(name for word in words for name in word.split(",") if name)
