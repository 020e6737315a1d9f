"""What a sublayer may read beside the stream, and the only way out sideways.

Context   coordinates, the memory to attend to, the stack's position code: frozen, the same for every sublayer
Scratch   what is computed once a forward pass and shared by the layers (masks, rotary tables, plans)
Tape      `keep` for observers, a no-op unless somebody asked; `loss` for auxiliary losses, always taken
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor, nn

from regard.nn.coords import Coords

if TYPE_CHECKING:
    from regard.nn.position import Position

T = TypeVar("T")


class Tape:
    """Records tensors by dotted name: `Tape("decoder.*.cross.weights")`."""

    def __init__(self, *patterns: str) -> None:
        self.patterns = patterns
        self.kept: dict[str, Tensor] = {}
        self.losses: dict[str, Tensor] = {}
        self.plans: dict[str, str] = {}

    def wants(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, p) for p in self.patterns)

    def keep(self, name: str, value: Tensor) -> None:
        """Keep a tensor for observers, if one of them asked for this name."""
        if self.patterns and self.wants(name):
            self.kept[name] = value.detach()

    def loss(self, name: str, value: Tensor) -> None:
        """An auxiliary loss of a part; the task adds it to its own."""
        self.losses[name] = value

    def plan(self, name: str, reason: str) -> None:
        """How attention ran at this place, in words."""
        if self.patterns:
            self.plans[name] = reason


class Scratch:
    """Results shared by all layers of one forward pass, keyed by what they were made from."""

    def __init__(self) -> None:
        self._made: dict[object, object] = {}

    def once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]


@dataclasses.dataclass(frozen=True)
class Memory:
    """What cross-attention looks at. Keys and values may differ (ConvS2S); for the Transformer they are one tensor."""

    keys: Tensor
    values: Tensor
    at: Coords


@dataclasses.dataclass(frozen=True)
class Context:
    """What a sublayer may read. Frozen; a stack hands its parts a copy with its own fields filled in."""

    at: Coords
    memory: Memory | None = None
    position: Position | None = None
    first: Tensor | None = None
    shared: Mapping[str, nn.Module] = dataclasses.field(default_factory=dict)
    tape: Tape = dataclasses.field(default_factory=Tape)
    scratch: Scratch = dataclasses.field(default_factory=Scratch)

    def once(self, key: object, make: Callable[[], T]) -> T:
        """Compute something once a forward pass."""
        return self.scratch.once(key, make)

    def remembered(self, before: Coords) -> Coords:
        """Coordinates of what is remembered followed by the tokens in hand; one object for all layers alike."""
        return self.once(("remembered", before), lambda: before.extend(self.at))
