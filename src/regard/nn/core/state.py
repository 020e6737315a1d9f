"""States: what a layer remembers between calls.

Each mixer has a small dataclass of its own, batch first. It makes its state with `start(rows, capacity)`; a call consumes
the state it is given and returns the next one.
Tensors marked `moving` belong to a hypothesis, those marked `fixed` to a sentence: with three hypotheses of each of two
sentences, moving tensors have six rows, fixed ones two, and reordering a beam never copies what belongs to the sentence.

    rows        0  1  2 | 3  4  5      select(rows=[0, 0, 2, 4, 3, 3]) gathers the moving tensors only
    sentences      0    |    1         select(rows=[3, 4, 5], sentences=[1]) lets sentence 0 leave

`join` lets the rows of another state enter. They may remember fewer tokens or more: the shorter ones are padded in front, and
the columns that no row uses any longer are dropped.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import StateError
from regard.nn.core.coords import OPTIONAL, Coords

Leaf = Tensor | Coords
_S = TypeVar("_S", bound="State")


def moving(**kw: Any) -> Any:
    """A field with a row per hypothesis."""
    return dataclasses.field(metadata={"moves": True}, **kw)


def fixed(**kw: Any) -> Any:
    """A field with a row per sentence."""
    return dataclasses.field(metadata={"moves": False}, **kw)


@dataclasses.dataclass
class State:
    """Base of all states. Its fields are tensors, coordinates, other states, and tuples or dicts of them."""

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> Self:
        """Select hypotheses `rows` (and `sentences`, when some are finished)."""

        def pick(value: Leaf, moves: bool) -> Leaf:
            index = rows if moves else sentences
            if index is None:
                return value
            return value.select(index) if isinstance(value, Coords) else value.index_select(0, index)

        return self._walk(pick, lambda state: state.select(rows, sentences))

    def join(self, other: Self) -> Self:
        """Append the rows of another state of the same model, which has read another number of tokens, but at least one.

        A state whose tensors depend on how many tokens were read implements this itself.
        """
        names = [f.name for f in dataclasses.fields(self)]
        where = type(self).__name__
        return dataclasses.replace(
            self, **{name: _join(getattr(self, name), getattr(other, name), f"{where}.{name}") for name in names}
        )

    def detach(self) -> Self:
        """Detach all tensors from the graph."""
        return self._walk(lambda v, _: v if isinstance(v, Coords) else v.detach(), lambda state: state.detach())

    def to(self, device: torch.device | str) -> Self:
        return self._walk(lambda v, _: v.to(device), lambda state: state.to(device))

    def cut(self, n: int) -> Self:
        """Forget all but the first `n` tokens. A state with moving tensors implements this itself, or cannot."""

        def keep(value: Leaf, moves: bool) -> Leaf:
            if moves:
                raise StateError(f"{type(self).__name__} cannot go back to {n} tokens; run them again from the start")
            return value

        return self._walk(keep, lambda state: state.cut(n))

    def copy(self) -> Self:
        """Return a copy that is unaffected when a call consumes the other one."""
        return self._walk(lambda v, _: v, lambda state: state.copy())

    def flat(self, name: str = "") -> dict[str, Tensor]:
        """Return all tensors by dotted name below `name`, for checkpoints of runs that carry state."""
        return dict(_flat({f.name: getattr(self, f.name) for f in dataclasses.fields(self)}, name))

    def load_flat(self, tensors: Mapping[str, Tensor]) -> Self:
        """Return a state like this one, which `start` made, with the tensors of `flat`."""
        new = _load_state(self, tensors, "")
        wanted, got = set(new.flat()), set(tensors)
        if wanted != got:
            lacks, odd = (", ".join(sorted(names)) or "nothing" for names in (wanted - got, got - wanted))
            raise StateError(f"these are the tensors of another {type(self).__name__}: missing {lacks}; unknown {odd}")
        return new

    def _walk(self, leaf: Callable[[Leaf, bool], Leaf], below: Callable[[State], State]) -> Self:
        def visit(value: object, moves: bool) -> object:
            if isinstance(value, State):
                return below(value)
            if isinstance(value, (Tensor, Coords)):
                return leaf(value, moves)
            if isinstance(value, tuple):
                return tuple(visit(v, moves) for v in value)
            if isinstance(value, dict):
                return {k: visit(v, moves) for k, v in value.items()}
            return value

        changes = {
            f.name: visit(getattr(self, f.name), f.metadata.get("moves", True)) for f in dataclasses.fields(self)
        }
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass
class KeyValues(State):
    """Keys and values (rows, h, n, e) of all tokens so far, in buffers with space to grow, and their coordinates `at`.

    Time comes first in memory, so that a new token is one block, and so is what is read when hypotheses are reordered.
    Reordering copies into a second buffer, and the two alternate, so nothing is allocated.
    """

    k: Tensor = moving()
    v: Tensor = moving()
    at: Coords = moving()

    def __post_init__(self) -> None:
        self._buffers: dict[str, tuple[Tensor, Tensor]] = {}  # of k and v: the one they lie in, and the other

    @classmethod
    def empty(cls, like: Tensor, rows: int, heads: int, width: int, capacity: int) -> Self:
        k, v = (
            _time_first(like.new_empty(rows * heads * capacity * width), (rows, heads, capacity, width))
            for _ in range(2)
        )
        return cls(k, v, NOWHERE)

    def add(self, k: Tensor, v: Tensor, at: Coords) -> tuple[Tensor, Tensor]:
        """Append new keys and values, whose coordinates end `at`; returns all keys and values so far."""
        used, total = self.at.n, at.n
        if any(t.requires_grad for t in (k, v, self.k, self.v)):  # a graph needs the old ones as they are
            self.k, self.v = (torch.cat([old[:, :, :used], new], 2) for old, new in ((self.k, k), (self.v, v)))
        else:
            self._grow(total)
            self.k[:, :, used:total] = k
            self.v[:, :, used:total] = v
        self.at = at
        return self.k[:, :, :total], self.v[:, :, :total]

    def push(self, k: Tensor, v: Tensor, at: Coords) -> tuple[Tensor, Tensor]:
        """A faster `add` for one token per row, k and v (rows, h, e), without gradients."""
        total = at.n
        self._grow(total)
        self.k.select(2, total - 1).copy_(k)
        self.v.select(2, total - 1).copy_(v)
        self.at = at
        return self.k.narrow(2, 0, total), self.v.narrow(2, 0, total)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> Self:
        """Copy the selected rows into the other buffer, unless gradients need the old ones."""
        used = self.at.n
        for name in ("k", "v"):
            old = getattr(self, name)
            new = (
                old[:, :, :used].index_select(0, rows)
                if old.requires_grad
                else self._gather_rows(name, old, used, rows)
            )
            setattr(self, name, new)
        self.at = self.at.select(rows)
        return self

    def join(self, other: Self) -> Self:
        """Copy the rows of both into new buffers, where all end in the same column."""
        sides = ((self, 0), (other, self.k.shape[0]))
        total, used = self.k.shape[0] + other.k.shape[0], max(side.at.trimmed.n for side, _ in sides)
        capacity = used + max(side.k.shape[2] - side.at.n for side, _ in sides)
        new = []
        for name in ("k", "v"):
            like: Tensor = getattr(self, name)
            h, e = like.shape[1], like.shape[3]
            made = _time_first(like.new_empty(total * h * capacity * e), (total, h, capacity, e))
            made[:, :, :used] = 0.0  # what nobody sees must still be a number
            for side, row in sides:
                old, n = getattr(side, name), side.at.trimmed.n
                made[row : row + old.shape[0], :, used - n : used] = old[:, :, side.at.n - n : side.at.n]
            new.append(made)
        at = self.at.trimmed.join(other.at.trimmed, self.k.shape[0], other.k.shape[0], left=True)
        return dataclasses.replace(self, k=new[0], v=new[1], at=at)

    def _gather_rows(self, name: str, old: Tensor, used: int, rows: Tensor) -> Tensor:
        shape = (rows.shape[0], *old.shape[1:])
        size = math.prod(shape)
        if name not in self._buffers or self._buffers[name][1].numel() < size:
            self._buffers[name] = (old.new_empty(size), old.new_empty(size))
        here, there = self._buffers[name]
        new = _time_first(there, shape)
        torch.index_select(_as_time_first(old)[:used], 1, rows, out=_as_time_first(new)[:used])
        self._buffers[name] = (there, here)
        return new

    def _grow(self, total: int) -> None:
        """Make space for this many tokens; the buffer doubles, so this is rare."""
        if total > self.k.shape[2]:
            for name in ("k", "v"):
                old = getattr(self, name)
                rows, h, _, e = old.shape
                new = _time_first(old.new_empty(rows * h * 2 * total * e), (rows, h, 2 * total, e))
                new[:, :, : self.at.n] = old[:, :, : self.at.n]
                setattr(self, name, new)
            self._buffers.clear()

    def cut(self, n: int) -> Self:
        if n > self.at.n:
            raise StateError(f"cannot keep {n} of {self.at.n} remembered tokens")
        self.at = self.at.cut(n)
        return self

    def copy(self) -> Self:
        """Return a copy with its own buffers, because new tokens are written into them."""
        return dataclasses.replace(self, k=self.k.clone(), v=self.v.clone())

    def flat(self, name: str = "") -> dict[str, Tensor]:
        """Leave out the unused part of the buffers."""
        k, v = (t[:, :, : self.at.n] for t in (self.k, self.v))
        return State.flat(dataclasses.replace(self, k=k, v=v), name)


NOWHERE = Coords(torch.empty(1, 0, dtype=torch.long), first=0)
"""Coordinates of no tokens. All layers start from this one object, so what they derive from it is computed once."""


def join_padded(a: Tensor, b: Tensor, dim: int, *, left: bool = False) -> Tensor:
    """Append the rows of b to those of a, which may be longer or shorter in `dim`; zeros fill the gap."""
    n, after = max(a.shape[dim], b.shape[dim]), (0, 0) * (a.dim() - 1 - dim)
    gaps = [(n - t.shape[dim], 0) if left else (0, n - t.shape[dim]) for t in (a, b)]
    return torch.cat([F.pad(t, (*after, *gap)) if any(gap) else t for t, gap in zip((a, b), gaps, strict=True)])


def _join(a: object, b: object, name: str) -> object:
    """A value of a state with the rows of another one appended."""
    if isinstance(a, State) and isinstance(b, State):
        return a.join(b)
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape[1:] == b.shape[1:]:
        return torch.cat([a, b])
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(_join(x, y, f"{name}.{i}") for i, (x, y) in enumerate(zip(a, b, strict=True)))
    if isinstance(a, dict) and isinstance(b, dict):  # a role without a state may be missing
        return {key: _join(a.get(key), b.get(key), f"{name}.{key}") for key in a | b}
    if a is None and b is None:
        return None
    if isinstance(a, int | float) and a == b:
        return a
    raise StateError(f"{name} of two states differs in more than rows; read a token with each before they are joined")


def _time_first(flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    """View the beginning of a flat buffer as (rows, h, n, e), with time first in memory."""
    rows, h, n, e = shape
    return flat[: math.prod(shape)].view(n, rows, h, e).permute(1, 2, 0, 3)


def _as_time_first(t: Tensor) -> Tensor:
    """View (rows, h, n, e) as (n, rows, h, e), which is its layout in memory."""
    return t.permute(2, 0, 1, 3)


def _flat(value: object, name: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in a value, with its dotted name."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, int | float):
        yield name, torch.tensor(value)
    elif isinstance(value, State):
        yield from value.flat(name).items()
    elif isinstance(value, Coords):
        yield from _flat(value.flat(), name)
    elif isinstance(value, tuple):
        yield from _flat(dict(enumerate(value)), name)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, _below(name, key))
    elif value is not None:
        raise StateError(f"{name} is a {type(value).__name__}, which cannot be written as tensors")


def _load_state(state: _S, tensors: Mapping[str, Tensor], name: str) -> _S:
    fields = [f.name for f in dataclasses.fields(state)]
    return dataclasses.replace(
        state, **{field: _load_flat(getattr(state, field), tensors, _below(name, field)) for field in fields}
    )


def _load_flat(value: object, tensors: Mapping[str, Tensor], name: str) -> object:
    """The value with tensors in place of its own, where there are some of its dotted name."""
    if isinstance(value, State):
        return _load_state(value, tensors, name)
    if isinstance(value, dict):
        return {key: _load_flat(inner, tensors, _below(name, key)) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(_load_flat(inner, tensors, _below(name, i)) for i, inner in enumerate(value))
    places = {key: f"{name}.{key}" for key in ("pos", *OPTIONAL, "facts")}
    if {places["pos"], places["facts"]} <= tensors.keys():
        return Coords.from_flat({key: tensors[place] for key, place in places.items() if place in tensors})
    if isinstance(value, int | float) and name in tensors:
        return type(value)(tensors[name].item())
    return tensors.get(name, value)


def _below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)
