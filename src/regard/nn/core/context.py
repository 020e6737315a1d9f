"""Context: what a sublayer reads besides the stream.

Context   coordinates, the memory to attend to, the position of the stack: frozen, the same for every sublayer
Scratch   results computed once per forward pass and shared by the layers (masks, rotary tables, plans)
Tape      records and replaces tensors on request (`at`), and collects auxiliary losses (`loss`)
"""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

import torch
from torch import Tensor, nn

from regard.errors import SpecError, StateError
from regard.nn.core.coords import Coords
from regard.nn.core.state import State, join_padded

if TYPE_CHECKING:
    from regard.nn.positions.position import Position

T = TypeVar("T")
Replacement = Callable[[Tensor], Tensor]
"""The tensor at a place -> the one to use instead."""


class Tape:
    """Records the tensors at named places: `Tape("decoder.*.cross.weights")`, and replaces those in `replace`.

    encoder.embed                 what the embedding leaves (b, n, d)
    encoder.blocks.3              the stream after a block
    encoder.blocks.3.mix          what a sublayer adds to it (mix, cross, feed)
    encoder.blocks.3.mix.heads    the outputs of its heads side by side (b, n, h·e); `….head.2` is one of them (b, n, e)
    encoder.blocks.3.mix.weights  its attention weights (b, h, n, m)
    encoder                       what the last norm leaves

    Names of places are patterns (`*`); inside a loop they end in `@iteration`. Of attention weights a tape can keep only
    some `rows` and `heads`, to save memory with long texts. With `gradients` what it keeps stays in the graph. A tape may
    stand behind an `outer` one, which records and replaces first.
    """

    def __init__(
        self,
        *patterns: str,
        rows: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        replace: Mapping[str, Replacement] | None = None,
        gradients: bool = False,
        outer: Tape | None = None,
    ) -> None:
        self.patterns, self.rows, self.heads = patterns, rows, heads
        self.replace, self.gradients, self.outer = dict(replace or {}), gradients, outer
        self.kept: dict[str, Tensor] = {}
        self.losses: dict[str, Tensor] = {}
        self.plans: dict[str, str] = {}
        self.passed: dict[str, None] = {}
        """The places that were passed, in order."""
        self._turn = ""

    @property
    def is_idle(self) -> bool:
        return not self.patterns and not self.replace and (self.outer is None or self.outer.is_idle)

    def wants(self, name: str) -> bool:
        """True if this place is recorded or replaced."""
        full = name + self._turn
        own = any(fnmatch.fnmatchcase(full, p) for p in (*self.patterns, *self.replace))
        return own or (self.outer is not None and self.outer.wants(full))

    def wants_rows(self, name: str) -> bool:
        """True if of these weights only some rows are recorded, so that the whole need not be computed."""
        if (
            self.rows is None
            or not self.wants(name)
            or (self.outer is not None and self.outer.wants(name + self._turn))
        ):
            return False
        return not any(fnmatch.fnmatchcase(name + self._turn, p) for p in self.replace)

    def choose(self, name: str, *, heads: int, rows: int) -> tuple[list[int] | None, list[int] | None]:
        """The rows and heads of the weights at a place that are recorded; None: all of them."""
        for what, asked, count in (("heads", self.heads, heads), ("rows", self.rows, rows)):
            if wrong := [i for i in asked or () if not -count <= i < count]:
                raise SpecError(
                    f"{name}{self._turn} has {count} {what}, counted from 0, and the tape asks for {wrong[0]}; "
                    "choose others, or record only layers that have it"
                )
        return (
            None if self.rows is None else list(self.rows),
            None if self.heads is None else list(self.heads),
        )

    def at(self, name: str, value: Tensor) -> Tensor:
        """Pass the tensor at a place through the tape: replace it if asked to, then record it if asked to."""
        if self.is_idle:
            return value
        full = name + self._turn
        if self.outer is not None:
            value = self.outer.at(full, value)
        self.passed[full] = None
        if self.replace:
            for pattern, function in self.replace.items():
                if fnmatch.fnmatchcase(full, pattern):
                    value = function(value)
        self._record(name, value)
        return value

    def at_heads(self, path: str, value: Tensor, heads: int) -> Tensor:
        """Pass the outputs of the heads of a mixer, side by side (b, n, h·e): together, then one by one."""
        if self.is_idle:
            return value
        value = self.at(f"{path}.heads", value)
        before = value.chunk(heads, -1)
        after = [self.at(f"{path}.head.{i}", head) for i, head in enumerate(before)]
        return value if all(a is b for a, b in zip(after, before, strict=True)) else torch.cat(after, -1)

    def unused(self) -> list[str]:
        """The places in `replace` that no tensor has passed."""
        return [p for p in self.replace if not any(fnmatch.fnmatchcase(name, p) for name in self.passed)]

    def for_iteration(self, i: int) -> Self:
        """Return the tape for iteration `i` of a loop: names end in `@i`; losses of all iterations add up."""
        out = copy.copy(self)
        out._turn = f"{self._turn}@{i}"
        return out

    def mute(self) -> Self:
        """Return a tape that requests the same tensors, so that everything runs the same way, but discards them."""
        out = copy.copy(self)
        out.kept, out.losses, out.plans = {}, {}, {}
        out.outer = None if self.outer is None else self.outer.mute()
        return out

    def keep(self, name: str, value: Tensor, *, chosen: bool = False) -> None:
        """Record a tensor that cannot be replaced; `chosen` weights are already limited to the rows and heads."""
        full = name + self._turn
        if self.outer is not None:
            self.outer.keep(full, value, chosen=chosen)
        self.passed[full] = None
        if any(fnmatch.fnmatchcase(full, p) for p in self.replace):
            raise SpecError(f"{full} can be read here but not replaced; replace {full.rpartition('.')[0]}.heads")
        self._record(name, value, chosen)

    def _record(self, name: str, value: Tensor, chosen: bool = False) -> None:
        full = name + self._turn
        if not any(fnmatch.fnmatchcase(full, p) for p in self.patterns):
            return
        if name.endswith(".weights") and not chosen and not (self.heads is None and self.rows is None):
            rows, heads = self.choose(name, heads=value.shape[1], rows=value.shape[2])
            value = value if heads is None else value[:, heads]
            value = value if rows is None else value[:, :, rows]
        self.kept[full] = value if self.gradients else value.detach()

    def loss(self, name: str, value: Tensor) -> None:
        """Add an auxiliary loss; losses of one name are summed, and the task adds them to its own."""
        self.losses[name] = self.losses[name] + value if name in self.losses else value

    def for_tiles(self) -> Tape:
        """Return a tape for parts of a sublayer: it records how they run, and no tensors."""
        return Tape(*(["nothing"] if self.patterns else []))

    def plan(self, name: str, reason: str) -> None:
        """Record how attention ran here, in words."""
        if self.patterns:
            self.plans[name + self._turn] = reason


class Scratch:
    """Results shared by all layers of one forward pass, keyed by their inputs."""

    def __init__(self) -> None:
        self._made: dict[object, object] = {}

    def once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]

    def copy(self) -> Scratch:
        """Return an independent copy of the results so far."""
        out = Scratch()
        out._made = dict(self._made)
        return out


@dataclasses.dataclass(frozen=True)
class Memory:
    """Target of cross-attention. Keys and values may differ (ConvS2S); for the Transformer they are one tensor."""

    keys: Tensor
    values: Tensor
    at: Coords
    final: State | None = None
    """State of the encoder's layers after the last token, one row per sentence; None if none of them is recurrent."""
    ids: Tensor | None = None
    """The tokens that the encoder has read (sentences, m), for a head that copies them."""

    def select(self, sentences: Tensor) -> Memory:
        """Select sentences; use it together with `State.select(rows, sentences)`."""
        keys = self.keys.index_select(0, sentences)
        values = keys if self.values is self.keys else self.values.index_select(0, sentences)
        final = None if self.final is None else self.final.copy().select(sentences, sentences)
        ids = None if self.ids is None else self.ids.index_select(0, sentences)
        return Memory(keys, values, self.at.select(sentences), final, ids)

    def join(self, other: Memory) -> Memory:
        """Append the sentences of another memory; use it together with `State.join`."""
        keys = join_padded(self.keys, other.keys, 1)
        same = self.values is self.keys and other.values is other.keys
        values = keys if same else join_padded(self.values, other.values, 1)
        final = None if self.final is None or other.final is None else self.final.join(other.final)
        at = self.at.join(other.at, self.keys.shape[0], other.keys.shape[0])
        ids = None if self.ids is None or other.ids is None else join_padded(self.ids, other.ids, 1)
        return Memory(keys, values, at, final, ids)

    def final_of(self, rows: int) -> State | None:
        """Return the final states with a row for each hypothesis: those of a sentence all start from its state."""
        sentences = self.keys.shape[0]
        if self.final is None or rows == sentences:
            return None if self.final is None else self.final.copy()
        if sentences == 0 or rows % sentences:
            raise StateError(f"{rows} hypotheses cannot be divided among the {sentences} sentences of a memory")
        each = torch.arange(sentences, device=self.keys.device).repeat_interleave(rows // sentences)
        return self.final.copy().select(each, each)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor that may carry a gradient."""
        return self.keys, self.values, *(() if self.final is None else self.final.flat().values())

    def with_tensors(self, tensors: Iterator[Tensor]) -> Memory:
        """Return the same memory with the next of `tensors` instead of those of `tensors()`."""
        keys, values, final = next(tensors), next(tensors), self.final
        final = final and final.load_flat({name: next(tensors) for name in final.flat()})
        return dataclasses.replace(self, keys=keys, values=values, final=final)


@dataclasses.dataclass(frozen=True)
class Context:
    """Facts that a sublayer may read. Frozen; a stack passes a copy with its own fields to its parts."""

    at: Coords
    memory: Memory | None = None
    position: Position | None = None
    first: Tensor | None = None
    shared: Mapping[str, nn.Module] = dataclasses.field(default_factory=dict)
    tape: Tape = dataclasses.field(default_factory=Tape)
    scratch: Scratch = dataclasses.field(default_factory=Scratch)
    choices: dict[str, Tensor] | None = None
    """Discrete choices of mixers by name, for a second run that must repeat them; None if there will be none."""

    def once(self, key: object, make: Callable[[], T]) -> T:
        """Compute something once per forward pass."""
        return self.scratch.once(key, make)

    def choose(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Make a discrete choice (the buckets of a hash), which a second run repeats in spite of rounding."""
        if self.choices is None:
            return make()
        if name not in self.choices:
            self.choices[name] = make()
        return self.choices[name]

    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor that may carry a gradient: inputs of a custom autograd function."""
        memory = () if self.memory is None else self.memory.tensors()
        return memory if self.first is None else (self.first, *memory)

    def parts(self) -> tuple[nn.Module, ...]:
        """Return the modules of the stack that a sublayer may call; their parameters are inputs of such a function too."""
        return (*(() if self.position is None else (self.position,)), *self.shared.values())

    def for_rerun(self, scratch: Scratch, tensors: Sequence[Tensor] | None = None) -> Context:
        """Return a context for running a sublayer again: a muted tape, and `tensors` instead of those of `tensors()`.

        `scratch` holds what was known before the first run, so that the second run computes the same things.
        """
        rest = iter(self.tensors() if tensors is None else tensors)
        first = None if self.first is None else next(rest)
        memory = None if self.memory is None else self.memory.with_tensors(rest)
        return dataclasses.replace(self, first=first, memory=memory, tape=self.tape.mute(), scratch=scratch)

    def extend_coords(self, before: Coords) -> Coords:
        """Return the coordinates of remembered and current tokens; one object for all layers."""
        return self.once(("remembered", before), lambda: before.extend(self.at))
