"""The contract of a mixer: the sublayer in which positions look at one another.

A mixer is a spec (what users write) and a module (what runs), side by side in one file of `nn/mixers/`. The spec says what
it `can` do; the builder refuses the rest. Its plain twin, where it has one, is named by `twin()`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from torch import Tensor, nn

from regard.errors import SpecError, StateError
from regard.nn.context import Context
from regard.nn.state import State
from regard.registry import Table, kind_of
from regard.spec import Spec

MIXERS: Table[type[MixerSpec]] = Table("mixer")

Act = Literal["embed", "turn", "bias", "content"]
"""What a position code does: adds to the stream, turns queries and keys, biases scores, or enters them."""


@dataclasses.dataclass(frozen=True)
class Can:
    """What a mixer supports. `length="fixed"` ties it to the model's length."""

    causal: bool = True
    cross: bool = True
    stream: bool = True
    rewind: bool = True
    weights: bool = True
    length: Literal["any", "fixed"] = "any"
    positions: frozenset[Act] = frozenset({"turn", "bias", "content"})


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

    def at(self, name: str, **changes: object) -> Site:
        """The site of a part inside this one."""
        return dataclasses.replace(self, path=f"{self.path}.{name}" if self.path else name, **changes)  # type: ignore[arg-type]


class MixerSpec(Spec):
    """How positions look at one another."""

    table = MIXERS
    can: ClassVar[Can] = Can()

    def build(self, site: Site) -> Mixer:
        raise NotImplementedError

    def twin(self) -> MixerSpec | None:
        """The plain spec this one must equal, where there is one."""
        return None

    def refusals(self, site: Site) -> list[str]:
        """What this mixer is asked to do at this place and cannot."""
        where, kind = f"({site.path})", kind_of(type(self))
        out = []
        if site.role == "mix" and site.causal and not self.can.causal:
            out.append(f"mixer {kind!r} cannot be causal {where}; use {_those('causal')}")
        if site.role == "cross" and not self.can.cross:
            out.append(f"mixer {kind!r} cannot attend across {where}; use {_those('cross')}")
        return out


class Mixer(nn.Module):
    """Base of the modules: `(x, ctx, state) -> (y, state)`; None in, None out."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        raise NotImplementedError

    def start(self, rows: int, capacity: int) -> State:
        """A state that remembers nothing yet, with room for `capacity` tokens."""
        raise StateError(f"{self.site.path} cannot run token by token")

    def flops(self, n: int, m: int) -> float:
        """Multiply-adds ×2 of one token's forward pass beside the projections, among `n` tokens (`m` in memory)."""
        return 0.0

    def state_numbers(self) -> float:
        """How many numbers a token adds to the state."""
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
