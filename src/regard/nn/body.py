"""Bodies: what stands between embedding and head. A stack runs its blocks one after another.

A uniform stack is written `block` + `depth`, so that one word changes every layer; a hybrid lists its `blocks`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.errors import SpecError
from regard.nn.block import Block, BlockLayer
from regard.nn.context import Context, Scratch
from regard.nn.mixer import Site, check_positions
from regard.nn.mixers import Full
from regard.nn.position import Position, PositionSpec
from regard.nn.state import State
from regard.nn.wiring import PreNorm, WiringSpec
from regard.registry import Table, kind_of
from regard.spec import Count, Spec, spec

BODIES: Table[type[BodySpec]] = Table("body")


class BodySpec(Spec):
    """What stands between embedding and head."""

    table = BODIES
    causal: bool

    def build(self, site: Site) -> Body:
        raise NotImplementedError

    def layers(self) -> tuple[Block, ...]:
        """The blocks in the order they run."""
        raise NotImplementedError


class Body(nn.Module):
    """`(x, ctx, state) -> (x, state)`."""

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        raise NotImplementedError

    def start(self, rows: int, capacity: int) -> State:
        raise NotImplementedError


@spec
class Stack(BodySpec):
    """Blocks one after another. `recompute` trades time for memory: activations inside a block are not stored."""

    block: Block | None = None
    depth: Count | None = None
    blocks: tuple[Block, ...] = ()
    causal: bool = False
    wiring: WiringSpec = PreNorm()
    position: PositionSpec | None = None
    recompute: bool = False

    def __post_init__(self) -> None:
        if (self.block is None) == (not self.blocks):
            raise SpecError("a stack is either one `block` with a `depth`, or a list of `blocks`")
        if (self.block is None) != (self.depth is None):
            raise SpecError("`depth` goes with `block`: how often the block is repeated")

    def layers(self) -> tuple[Block, ...]:
        return self.blocks if self.block is None else (self.block,) * (self.depth or 0)

    def build(self, site: Site) -> Body:
        return StackBody(self, dataclasses.replace(site, causal=self.causal))


@dataclasses.dataclass
class Layers(State):
    """The states of a stack's blocks, each by role."""

    blocks: tuple[dict[str, State | None], ...]


class StackBody(Body):
    def __init__(self, spec: Stack, site: Site) -> None:
        super().__init__()
        layers = spec.layers()
        self.wiring, self.recompute = spec.wiring, spec.recompute
        self.position = _stack_position(spec, site)
        self.blocks = nn.ModuleList(
            block.build(site.at(f"blocks.{i}", layer=i, depth=len(layers)), spec.wiring)
            for i, block in enumerate(layers)
        )
        self.norm = spec.wiring.norm.build(site.width) if spec.wiring.ends and spec.wiring.norm else None

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        assert state is None or isinstance(state, Layers)
        ctx = dataclasses.replace(ctx, position=self.position, first=x)
        stream, new = self.wiring.enter(x), []
        save_memory = self.recompute and self.training and torch.is_grad_enabled() and state is None
        for i, block in enumerate(self.blocks):
            states = {} if state is None else state.blocks[i]
            if save_memory:
                stream = checkpoint(_stream_only, block, stream, ctx, use_reentrant=False)
                continue
            stream, states = block(stream, ctx, states)
            new.append(states)
        x = self.wiring.leave(stream)
        x = x if self.norm is None else self.norm(x)
        return x, None if state is None else Layers(tuple(new))

    def start(self, rows: int, capacity: int) -> State:
        return Layers(tuple(block.start(rows, capacity) for block in self._layers()))

    def _layers(self) -> list[BlockLayer]:
        return list(self.blocks)  # type: ignore[arg-type]


def _stream_only(block: BlockLayer, stream: Any, ctx: Context) -> Any:
    """One block, to be run twice: with a scratch of its own, for the second run must compute all that the first did."""
    return block(stream, dataclasses.replace(ctx, scratch=Scratch()), {})[0]


def _stack_position(spec: Stack, site: Site) -> Position | None:
    """A position written in the stack: one object that every layer's mixer sees."""
    if spec.position is None:
        return None
    name = kind_of(type(spec.position))
    if "embed" in spec.position.acts:
        raise SpecError(f"position {name!r} acts on the stream; write it in the embedding, not in {site.path}")
    shapes = set()
    for i, block in enumerate(spec.layers()):
        if block.mix is not None:
            check_positions(block.mix, site.at(f"blocks.{i}.mix", role="mix"), spec.position.acts, name)
            if isinstance(block.mix, Full):
                shapes.add((block.mix.heads, block.mix.width_of_head(site.width)))
    if len(shapes) != 1:
        raise SpecError(f"position {name!r} in {site.path} is one for all layers, whose heads differ: {sorted(shapes)}")
    heads, head_width = shapes.pop()
    return spec.position.build(site.at("position", role="stack", heads=heads, head_width=head_width))


BODIES.add(Stack)
