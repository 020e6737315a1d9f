"""What a sublayer may read beside the stream, and the only way out sideways.

Context   coordinates, the memory to attend to, the stack's position code: frozen, the same for every sublayer
Scratch   what is computed once a forward pass and shared by the layers (masks, rotary tables, plans)
Tape      `keep` for observers, a no-op unless somebody asked; `loss` for auxiliary losses, always taken
"""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from torch import Tensor, nn

from regard.nn.core.coords import Coords

if TYPE_CHECKING:
    from regard.nn.positions.position import Position

T = TypeVar("T")


class Tape:
    """Records tensors by dotted name: `Tape("decoder.*.cross.weights")`. What a loop runs again gets `@turn` behind it.

    Of attention weights (b, h, n, m) it keeps chosen `rows` and `heads`, if any are chosen: long texts need no more.
    """

    def __init__(self, *patterns: str, rows: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> None:
        self.patterns, self.rows, self.heads = patterns, rows, heads
        self.kept: dict[str, Tensor] = {}
        self.losses: dict[str, Tensor] = {}
        self.plans: dict[str, str] = {}
        self._turn = ""

    def wants(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name + self._turn, p) for p in self.patterns)

    def for_iteration(self, i: int) -> Self:
        """The same tape for turn `i` of a loop: names of what is kept end in `@i`; losses of all turns add up."""
        out = copy.copy(self)
        out._turn = f"{self._turn}@{i}"
        return out

    def mute(self) -> Self:
        """A tape that wants the same, so that everything runs the same way, and passes nothing on."""
        out = copy.copy(self)
        out.kept, out.losses, out.plans = {}, {}, {}
        return out

    def keep(self, name: str, value: Tensor, *, chosen: bool = False) -> None:
        """Keep a tensor for observers, if one of them asked for this name; `chosen` weights are of its rows and heads."""
        if not self.patterns or not self.wants(name):
            return
        if name.endswith(".weights") and not chosen:
            value = value if self.heads is None else value[:, list(self.heads)]
            value = value if self.rows is None else value[:, :, list(self.rows)]
        self.kept[name + self._turn] = value.detach()

    def loss(self, name: str, value: Tensor) -> None:
        """An auxiliary loss of a part; several of one name add up, and the task adds the sum to its own."""
        self.losses[name] = self.losses[name] + value if name in self.losses else value

    def plan(self, name: str, reason: str) -> None:
        """How attention ran at this place, in words."""
        if self.patterns:
            self.plans[name + self._turn] = reason


class Scratch:
    """Results shared by all layers of one forward pass, keyed by what they were made from."""

    def __init__(self) -> None:
        self._made: dict[object, object] = {}

    def once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]

    def copy(self) -> Scratch:
        """What is known so far; what either finds out from now on, the other does not know."""
        out = Scratch()
        out._made = dict(self._made)
        return out


@dataclasses.dataclass(frozen=True)
class Memory:
    """What cross-attention looks at. Keys and values may differ (ConvS2S); for the Transformer they are one tensor."""

    keys: Tensor
    values: Tensor
    at: Coords

    def select(self, sentences: Tensor) -> Memory:
        """The memory of those sentences only; goes with `State.select(rows, sentences)`."""
        keys = self.keys.index_select(0, sentences)
        values = keys if self.values is self.keys else self.values.index_select(0, sentences)
        return Memory(keys, values, self.at.select(sentences))


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
    choices: dict[str, Tensor] | None = None
    """What mixers chose from the stream, by name, where a second run must choose the same; None where there is none."""

    def once(self, key: object, make: Callable[[], T]) -> T:
        """Compute something once a forward pass."""
        return self.scratch.once(key, make)

    def choose(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """A choice without gradients (the buckets of a hash): rounding must not make a second run choose otherwise."""
        if self.choices is None:
            return make()
        if name not in self.choices:
            self.choices[name] = make()
        return self.choices[name]

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor here that may carry a gradient: the inputs of a function that runs a sublayer by hand."""
        memory = () if self.memory is None else (self.memory.keys, self.memory.values)
        return memory if self.first is None else (self.first, *memory)

    def parts(self) -> tuple[nn.Module, ...]:
        """The stack's own modules that a sublayer may call: their parameters are inputs of such a function too."""
        return (*(() if self.position is None else (self.position,)), *self.shared.values())

    def for_rerun(self, scratch: Scratch, tensors: Sequence[Tensor] | None = None) -> Context:
        """For running a sublayer a second time: the tape is mute, and `tensors` stand in for those of `tensors()`.

        `scratch` is what was known before the first run, so that the second computes all that the first did.
        """
        rest = iter(self.tensors() if tensors is None else tensors)
        first = None if self.first is None else next(rest)
        memory = None if self.memory is None else Memory(next(rest), next(rest), self.memory.at)
        return dataclasses.replace(self, first=first, memory=memory, tape=self.tape.mute(), scratch=scratch)

    def remembered(self, before: Coords) -> Coords:
        """Coordinates of what is remembered followed by the tokens in hand; one object for all layers alike."""
        return self.once(("remembered", before), lambda: before.extend(self.at))
