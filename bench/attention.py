"""Attention against length, and a model against its size: time and memory of forward and backward. `python -m bench.attention`.

plain     the whole matrix of scores            fused   torch's scaled_dot_product_attention
flash     our tiles, which also take dropout    window  each token sees the 512 before it

Causal, 8 heads of 64, one row; only attention is timed, its linear maps left out.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from bench.entry import Mode, parse
from bench.race import Answers, race, serve
from bench.results import folder, write
from regard.families import gpt
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MixerSpec, Site
from regard.nn.mixers import Flash, Full, Local
from regard.report.chart import Series, line_chart
from regard.report.page import Section, grid, page
from regard.report.table import Table

HEADS, WIDTH, REACH = 8, 512, 512
LENGTHS, SMOKE_LENGTHS = (1024, 2048, 4096, 8192, 16384), (32, 64)
MOST = {"plain": 4096}
"""Beyond, the matrix of scores takes gigabytes."""
KINDS: dict[str, MixerSpec] = {
    "plain": Full(HEADS),
    "fused": Full(HEADS),
    "flash": Flash(HEADS),
    "window": Local(HEADS, REACH),
}
WIDTHS, SMOKE_WIDTHS = (128, 256, 512, 768), (128,)
ROWS, LENGTH, DEPTH = 4, 256, 4
"""Of the models that are timed against their size."""


def attention(name: str) -> Callable[[int], None]:
    """Forward and backward over n tokens; asking for the weights makes the plain path run."""
    mixer = KINDS[name].build(Site("mix", WIDTH, max(LENGTHS), causal=True, heads=HEADS, head_width=WIDTH // HEADS))
    mixer.q = mixer.k = mixer.v = mixer.out = nn.Identity()

    def run(n: int) -> None:
        x = torch.randn(1, n, WIDTH, requires_grad=True)
        tape = Tape("*.weights") if name == "plain" else Tape()
        y, _ = mixer(x, Context(Coords.span(n), tape=tape))
        y.sum().backward()

    return run


def model(width: int) -> None:
    """Forward and backward of a whole decoder of this width."""
    net = gpt.spec(width=width, depth=DEPTH, heads=width // 64, hidden=4 * width, vocab=1000, dropout=0.0).build(seed=1)
    length = min(SMOKE_LENGTHS) if Mode.smoke else LENGTH
    ids = torch.randint(1000, (ROWS, length))
    net.loss(net(ids, Coords.span(length)), ids)[0].backward()


def work(name: str) -> None:
    run = model if name == "model" else attention(name)

    def turn(case: str) -> dict[str, float]:
        n = int(case)
        if n > MOST.get(name, n) or (n in WIDTHS) != (name == "model"):
            return {}
        if n <= 2048:
            run(n)  # the first call of a size sets things up
        before = _memory("VmRSS", forget=True)
        began = time.perf_counter()
        run(n)
        return {"ms": 1000 * (time.perf_counter() - began), "mb": _memory("VmHWM") - before}

    serve(turn)


def _memory(name: str, *, forget: bool = False) -> float:
    """What the kernel says of this process, in MB; `forget` gives back what is free and begins a new peak."""
    if forget:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def parameters(width: int) -> float:
    """Weights in the blocks of a model of this width."""
    return 12.0 * DEPTH * width**2


def best(found: dict[str, Answers], name: str, case: int, key: str) -> float | None:
    """The least time, the most memory."""
    values = [a[key] for a in found.get(name, []) if a["case"] == str(case) and key in a]
    return (max if key == "mb" else min)(values, default=None)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--longest", type=int, default=max(LENGTHS))
    arguments.add_argument("--worker")
    said = parse(arguments)
    if said.worker:
        work(said.worker)
        return
    lengths = SMOKE_LENGTHS if said.smoke else [n for n in LENGTHS if n <= said.longest]
    widths, rounds, words = (SMOKE_WIDTHS, 1, ["--smoke"]) if said.smoke else (WIDTHS, said.rounds, [])
    cases = [str(n) for n in (*lengths, *widths)]
    found = race({name: ["bench.attention", *words, "--worker", name] for name in (*KINDS, "model")}, rounds, cases)
    shown = [(name, n, best(found, name, n, "ms"), best(found, name, n, "mb")) for name in KINDS for n in lengths]
    sizes = [(w, parameters(w), best(found, "model", w, "ms"), best(found, "model", w, "mb")) for w in widths]
    rows = [(n, *(_cell(t, m) for name in KINDS for k, l, t, m in shown if (k, l) == (name, n))) for n in lengths]
    print(Table(("tokens: ms (MB)", *KINDS), tuple(rows)).markdown())
    print(Table(("width", "weights", "ms", "MB"), tuple((w, *map(_round, rest)) for w, *rest in sizes)).markdown())
    if said.longest < max(LENGTHS):
        return
    figures = {f"{name} {n}": {"ms": _round(t), "MB": _round(m)} for name, n, t, m in shown if t is not None}
    figures |= {f"model of width {w}": {"ms": _round(t), "MB": _round(m)} for w, _, t, m in sizes}
    title, threads = "Attention against length, a model against its size", torch.get_num_threads()
    path = write("bench-attention", title=title, figures=figures, threads=threads)
    drawn = folder() / "bench-attention.html"
    drawn.write_text(figure(shown, sizes), encoding="utf-8")
    print(path, drawn, file=sys.stderr)


def figure(
    shown: list[tuple[str, int, float | None, float | None]], sizes: list[tuple[int, float, float | None, float | None]]
) -> str:
    """Growth with length and with size, on logarithmic axes: a slope of one is linear, of two quadratic."""

    def lines(column: int) -> list[Series]:
        return [
            Series(name, [(row[1], row[column]) for row in shown if row[0] == name and row[column]])  # type: ignore[misc]
            for name in KINDS
        ]

    def line(column: int) -> list[Series]:
        return [Series("model", [(row[1], row[column]) for row in sizes if row[column]])]  # type: ignore[misc]

    charts = [
        line_chart(title, series, x=x, x_scale="log", y_scale="log")
        for title, series, x in (
            ("attention, ms", lines(2), "tokens"), ("attention, MB", lines(3), "tokens"),
            ("model, ms", line(2), "weights"), ("model, MB", line(3), "weights"),
        )
    ]  # fmt: skip
    return page("Growth with length and with size", [Section("Forward and backward", (grid(charts),))])


def _round(value: float | None) -> int | None:
    return None if value is None else round(value)


def _cell(ms: float | None, mb: float | None) -> str:
    return "–" if ms is None or mb is None else f"{ms:.0f} ({mb:.0f})"


if __name__ == "__main__":
    main()
