"""Reach of gradients, by kind of layer.

Two layers of each kind, as they are initialized, read a random sequence. The size of the gradient that reaches an input at
distance k shows whether it vanishes (recurrent layers: by a factor per step) or stays (attention: one step whatever the
distance).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import SpecError
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import BodySpec, Stack
from regard.nn.blocks.gated_convolutions import GatedConvolutions
from regard.nn.blocks.wiring import Bare, PreNorm
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MixerSpec, Site
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers import GRU, LSTM, RNN, Full, Local, Performer, XLMemory
from regard.nn.positions.relative import Distance
from regard.report.chart import Series
from regard.report.table import Cell as TableCell
from regard.report.table import Table
from regard.spec import Plain
from regard.studies.grid import Cell, CellResult, Grid
from regard.studies.jobs import Outcome
from regard.studies.study_options import StudyOptions
from regard.studies.study_report import Chapter, Chart, Reporting, StudyReport

RECURRENT: dict[str, MixerSpec] = {"RNN": RNN(), "GRU": GRU(), "LSTM": LSTM()}
"""Plain stacks of layers, as they were used: no norm, no residual."""
ATTENTION: dict[str, MixerSpec] = {
    "Transformer": Full(4),
    "Transformer-XL": XLMemory(4, memory_length=16, position=Distance()),
    "Performer": Performer(4),
    "window of 8": Local(4, reach=8),
}
"""Pre-norm blocks with a feed-forward layer."""
CONVOLUTIONS = {"ConvS2S": 3}
"""Gated convolutions with this kernel."""
LAYERS = (*RECURRENT, *ATTENTION, *CONVOLUTIONS)
ROWS, DEPTH = 8, 2
SMALLEST = 1e-12
"""Gradients below this, relative to the largest, count as none."""


def build_layers(name: str, width: int) -> BodySpec:
    """The layers of a contender."""
    if name in RECURRENT:
        return Stack(Block(mix=RECURRENT[name]), depth=DEPTH, causal=True, wiring=Bare())
    if name in ATTENTION:
        block = Block(mix=ATTENTION[name], feed=FeedForward(2 * width))
        return Stack(block, depth=DEPTH, causal=True, wiring=PreNorm())
    if name in CONVOLUTIONS:
        return GatedConvolutions((width,) * DEPTH, (CONVOLUTIONS[name],) * DEPTH)
    raise SpecError(f"no layers {name!r} in this study; there is {', '.join(LAYERS)}")


def fill_unset(body: torch.nn.Module, width: int) -> None:
    """Draw what torch leaves unset, such as biases of positions."""
    for parameter in body.parameters():
        if not torch.isfinite(parameter).all() or parameter.abs().max() > 1e3:
            torch.nn.init.normal_(parameter, std=width**-0.5)


def run_cell(settings: Plain) -> list[float]:
    """The mean size of the gradient that reaches an input at distance 0, 1, …, n − 1 from the last output."""
    n, width = settings["n"], settings["width"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings["seed"])
        body = build_layers(settings["layers"], width).build(Site("decoder", width, n))
        fill_unset(body, width)
        x = torch.randn(ROWS, n, width, requires_grad=True)
        y, _ = body(x, Context(Coords.span(n)))
        direction = torch.randn(ROWS, width)
        (gradient,) = torch.autograd.grad((y[:, -1] * direction).sum(), x)
    return [float(size) for size in gradient.double().norm(dim=-1).mean(0).flip(0)]


def fit_factor(sizes: Sequence[float]) -> float:
    """The factor by which gradients change per step of distance, fitted to their logarithms beyond the first step."""
    top = max(sizes)
    points = [(k, np.log(size)) for k, size in enumerate(sizes) if k >= 1 and size > SMALLEST * top]
    if len(points) < 2:
        return 0.0
    k, logs = np.array(points).T
    return float(np.exp(np.polyfit(k, logs, 1)[0]))


def run_job(settings: Plain, work: Path) -> Outcome:
    """The job of one cell."""
    sizes = run_cell(settings)
    return Outcome({"sizes": sizes, "summary": f"× {fit_factor(sizes):.3g} per step"}, {})


@dataclasses.dataclass(frozen=True)
class GradientResult(Reporting):
    """Gradient sizes by distance for every contender, one row per seed."""

    n: int
    found: Mapping[str, Sequence[CellResult]]
    recalled: Mapping[str, Mapping[int, Sequence[float]]] = dataclasses.field(default_factory=dict)
    """Shares of letters that were recalled in the copy-memory task, by layers and delay, one per seed."""

    def sizes(self, name: str) -> NDArray[np.float64]:
        """Sizes relative to distance 0, geometric mean over seeds."""
        rows = np.array([cell.result["sizes"] for cell in self.found[name]])
        return np.asarray(np.exp(np.log(np.maximum(rows / rows[:, :1], SMALLEST)).mean(0)), np.float64)

    def table(self) -> Table:
        rows = []
        for name, cells in self.found.items():
            factors, sizes = [fit_factor(cell.result["sizes"]) for cell in cells], self.sizes(name)
            row: dict[str, TableCell] = {"layers": name, "factor per step": round(float(np.mean(factors)), 4)}
            row |= {f"at {k}": f"{sizes[k]:.2g}" for k in (1, 4, self.n // 4, self.n // 2, self.n - 1)}
            rows.append(row)
        return Table.of(rows)

    def plain(self) -> dict[str, object]:
        return {
            "study": "gradients",
            "n": self.n,
            "layers": {
                name: {
                    "factor_per_step": [fit_factor(cell.result["sizes"]) for cell in cells],
                    "relative_size": self.sizes(name).tolist(),
                }
                for name, cells in self.found.items()
            },
            "recalled": {name: {str(k): list(v) for k, v in row.items()} for name, row in self.recalled.items()},
        }

    def report(self) -> StudyReport:
        head = "size of the gradient that reaches an input, relative to that of the last one, by distance:\n"
        series = [Series(name, list(enumerate(map(float, self.sizes(name))))) for name in self.found]
        chart = Chart("relative size of the gradient", series, "distance", y_scale="log", wide=True)
        chapters = [Chapter("By distance", [head, self.table(), chart], "gradients")]
        if self.recalled:
            rows = [
                {"layers": name} | {f"delay {delay}": f"{np.mean(shares):.0%}" for delay, shares in row.items()}
                for name, row in self.recalled.items()
            ]
            lead = "letters recalled after a delay, when trained for it (the copy-memory task):\n"
            chapters.append(Chapter("Copy memory", [lead, Table.of(rows)]))
        return StudyReport("How far gradients reach", chapters)


def run(
    grid: Grid,
    recipes: Sequence[str],
    options: StudyOptions,
    *,
    n: int = 64,
    width: int = 64,
    only: Sequence[str] = (),
    delays: Sequence[int] = (),
    steps: int = 400,
) -> GradientResult:
    """Measure gradients over `n` tokens, as layers are initialized; with `delays`, also train the copy-memory task."""
    if recipes:
        raise SpecError(f"the study of gradients takes no recipes, got {', '.join(recipes)}")
    options.allow("gradients", "seeds")
    seeds = options.seeds_for()
    if n < 8 or width % 4:
        raise SpecError(f"n should be at least 8 and width a multiple of 4, got {n} and {width}")
    names = list(only) or list(LAYERS)
    for name in names:
        build_layers(name, width)
    cells = {
        name: [
            Cell(f"{name}, seed {s}", "gradients", {"layers": name, "n": n, "width": width, "seed": s})
            for s in range(1, seeds + 1)
        ]
        for name in names
    }
    found = {each.cell.key: each for each in grid.run([cell for own in cells.values() for cell in own])}
    memory = {
        name: {
            delay: [
                Cell(
                    f"{name}, delay {delay}, seed {s}", "copy_memory",
                    {"layers": name, "delay": delay, "width": width, "seed": s, "steps": steps},
                )
                for s in range(1, seeds + 1)
            ]
            for delay in delays
        }
        for name in (names if delays else ())
    }  # fmt: skip
    tasks = [cell for row in memory.values() for own in row.values() for cell in own]
    found |= {each.cell.key: each for each in grid.run(tasks)} if tasks else {}
    recalled = {
        name: {delay: [float(found[c.key].result["recalled"]) for c in own] for delay, own in row.items()}
        for name, row in memory.items()
    }
    return GradientResult(n, {name: [found[cell.key] for cell in own] for name, own in cells.items()}, recalled)
