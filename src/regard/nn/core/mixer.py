"""The contract of a mixer: the sublayer in which positions look at one another.

A mixer is a spec (what users write) and a module (what runs), side by side in one file of `nn/mixers/`. The spec says what
it `can` do; the builder refuses the rest. Its plain twin, where it has one, is named by `twin()`. What a module draws at
random is a persistent buffer, for it is part of the model; what can be computed again is one with `persistent=False`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor, nn

from regard.errors import SpecError, StateError
from regard.nn.core.context import Context, Memory
from regard.nn.core.mask import Tagged
from regard.nn.core.state import State
from regard.registry import Registry, kind_of
from regard.spec import Spec

if TYPE_CHECKING:
    from regard.nn.positions.position import PositionSpec

MIXERS: Registry[type[MixerSpec]] = Registry("mixer")

Act = Literal["embed", "rotate", "bias", "content"]
"""What a position code does: adds to the stream, turns queries and keys, biases scores, or enters them."""


@dataclasses.dataclass(frozen=True)
class Can:
    """What a mixer supports, and what it asks of its place."""

    causal: bool = True
    cross: bool = True
    stream: bool = True
    """Runs token by token; a decoder of mixers that cannot runs all tokens again at every step."""
    rewind: bool = True
    grads: bool = True
    """Gradients flow back through what it remembers."""
    weights: bool = True
    packed: bool = True
    """Keeps the documents packed into one row apart."""
    memory: bool = False
    """Reads the encoder from the `mix` place: recurrence and attention interleaved."""
    losses: bool = False
    """Puts auxiliary losses on the tape."""
    length: Literal["any", "fixed"] = "any"
    """"fixed" ties it to the model's length."""
    positions: frozenset[Act] = frozenset({"rotate", "bias", "content"})


@dataclasses.dataclass(frozen=True)
class Site:
    """What a part knows about its place when it is built."""

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
    """How wide the memory is that a decoder reads; 0 where there is none."""
    position: PositionSpec | None = None
    """The stack's own, which its mixers find in `ctx.position`."""

    def at(self, name: str, **changes: object) -> Site:
        """The site of a part inside this one."""
        return dataclasses.replace(self, path=f"{self.path}.{name}" if self.path else name, **changes)  # type: ignore[arg-type]


class MixerSpec(Spec):
    """How positions look at one another."""

    registry = MIXERS
    can: ClassVar[Can] = Can()

    def build(self, site: Site) -> Mixer:
        raise NotImplementedError

    def twin(self) -> MixerSpec | None:
        """The plain spec this one must equal, where there is one."""
        return None

    def head_shape(self, width: int) -> tuple[int, int] | None:
        """How many heads and how wide, which a position of the stack must know; None where there are none."""
        return None

    @property
    def uses_tags(self) -> bool:
        """Whether tagged tokens are anything special to it: here, whether a mask in it says so."""
        return any(isinstance(part, Tagged) for _, part in self.walk())

    def shares(self, site: Site) -> Mapping[str, Callable[[], nn.Module]]:
        """Parts the stack makes once, for all layers that name them; `ctx.shared[name]` reaches them.

        Layers meet in the name, so it should say all that makes their parts alike (`linformer_64`).
        """
        return {}

    def refusals(self, site: Site) -> list[str]:
        """What this mixer is asked to do at this place and cannot."""
        where, kind = f"({site.path})", kind_of(type(self))
        out = []
        if site.role == "mix" and site.causal and not self.can.causal:
            out.append(f"mixer {kind!r} cannot be causal {where}; use {_those('causal')}")
        if site.role == "cross" and not self.can.cross:
            out.append(f"mixer {kind!r} cannot attend across {where}; use {_those('cross')}")
        if (site.role == "cross" or self.can.memory) and not site.memory:
            out.append(f"{site.path} attends to an encoder, and there is none before it")
        return out


class Mixer(nn.Module):
    """Base of the modules: `(x, ctx, state) -> (y, state)`; None in, None out."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        raise NotImplementedError

    def read_source(self, x: Tensor, ctx: Context) -> Memory:
        """What its keys and values are made of: the memory in cross-attention, else the stream itself."""
        if self.site.role != "cross":
            return Memory(x, x, ctx.at)
        if ctx.memory is None:
            raise SpecError(f"{self.site.path} attends to a memory and none was given; give the model a source")
        return ctx.memory

    def initialize(self) -> None:
        """Set what starts from somewhere else than the initialisation scheme says; runs after it, without gradients."""

    def before_step(self, step: int) -> None:
        """Hear that training step `step` is about to begin; random features are drawn anew here."""

    def start(self, rows: int, capacity: int) -> State | None:
        """A state that remembers nothing yet, with room for `capacity` tokens; None where nothing need be remembered."""
        raise StateError(f"{self.site.path} cannot run token by token")

    def flops(self, n: int, m: int) -> float:
        """Multiply-adds ×2 of one token's forward pass among `n` tokens (`m` in memory): as it is here, of its linear maps."""
        return sum(2.0 * part.weight.numel() for part in self.modules() if isinstance(part, nn.Linear))

    def state_numbers(self, n: int) -> float:
        """How many numbers are remembered after `n` tokens."""
        return 0.0


def check_positions(spec: MixerSpec, site: Site, acts: frozenset[Act], name: str) -> None:
    """Refuse a position code whose way of acting this mixer cannot honour."""
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
