"""Reversible wiring: blocks that can be undone.

The stream is a pair (Gomez et al. 2017; Kitaev et al. 2020, §3).

    x1 ───────────(+)── y1 ──┬─────── y1        y1 = x1 + mix(x2)        x2 = y2 − feed(y1)
                   │         │                  y2 = x2 + feed(y1)       x1 = y1 − mix(x2)
    x2 ──┬── mix ──┘        feed
         └─────────────────(+)─────── y2

A sublayer f takes (a, b) to (b, a + f(b)), so any number of them, a `cross` in between, is undone the same way. Nothing inside
or between blocks is stored for the backward pass, except the last pair, from which the backward pass computes the one before,
runs the sublayer again with gradients, and continues. Memory does not grow with depth, except for random states and choices
of mixers (the buckets of a hash), a few bytes per token.

With a state, as in decoding, blocks run the plain way.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.blocks.wiring import WIRINGS, States, WiringSpec
from regard.nn.core.autograd import FunctionContext
from regard.nn.core.context import Context, Scratch
from regard.nn.core.mixer import Can
from regard.nn.core.rng import RngSnapshot
from regard.nn.core.shape import device_kind
from regard.nn.layers.norm import LayerNorm, NormSpec
from regard.spec import Share, spec

if TYPE_CHECKING:
    from regard.nn.blocks.block import BlockLayer


class Trail:
    """Values that the blocks share in one pass through a stack."""

    def __init__(self) -> None:
        self.scratch = Scratch()
        """Computed without gradients, so it is not shared with others."""
        self.pair: tuple[Tensor, Tensor] | None = None
        """In the backward pass: the output of the current block."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """The stream inside a reversible stack."""

    a: Tensor
    b: Tensor
    trail: Trail


@WIRINGS.add
@spec
class Reversible(WiringSpec):
    """(x1, x2) to (x1 + mix(x2), x2 + feed(y1)); the two leave as their `mean`, or side by side as `both` (Reformer)."""

    norm: NormSpec = LayerNorm()
    dropout: Share = 0.0
    leaving: Literal["mean", "both"] = "mean"

    def enter(self, x: Tensor) -> Pair:
        return Pair(x, x, Trail())

    def leave(self, stream: Pair) -> Tensor:
        a, b = _Last.apply(stream.trail, stream.a, stream.b)  # type: ignore[no-untyped-call]
        return torch.cat([a, b], -1) if self.leaving == "both" else (a + b) / 2

    def leaves(self, width: int) -> int:
        return 2 * width if self.leaving == "both" else width

    def refusals(self, can: Can, where: str) -> list[str]:
        if not can.losses:
            return []
        return [f"{where} has losses of its own, which reversible wiring cannot carry back; use 'pre_norm'"]

    def run(self, block: BlockLayer, stream: Pair, ctx: Context, states: States) -> tuple[Pair, States]:
        a, b, trail = stream.a, stream.b, stream.trail
        if not states and torch.is_grad_enabled():
            parameters = [p for part in (block, *ctx.parts()) for p in part.parameters()]
            a, b = _Block.apply(block, ctx, trail, a, b, *ctx.tensors(), *parameters)  # type: ignore[no-untyped-call]
            return Pair(a, b, trail), {}
        new: States = {}
        for name in block.roles:
            y, new[name] = block.run_part(name, block.norm(name)(b), ctx, states.get(name))
            a, b = b, a + block.dropout(y)
        return Pair(a, b, trail), new


class _LastContext(FunctionContext, Protocol):
    trail: Trail


class _Last(torch.autograd.Function):
    """Keeps the pair that leaves the stack: the backward pass starts from it."""

    @staticmethod
    def forward(fn: _LastContext, trail: Trail, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        fn.trail = trail
        fn.save_for_backward(a, b)
        return a.view_as(a), b.view_as(b)

    @staticmethod
    def backward(fn: _LastContext, ga: Tensor, gb: Tensor) -> tuple[None, Tensor, Tensor]:
        a, b = fn.saved_tensors
        fn.trail.pair = a, b
        return None, ga, gb


class _BlockContext(FunctionContext, Protocol):
    block: BlockLayer
    trail: Trail
    rest: tuple[Tensor, ...]
    runs: list[_Sublayer]
    ctx: Context


class _Block(torch.autograd.Function):
    """One block. Whatever may carry a gradient is an input: the pair, the context's tensors, and all parameters in reach."""

    @staticmethod
    def forward(
        fn: _BlockContext, block: BlockLayer, ctx: Context, trail: Trail, a: Tensor, b: Tensor, *rest: Tensor
    ) -> tuple[Tensor, Tensor]:
        fn.block, fn.trail, fn.rest, fn.runs = block, trail, rest, []
        fn.ctx = dataclasses.replace(ctx, scratch=trail.scratch, choices={})
        for name in block.roles:
            run = _Sublayer(block, name, b)
            fn.runs.append(run)
            a, b = b, a + run(b, fn.ctx)
        return a, b

    @staticmethod
    @once_differentiable
    def backward(fn: _BlockContext, ga: Tensor, gb: Tensor) -> tuple[Tensor | None, ...]:
        assert fn.trail.pair is not None
        a, b = fn.trail.pair
        count = len(fn.ctx.tensors())
        given = [t.detach().requires_grad_(t.requires_grad) for t in fn.rest[:count]]
        inputs = [*given, *fn.rest[count:]]
        wanted = [i for i, t in enumerate(inputs) if t.requires_grad]
        sums: list[Tensor | None] = [None] * len(inputs)
        for run in reversed(fn.runs):
            before = a.detach().requires_grad_()  # (a, b) is (before, x + f(before))
            with torch.enable_grad():
                y = run.repeat(before, fn.ctx.for_rerun(Scratch(), given))
            grads = torch.autograd.grad(y, [before, *(inputs[i] for i in wanted)], gb.to(y.dtype), allow_unused=True)
            for i, grad in zip(wanted, grads[1:], strict=True):
                found = sums[i]
                sums[i] = grad if found is None else found if grad is None else found + grad
            a, b = b - y.detach(), a
            ga, gb = gb, ga if grads[0] is None else ga + grads[0]
        fn.trail.pair = a, b
        return None, None, None, ga, gb, *sums


class _Sublayer:
    """A sublayer with its norm and dropout, and all it takes to run it again the same way."""

    def __init__(self, block: BlockLayer, name: str, x: Tensor) -> None:
        self.block, self.name = block, name
        self.snapshot = RngSnapshot(x)
        device = device_kind(x)
        # No weight cache: older versions of torch reuse casts made without gradients where gradients are needed.
        self.precision = partial(
            torch.autocast, device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device), False
        )

    def __call__(self, x: Tensor, ctx: Context) -> Tensor:
        with self.precision():
            y, _ = self.block.run_part(self.name, self.block.norm(self.name)(x), ctx, None)
            return self.block.dropout(y)  # type: ignore[no-any-return]

    def repeat(self, x: Tensor, ctx: Context) -> Tensor:
        with self.snapshot:
            return self(x, ctx)
