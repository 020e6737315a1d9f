"""The contract of a mixer: spec, site, abilities, module.

A mixer is a sublayer in which positions exchange information: a spec (what users write) and a module (what runs), in one file
of `nn/mixers/`. The spec declares what it `can` do; the builder refuses the rest. `twin()` names an equal dense mixer, if
there is one. Random values are persistent buffers, because they are part of the model; buffers that can be recomputed are
registered with `persistent=False`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor, nn

from regard.errors import SpecError, StateError
from regard.nn.core.context import Context, Memory
from regard.nn.core.mask import Tagged
from regard.nn.core.part import Part
from regard.nn.core.state import State
from regard.registry import Registry, kind_of
from regard.spec import Spec

if TYPE_CHECKING:
    from regard.nn.positions.position import PositionSpec

MIXERS: Registry[type[MixerSpec]] = Registry("mixer")

Act = Literal["embed", "rotate", "bias", "content"]
"""Action of a position code: on the stream, by rotating queries and keys, as a bias, or through content terms."""


@dataclasses.dataclass(frozen=True)
class Can:
    """Abilities of a mixer, and what it requires."""

    causal: bool = True
    cross: bool = True
    stream: bool = True
    """It can run token by token; otherwise a decoder runs all tokens again at every step."""
    rewind: bool = True
    join: bool = True
    """Sequences can enter a batch that is being decoded (`State.join`); otherwise a server decodes fixed batches."""
    itself: bool = True
    """A token sees itself; otherwise only a residual connection keeps it (Reformer)."""
    grads: bool = True
    """Gradients flow back through its state."""
    weights: bool = True
    packed: bool = True
    """It separates documents that are packed into one row."""
    memory: bool = False
    """It reads the encoder in the `mix` role (recurrence interleaved with attention)."""
    final: bool = False
    """In an encoder it may be given a state, and what it returns is part of the memory (the last state of a recurrence)."""
    losses: bool = False
    """It adds auxiliary losses to the tape."""
    length: Literal["any", "fixed"] = "any"
    """"fixed" ties it to the model's length."""
    positions: frozenset[Act] = frozenset({"rotate", "bias", "content"})


@dataclasses.dataclass(frozen=True)
class Site:
    """Place of a part in the model, known to it when it is built."""

    path: str
    width: int
    length: int
    layer: int = 0
    depth: int = 1
    causal: bool = False
    role: Literal["mix", "cross", "feed", "stack", "embed", "head"] = "mix"
    heads: int = 1
    head_width: int = 0
    memory: int = 0
    """Width of the memory that a decoder reads; 0 without one."""
    embedded: int = 0
    """In a head: width of the embedding of the tokens that the stream has read."""
    readers: int = 0
    """In an encoder: how many layers of the decoder read its memory."""
    position: PositionSpec | None = None
    """The position of the stack, which its mixers find in `ctx.position`."""

    def at(self, name: str, **changes: object) -> Site:
        """Return the site of a part inside this one."""
        return dataclasses.replace(self, path=f"{self.path}.{name}" if self.path else name, **changes)  # type: ignore[arg-type]


class MixerSpec(Spec):
    """Exchange of information between positions."""

    registry = MIXERS
    can: ClassVar[Can] = Can()

    def build(self, site: Site) -> Mixer:
        raise NotImplementedError

    def twin(self) -> MixerSpec | None:
        """Return the dense spec that this one must equal, if there is one."""
        return None

    def leaves(self, width: int) -> int:
        """Return the width of its output for this input width. Another width needs a wiring without a residual sum."""
        return width

    def head_shape(self, width: int) -> tuple[int, int] | None:
        """Return the number of heads and their width, for a position of the stack; None without heads."""
        return None

    @property
    def uses_tags(self) -> bool:
        """True if tagged tokens are special; by default, if a mask in it reads tags."""
        return any(isinstance(part, Tagged) for _, part in self.walk())

    def shares(self, site: Site) -> Mapping[str, Callable[[], nn.Module]]:
        """Return modules that the stack makes once for all layers that name them; they are found in `ctx.shared[name]`.

        Layers share by name, so the name should contain all settings that must agree (`linformer_64`).
        """
        return {}

    def refusals(self, site: Site) -> list[str]:
        """List what this mixer is asked to do here and cannot."""
        where, kind = f"({site.path})", kind_of(type(self))
        out = []
        if site.role == "mix" and site.causal and not self.can.causal:
            out.append(f"mixer {kind!r} cannot be causal {where}; use {_those('causal')}")
        if site.role == "cross" and not self.can.cross:
            out.append(f"mixer {kind!r} cannot attend across {where}; use {_those('cross')}")
        if (site.role == "cross" or self.can.memory) and not site.memory:
            out.append(f"{site.path} attends to an encoder, and there is none before it")
        return out


class Mixer(Part):
    """Base of the modules: `(x, ctx, state) -> (y, state)`; None in, None out."""

    heads: int = 1

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        raise NotImplementedError

    def read_source(self, x: Tensor, ctx: Context) -> Memory:
        """Return what keys and values are made of: the memory in cross-attention, otherwise the stream itself."""
        if self.site.role != "cross":
            return Memory(x, x, ctx.at)
        if ctx.memory is None:
            raise SpecError(f"{self.site.path} attends to a memory, and none was given; give the model a source")
        return ctx.memory

    def pass_heads(self, x: Tensor, ctx: Context) -> Tensor:
        """Return what the heads leave side by side (b, n, h·e); a tape may read or replace it."""
        return ctx.tape.at_heads(self.site.path, x, self.heads)

    def start(self, rows: int, capacity: int) -> State | None:
        """Return an empty state with space for `capacity` tokens; None if no state is needed."""
        raise StateError(f"{self.site.path} cannot run token by token")

    def flops(self, n: int, m: int) -> float:
        """FLOPs of the forward pass per token, among `n` tokens (`m` in memory); by default those of its linear layers."""
        return sum(2.0 * part.weight.numel() for part in self.modules() if isinstance(part, nn.Linear))

    def state_numbers(self, n: int) -> float:
        """Number of values in the state after `n` tokens."""
        return 0.0


def check_positions(spec: MixerSpec, site: Site, acts: frozenset[Act], name: str) -> None:
    """Refuse a position code that acts in a way this mixer does not support."""
    if site.role == "cross":
        raise SpecError(f"position {name!r} has no meaning in cross-attention ({site.path}); leave it out")
    lacking = acts - spec.can.positions
    if lacking:
        raise SpecError(
            f"mixer {kind_of(type(spec))!r} cannot use position {name!r} ({site.path}): it needs {', '.join(sorted(lacking))}"
        )


def _those(ability: str) -> str:
    names = [name for name, part in MIXERS.items() if getattr(part.can, ability)]
    return " or ".join(repr(n) for n in names[:3])
