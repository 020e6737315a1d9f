"""Properties of layers that need no training.

What papers say of layers as such: variances, symmetries, gradients at initialization, how far information goes, operations.
Each property is a function of a seed; the study runs all of them in seconds, and the page of claims reads the figures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import SpecError, UnknownName
from regard.model.cost import cost
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.wiring import Bare, NormOnly, PostNorm, PreNorm, ResidualOnly, WiringSpec
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MixerSpec, Site
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers import LSTM, Full, Local, Performer, XLMemory
from regard.nn.positions.position import PositionSpec, Rotary, Sinusoidal
from regard.nn.positions.relative import Distance
from regard.report.table import Table
from regard.spec import Plain
from regard.studies.contenders import CONTENDERS, MixerLayer, Shape
from regard.studies.grid import Cell, CellResult, Grid
from regard.studies.jobs import Outcome
from regard.studies.path_length import path_length
from regard.studies.study_options import StudyOptions
from regard.studies.study_report import Chapter, Reporting, StudyReport

Figures = dict[str, float]
WIDTH, HEADS, N = 64, 4, 16


def _settle(module: nn.Module, gain: float = 1.0) -> nn.Module:
    """Weights as a model would initialize them: maps of variance `gain`² / inputs, norms one, biases zero."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" in name:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            elif parameter.dim() > 1:
                parameter.normal_(std=gain * parameter.shape[-1] ** -0.5)
            else:
                parameter.zero_()
    return module


def _stack(mix: MixerSpec, depth: int, wiring: WiringSpec, *, feed: bool = True, causal: bool = False) -> nn.Module:
    block = Block(mix=mix, feed=FeedForward(4 * WIDTH) if feed else None)
    made = Stack(block, depth=depth, causal=causal, wiring=wiring).build(Site("encoder", WIDTH, 4 * N))
    return _settle(made)


def _run(body: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = body(x, Context(Coords.span(x.shape[1])))[0]
    return y


def score_variance() -> Figures:
    """Variance of q·k for independent numbers of variance one, with and without the division by √d_k."""
    out: Figures = {}
    for e in (16, 64, 256):
        products = (torch.randn(20_000, e) * torch.randn(20_000, e)).sum(-1)
        out |= {f"d_k {e}": float(products.var()), f"d_k {e}, divided": float((products * e**-0.5).var())}
    return out


def saturation() -> Figures:
    """The largest of 64 attention weights at d_k = 256, and the size of the softmax's derivative, by scale."""
    q, k = torch.randn(500, 256), torch.randn(64, 256)
    out: Figures = {}
    for name, scale in (("plain", 1.0), ("divided", 256**-0.5)):
        weights = (q @ k.T * scale).softmax(-1)
        out |= {f"largest weight, {name}": float(weights.max(-1).values.mean())}
        out |= {f"derivative, {name}": float((weights * (1 - weights)).sum(-1).mean())}
    return out


def order() -> Figures:
    """Change of outputs, relative to their size, if tokens are permuted and the outputs are permuted back."""
    out, ids, moved = {}, torch.randint(50, (4, N)), torch.randperm(N)
    codes: dict[str, PositionSpec | None] = {"without positions": None, "sinusoidal": Sinusoidal()}
    for name, position in codes.items():
        body = Stack(Block(mix=Full(HEADS), feed=FeedForward(WIDTH)), depth=2)
        net = ModelSpec(WIDTH, N, Tokens(50, position, scaled=True), encoder=body).build().eval()
        with torch.no_grad():
            a, b = net(ids, Coords.span(N)), net(ids[:, moved], Coords.span(N))
        out[name] = float((a[:, moved] - b).norm() / a.norm())
    return out


@torch.no_grad()
def causal_order() -> Figures:
    """Change of the last output of a causal model without positions if the first two tokens change places."""
    x, out = torch.randn(8, N, WIDTH), {}
    swapped = x[:, [1, 0, *range(2, N)]]
    for depth in (1, 2):
        body = _stack(Full(HEADS), depth, PreNorm(), causal=True)
        a, b = (_run(body, each)[:, -1] for each in (x, swapped))
        out[f"{depth} layers" if depth > 1 else "1 layer"] = float((a - b).norm() / a.norm())
    return out


@torch.no_grad()
def relative_scores() -> Figures:
    """Change of q·k, relative to its size, if both positions move by 40: rotary and sinusoidal positions."""
    q, k = torch.randn(2, 1, 1, N, WIDTH, dtype=torch.float64)
    code = Rotary().build(Site("position", WIDTH, 64, heads=1, head_width=WIDTH)).double()
    near, far = (Coords.span(N, start) for start in (0, 40))
    a, b = (code.rotate(q, code.table(at)) @ code.rotate(k, code.table(at)).mT for at in (near, far))
    sines = Sinusoidal().build(Site("position", WIDTH, 64)).double()
    c, d = (sines.embed(q[0], at) @ sines.embed(k[0], at).mT for at in (near, far))
    return {"rotary": float((a - b).norm() / a.norm()), "sinusoidal": float((c - d).norm() / c.norm())}


def shifted_sinusoids() -> Figures:
    """Error of the best linear map from the code of each of 256 positions to that of 5 further, relative."""
    site, at = Site("position", WIDTH, 256), Coords.span(256)
    sines = Sinusoidal().build(site).double().embed(torch.zeros(1, 256, WIDTH).double(), at)[0]
    out = {}
    for name, table in {"sinusoidal": sines, "random": torch.randn(256, WIDTH).double()}.items():
        fitted = torch.linalg.lstsq(table[:-5], table[5:], driver="gelsd").solution  # slow sines are nearly alike
        out[name] = float((table[:-5] @ fitted - table[5:]).norm() / table[5:].norm())
    return out


def _block_gradients(wiring: WiringSpec, depth: int) -> list[float]:
    """The gradient of each block's second feed-forward map, for a random direction of the output."""
    body = _stack(Full(HEADS), depth, wiring)
    y = _run(body, torch.randn(8, N, WIDTH))
    maps = [
        part.weight for name, part in body.named_modules() if name.endswith("feed.down") and isinstance(part, nn.Linear)
    ]
    return [float(grad.norm()) for grad in torch.autograd.grad((y * torch.randn_like(y)).sum(), maps)]


def norm_gradients() -> Figures:
    """Gradient of the last block of 16 in units of that of the last block of 4, by the place of the norm."""
    out = {}
    for name, wiring in {"post": PostNorm(), "pre": PreNorm()}.items():
        deep, flat = (_block_gradients(wiring, depth)[-1] for depth in (16, 4))
        out[name] = deep / flat
    return out


def residual_gradients() -> Figures:
    """Gradients of the first of 24 blocks in units of the last one's, with and without residual connections."""
    out = {}
    for name, wiring in {"post-norm": PostNorm(), "pre-norm": PreNorm(), "norm without residual": NormOnly()}.items():
        found = _block_gradients(wiring, 24)
        out[name] = found[0] / found[-1]
    return out


def rank_collapse() -> Figures:
    """The share of the stream in which tokens differ, after 12 layers of attention alone and with residual connections."""
    x, out = torch.randn(8, N, WIDTH), {}
    for name, wiring in {"attention alone": Bare(), "with residual": ResidualOnly()}.items():
        with torch.no_grad():
            y = _run(_stack(Full(HEADS), 12, wiring, feed=False), x)
        out[name] = float((y - y.mean(1, keepdim=True)).norm() / y.norm())
    return out


@torch.no_grad()
def segments() -> Figures:
    """Dependence of outputs of a second segment on the first one, with Transformer-XL's memory and without."""
    site = Site("decoder", WIDTH, 2 * N, causal=True)
    mixer = XLMemory(HEADS, memory_length=N, position=Distance()).build(site)
    _settle(mixer)
    first, other, second = torch.randn(3, 2, N, WIDTH)
    out = {}
    for name in ("with memory", "without"):
        found = []
        for begin in (first, other):
            state = mixer.start(2, N)
            _, state = mixer(begin, Context(Coords.span(N)), state)
            start = state if name == "with memory" else mixer.start(2, N)
            found.append(mixer(second, Context(Coords.span(N, N)), start)[0])
        out[name] = float((found[0] - found[1]).norm() / found[0].norm())
    return out


def window_reach() -> Figures:
    """Number of tokens back on which the last output of layers with a window of 4 depends."""
    out = {}
    for depth in (1, 2, 4):
        x = torch.randn(1, 4 * N, WIDTH, requires_grad=True)
        y = _run(_stack(Local(HEADS, reach=4), depth, PreNorm(), causal=True), x)
        (grad,) = torch.autograd.grad(y[0, -1].square().sum(), x)
        out[f"{depth} layers" if depth > 1 else "1 layer"] = float(4 * N - 1 - int((grad[0] != 0).any(-1).nonzero()[0]))
    return out


def random_features() -> Figures:
    """Error of random-feature attention against softmax attention, relative, by the number of features."""
    x = torch.randn(8, N, WIDTH) * 0.7
    full = MixerLayer(Full(HEADS), Shape(N, WIDTH, HEADS))
    out = {}
    for count in (16, 64, 256, 1024):
        performer = MixerLayer(Performer(HEADS, features=count), Shape(N, WIDTH, HEADS))
        performer.load_state_dict(full.state_dict(), strict=False)
        with torch.no_grad():
            a, b = full(x), performer(x)
        out[f"{count} features"] = float((a - b).norm() / a.norm())
    return out


def shared_keys() -> Figures:
    """Numbers kept per token while decoding, with a key head for each of 8 heads, for every 4 of them, and one for all."""
    site = Site("decoder", WIDTH, N, causal=True)
    return {f"{kv} key heads": Full(8, kv_heads=kv).build(site).state_numbers(N) / N for kv in (8, 2, 1)}


def operations() -> Figures:
    """Training FLOPs per token and parameter of a decoder of 12 layers and width 768, and where an LSTM becomes cheaper."""
    feed = FeedForward(4 * 768, "gelu")
    body = Stack(Block(mix=Full(12), feed=feed), depth=12, causal=True, wiring=PreNorm())
    with torch.device("meta"):
        found = cost(ModelSpec(768, 1024, Tokens(50_257), decoder=body).build(), 128)
        width = 256
        lstm = LSTM().build(Site("mix", width, 1, causal=True)).flops(1, 0)
        full = Full(HEADS).build(Site("mix", width, 1))
        crossing = next(n for n in range(1, 100 * width) if full.flops(n, n) > lstm)
    return {
        "FLOPs per token and parameter": 3 * found.flops / found.parameters,
        "LSTM cheaper above n / d": crossing / width,
    }


def paths() -> Figures:
    """Layers (or steps of a recurrent cell) until every output depends on every input of 16 and of 64 tokens."""
    out = {}
    for name in ("plain", "lstm", "conv", "dilated"):
        for n in (16, 64):
            shape, hop = Shape(n, width=16, heads=2, window=8), CONTENDERS[name].hop
            assert hop is not None
            x = torch.randn(n, 16, dtype=torch.float64)
            length = path_length(lambda i: hop(shape, i), x, causal=CONTENDERS[name].causal, most=n)  # noqa: B023
            out[f"{name}, {n} tokens"] = math.nan if length is None else float(length)
    return out


def averaged_heads() -> Figures:
    """Entropy (nats) of the attention of single heads, and of their average, for sharp heads that look elsewhere."""
    q, k = torch.randn(2, 8, HEADS, N, WIDTH // HEADS) * 2.0
    weights = (q @ k.mT * (WIDTH // HEADS) ** -0.5).softmax(-1)

    def entropy(w: Tensor) -> float:
        return float(-(w * w.clamp(min=1e-12).log()).sum(-1).mean())

    return {"single heads": entropy(weights), "average of the heads": entropy(weights.mean(1))}


PROPERTIES: dict[str, Callable[[], Figures]] = {
    "variance of scores": score_variance,
    "saturation of the softmax": saturation,
    "order of tokens": order,
    "order in a causal model": causal_order,
    "scores by distance": relative_scores,
    "shifted sinusoids": shifted_sinusoids,
    "gradients by norm": norm_gradients,
    "gradients by residual": residual_gradients,
    "rank of attention": rank_collapse,
    "memory of segments": segments,
    "reach of a window": window_reach,
    "random features": random_features,
    "shared keys": shared_keys,
    "operations": operations,
    "paths": paths,
    "averaged heads": averaged_heads,
}


def run_job(settings: Plain, work: Path) -> Outcome:
    """The job of one cell."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings["seed"])
        return Outcome({"figures": PROPERTIES[settings["property"]]()}, {})


@dataclasses.dataclass(frozen=True)
class PropertyResult(Reporting):
    """The figures of every property, one per seed."""

    found: Mapping[str, Sequence[CellResult]]

    def figures(self, name: str) -> Figures:
        """Means over seeds; geometric ones would hide an exact zero."""
        rows: list[Figures] = [cell.result["figures"] for cell in self.found[name]]
        return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}

    def plain(self) -> dict[str, object]:
        return {"study": "properties", "properties": {name: self.figures(name) for name in self.found}}

    def report(self) -> StudyReport:
        rows = [
            {"property": name, "of": key, "measured": f"{value:.3g}"}
            for name in self.found
            for key, value in self.figures(name).items()
        ]
        notes = [f"{name}: {PROPERTIES[name].__doc__}" for name in self.found]
        return StudyReport("Properties of layers", [Chapter("Properties", [Table.of(rows), *notes])])


def run(grid: Grid, recipes: Sequence[str], options: StudyOptions, *, only: Sequence[str] = ()) -> PropertyResult:
    """Measure every property, or `only` these."""
    if recipes:
        raise SpecError(f"the study of properties takes no recipes, got {', '.join(recipes)}")
    options.allow("properties", "seeds")
    for name in only:
        if name not in PROPERTIES:
            raise UnknownName("property", name, PROPERTIES)
    seeds = range(1, options.seeds_for() + 1)
    cells = {
        name: [Cell(f"{name}, seed {seed}", "properties", {"property": name, "seed": seed}) for seed in seeds]
        for name in PROPERTIES
        if not only or name in only
    }
    found = {each.cell.key: each for each in grid.run([cell for own in cells.values() for cell in own])}
    return PropertyResult({name: [found[cell.key] for cell in own] for name, own in cells.items()})
