"""Bodies: what runs between embedding and head.

A stack runs its blocks one after another. A uniform stack is a `block` and a `depth`, so that one setting changes every
layer; a hybrid lists its `blocks`.

A model whose layers do not follow one another (recurrent layers with input feeding, multi-step attention, memory hops) has a
body of its own: a spec that says what it `can` do and what width it leaves, and a module with its weights.
"""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from itertools import accumulate
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.errors import SpecError, StateError
from regard.nn.blocks.block import Block, BlockLayer
from regard.nn.blocks.wiring import PreNorm, States, Stream, WiringSpec
from regard.nn.core.context import Context, Memory
from regard.nn.core.coords import Tags
from regard.nn.core.mixer import Can, MixerSpec, Site, check_positions
from regard.nn.core.part import Part
from regard.nn.core.rng import RngSnapshot
from regard.nn.core.state import State
from regard.nn.positions.position import Position, PositionSpec
from regard.registry import Registry, kind_of
from regard.spec import Count, Spec, spec

MAX_LAYERS = 500
"""Maximum number of layers, as in the deepest published Transformer (DeepNet): each is several Python objects, which are made
before any weight is allocated."""
BODIES: Registry[type[BodySpec]] = Registry("body")


class BodySpec(Spec):
    """The part between embedding and head."""

    registry = BODIES
    causal: bool
    can: ClassVar[Can] = Can()
    """Abilities of the whole. A body of blocks supports what all of its mixers do."""

    def build(self, site: Site) -> Body:
        raise NotImplementedError

    def layers(self) -> tuple[Block, ...]:
        """Return the blocks in the order in which they run; none if it is not made of blocks."""
        return ()

    def refusals(self, site: Site) -> list[str]:
        """List what it or its parts are asked to do here and cannot."""
        out, name = [], f"body {kind_of(type(self))!r}"
        if self.causal and not self.can.causal:
            out.append(f"{name} cannot be causal ({site.path})")
        if self.reads_memory and not site.memory:
            out.append(f"{site.path} attends to an encoder, and there is none before it")
        return out

    def refusals_of(self, encoder: BodySpec, site: Site) -> list[str]:
        """List what it needs of this encoder's memory, beyond keys and values, and does not get."""
        return []

    def leaves(self, width: int, memory: int = 0) -> int:
        """Return the width of the output for this input width and that of a memory."""
        return width

    def mixers(self) -> list[tuple[str, MixerSpec]]:
        """Return every mixer with its role."""
        return [pair for block in self.layers() for pair in block.mixers]

    def abilities(self) -> list[Ability]:
        """Return what it can do, part by part."""
        if not self.layers():
            return [Ability("mix", f"body {kind_of(type(self))!r}", self.can)]
        return [Ability(role, f"mixer {kind_of(type(mixer))!r}", mixer.can) for role, mixer in self.mixers()]

    @property
    def streams(self) -> bool:
        """True if it can run token by token."""
        return all(part.can.stream for part in self.abilities())

    @property
    def joins(self) -> bool:
        """True if sequences can enter a batch that is being decoded."""
        return self.streams and all(part.can.join for part in self.abilities())

    @property
    def readers(self) -> int:
        """Number of its layers that read an encoder."""
        return sum(part.role == "cross" or part.can.memory for part in self.abilities())

    @property
    def reads_memory(self) -> bool:
        """True if any part of it reads an encoder."""
        return self.readers > 0

    def weight_paths(self, path: str) -> list[str]:
        """Return the paths of its parts that record attention weights, for a body at `path`; `.cross` reads the encoder."""
        blocks = enumerate(self.layers())
        return [f"{path}.blocks.{i}.{role}" for i, block in blocks for role, mixer in block.mixers if mixer.can.weights]


class Ability(NamedTuple):
    """Ability of one part of a body."""

    role: str
    name: str
    """For messages: `mixer 'lsh'`."""
    can: Can


class Body(Part):
    """`(x, ctx, state) -> (x, state)`."""

    def encode(self, x: Tensor, ctx: Context) -> Memory:
        """Run as an encoder and return what a decoder reads: keys, values and, if layers are recurrent, their final states."""
        y, _ = self(x, ctx)
        return Memory(y, y, ctx.at)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        raise NotImplementedError

    def start(self, rows: int, capacity: int) -> State:
        raise StateError(f"{type(self).__name__} cannot run token by token")

    def flops(self, n: int, m: int) -> float | None:
        """FLOPs of the forward pass per token, among `n` tokens (`m` in memory); None: the sum of its parts."""
        return None

    def state_numbers(self, n: int) -> float:
        """Number of values in the state of a decoder after `n` tokens, besides those of its mixers."""
        return 0.0


@BODIES.add
@spec
class Stack(BodySpec):
    """Blocks one after another. `recompute` trades time for memory: activations inside a block are not stored.

    `tags` selects global tokens, which see all tokens and are seen by all (Longformer), unless the batch does.
    """

    block: Block | None = None
    depth: Count | None = None
    blocks: tuple[Block, ...] = ()
    causal: bool = False
    wiring: WiringSpec = PreNorm()
    position: PositionSpec | None = None
    recompute: bool = False
    tags: Tags | None = None

    def __post_init__(self) -> None:
        if (self.block is None) == (not self.blocks):
            raise SpecError("a stack is either one `block` with a `depth`, or a list of `blocks`")
        if (self.block is None) != (self.depth is None):
            raise SpecError("`depth` goes with `block`: how often the block is repeated")
        if (count := self.depth or len(self.blocks)) > MAX_LAYERS:
            raise SpecError(f"depth is {count:,}; a stack may have at most {MAX_LAYERS:,} layers")

    def layers(self) -> tuple[Block, ...]:
        return self.blocks if self.block is None else (self.block,) * (self.depth or 0)

    def build(self, site: Site) -> Body:
        return StackBody(self, self._inside(site))

    def refusals(self, site: Site) -> list[str]:
        inside, out = self._inside(site), []
        if self.tags is not None and not any(mixer.uses_tags for _, mixer in self.mixers()):
            out.append(f"{site.path}.tags is {self.tags!r}, and no mixer uses tags; use 'local' or a 'tagged' mask")
        for i, (block, width) in enumerate(zip(self.layers(), self.widths(site.width), strict=True)):
            out += block.refusals(inside.at(f"blocks.{i}", width=width), self.wiring)
        return out

    def leaves(self, width: int, memory: int = 0) -> int:
        for block in self.layers():
            width = block.leaves(width)
        return self.wiring.leaves(width)

    def widths(self, width: int) -> list[int]:
        """Return the width that each block reads, if the first reads `width`."""
        return list(accumulate(self.layers()[:-1], lambda read, block: block.leaves(read), initial=width))

    def _inside(self, site: Site) -> Site:
        return dataclasses.replace(site, causal=self.causal, position=self.position)


@dataclasses.dataclass
class Layers(State):
    """The states of a stack's blocks, each by role."""

    blocks: tuple[dict[str, State | None], ...]


class StackBody(Body):
    def __init__(self, spec: Stack, site: Site) -> None:
        super().__init__()
        self.spec, self.path, layers = spec, site.path, spec.layers()
        self.wiring, self.recompute, self.tags = spec.wiring, spec.recompute, spec.tags
        self.position = stack_position(spec.position, layers, site)
        self.shared = stack_shares(layers, site)
        self.blocks = nn.ModuleList(
            block.build(site.at(f"blocks.{i}", layer=i, depth=len(layers), width=width), spec.wiring)
            for i, (block, width) in enumerate(zip(layers, spec.widths(site.width), strict=True))
        )
        self.norm = spec.wiring.norm.build(spec.leaves(site.width)) if spec.wiring.ends and spec.wiring.norm else None

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        assert state is None or isinstance(state, Layers)
        at = ctx.at if self.tags is None else ctx.at.with_tags(self.tags)
        ctx = dataclasses.replace(ctx, at=at, position=self.position, first=x, shared=dict(self.shared.items()))
        stream, new = self.wiring.enter(x), []
        run = _run_twice if self.recompute and self.training and torch.is_grad_enabled() else _run
        for i, block in enumerate(self._layers()):
            stream, states = run(block, stream, ctx, {} if state is None else state.blocks[i])
            stream = ctx.tape.at(block.path, stream) if isinstance(stream, Tensor) else stream
            new.append(states)
        x = self.wiring.leave(stream)
        x = ctx.tape.at(self.path, x if self.norm is None else self.norm(x))
        return x, None if state is None else Layers(tuple(new))

    def encode(self, x: Tensor, ctx: Context) -> Memory:
        y, final = self(x, ctx, self._start_final(x.shape[0]))
        return Memory(y, y, ctx.at, final)

    def _start_final(self, rows: int) -> State | None:
        """Return the state of the layers whose final states belong to the memory; None if there is no such layer."""
        if not any(mixer.can.final for _, mixer in self.spec.mixers()):
            return None
        return Layers(tuple(block.start_final(rows) for block in self._layers()))

    def start(self, rows: int, capacity: int) -> State:
        return Layers(tuple(block.start(rows, capacity) for block in self._layers()))

    def _layers(self) -> list[BlockLayer]:
        return list(self.blocks)  # type: ignore[arg-type]


def _run(block: BlockLayer, stream: Stream, ctx: Context, states: States) -> tuple[Stream, States]:
    return block(stream, ctx, states)  # type: ignore[no-any-return]


def _run_twice(block: BlockLayer, stream: Stream, ctx: Context, states: States) -> tuple[Stream, States]:
    """Run a block without storing activations: the backward pass runs it again, with a muted tape."""
    known, first = ctx.scratch.copy(), True

    def run(stream: Stream) -> tuple[Stream, States]:
        nonlocal first
        here, first = ctx if first else ctx.for_rerun(known.copy()), False
        return _run(block, stream, here, {role: None if s is None else s.copy() for role, s in states.items()})

    snapshot = RngSnapshot(stream)
    return checkpoint(  # type: ignore[no-any-return]
        run, stream, use_reentrant=False, preserve_rng_state=False, context_fn=lambda: (nullcontext(), snapshot)
    )


def stack_position(spec: PositionSpec | None, layers: tuple[Block, ...], site: Site) -> Position | None:
    """Build the position of a body: one module for the mixers of all layers."""
    if spec is None or not spec.acts:
        return None
    name = kind_of(type(spec))
    if "embed" in spec.acts:
        raise SpecError(f"position {name!r} acts on the stream; set it in the embedding, not in {site.path}")
    shapes = set()
    for i, block in enumerate(layers):
        if block.mix is not None:
            here = site.at(f"blocks.{i}.mix", role="mix")
            check_positions(block.mix, here, spec.acts, name)
            shape = block.mix.head_shape(site.width)
            if shape is None:
                raise SpecError(f"position {name!r} in {site.path} needs heads, and {here.path} has none")
            shapes.add(shape)
    if not shapes:
        raise SpecError(f"position {name!r} in {site.path} needs a mixer, and no block has one")
    if len(shapes) > 1:
        raise SpecError(
            f"position {name!r} in {site.path} is shared by all layers, whose heads differ: {sorted(shapes)}"
        )
    heads, head_width = shapes.pop()
    return spec.build(site.at("position", role="stack", heads=heads, head_width=head_width))


def stack_shares(layers: tuple[Block, ...], site: Site) -> nn.ModuleDict:
    """Make the modules that mixers share across layers, each once."""
    shared = nn.ModuleDict()
    for block in layers:
        for role, mixer in block.mixers:
            for name, make in mixer.shares(site.at("shared", role=role)).items():
                if name not in shared:
                    shared[name] = make()
    return shared
