"""What a layer remembers between calls: a small dataclass of its own, batch first.

A mixer makes its state with `start(rows, capacity)`; a call consumes the state it is given and returns the next one.
Tensors marked `moving` belong to a hypothesis, those marked `fixed` to a sentence: with three hypotheses of each of two
sentences, moving tensors have six rows, fixed ones two, and reordering a beam never copies what belongs to the sentence.

    rows        0  1  2 | 3  4  5      select(rows=[0, 0, 2, 4, 3, 3]) gathers the moving tensors only
    sentences      0    |    1         select(rows=[3, 4, 5], sentences=[1]) lets sentence 0 leave
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from regard.errors import StateError
from regard.nn.core.coords import OPTIONAL, Coords


def moving(**kw: Any) -> Any:
    """A tensor with a row for every hypothesis."""
    return dataclasses.field(metadata={"moves": True}, **kw)


def fixed(**kw: Any) -> Any:
    """A tensor with a row for every sentence."""
    return dataclasses.field(metadata={"moves": False}, **kw)


@dataclasses.dataclass
class State:
    """Base of every state. Walks its own fields: tensors, coordinates, other states, and tuples or dicts of them."""

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> Self:
        """Keep or repeat hypotheses `rows` (and, when sentences leave, those `sentences`)."""

        def pick(value: Any, moves: bool) -> Any:
            index = rows if moves else sentences
            if index is None:
                return value
            return value.select(index) if isinstance(value, Coords) else value.index_select(0, index)

        return self._walk(pick, lambda state: state.select(rows, sentences))

    def detach(self) -> Self:
        """The same values, cut from the graph."""
        return self._walk(lambda v, _: v if isinstance(v, Coords) else v.detach(), lambda state: state.detach())

    def to(self, device: torch.device | str) -> Self:
        return self._walk(lambda v, _: v.to(device), lambda state: state.to(device))

    def cut(self, n: int) -> Self:
        """Forget all but the first `n` tokens. A state with moving tensors of its own says how, or cannot."""

        def keep(value: Any, moves: bool) -> Any:
            if moves:
                raise StateError(f"{type(self).__name__} cannot go back to {n} tokens; run them again from the start")
            return value

        return self._walk(keep, lambda state: state.cut(n))

    def copy(self) -> Self:
        """The same tensors in a state of its own: a call that consumes one leaves the other as it was."""
        return self._walk(lambda v, _: v, lambda state: state.copy())

    def flat(self, name: str = "") -> dict[str, Tensor]:
        """What it remembers, by dotted name below `name`: for the checkpoint of a run that carries state."""
        return dict(_flat({f.name: getattr(self, f.name) for f in dataclasses.fields(self)}, name))

    def load_flat(self, tensors: Mapping[str, Tensor]) -> Self:
        """A state of this shape, fresh from `start`, with what `flat` gave in it."""
        new: Self = _load_flat(self, tensors, "")
        wanted, got = set(new.flat()), set(tensors)
        if wanted != got:
            lacks, odd = (", ".join(sorted(names)) or "nothing" for names in (wanted - got, got - wanted))
            raise StateError(f"these are the tensors of another {type(self).__name__}: missing {lacks}; unknown {odd}")
        return new

    def _walk(self, leaf: Callable[[Any, bool], Any], below: Callable[[State], State]) -> Self:
        def visit(value: Any, moves: bool) -> Any:
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
    """Keys and values (rows, h, n, e) of all tokens so far, in buffers with room to grow; `at` says where they stand.

    In memory time comes first: a newcomer is one block, and so is what is read when hypotheses change places. For that there
    is a second buffer, and the two take turns; rows that leave make room in both, and neither is ever allocated again.
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
        """Append the newcomers, whose coordinates are the last of `at`; returns all keys and values so far."""
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
        """`add` for one token a row, k and v (rows, h, e), where no graph is made: the same in half the calls."""
        total = at.n
        self._grow(total)
        self.k.select(2, total - 1).copy_(k)
        self.v.select(2, total - 1).copy_(v)
        self.at = at
        return self.k.narrow(2, 0, total), self.v.narrow(2, 0, total)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> Self:
        """From one buffer into the other, unless a graph needs them as they are."""
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
        """Make room for so many tokens: twice as much, so that it is seldom needed."""
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
            raise StateError(f"cannot keep {n} tokens of {self.at.n} remembered")
        self.at = self.at.cut(n)
        return self

    def copy(self) -> Self:
        """With buffers of its own: newcomers are written into them."""
        return dataclasses.replace(self, k=self.k.clone(), v=self.v.clone())

    def flat(self, name: str = "") -> dict[str, Tensor]:
        """Without the room to grow, in which nothing is written yet."""
        k, v = (t[:, :, : self.at.n] for t in (self.k, self.v))
        return State.flat(dataclasses.replace(self, k=k, v=v), name)


NOWHERE = Coords(torch.empty(1, 0, dtype=torch.long), first=0)
"""Coordinates of nothing. All layers start from this one object, so what they derive from it is computed once."""


def _time_first(flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Room for (rows, h, n, e), with time first in memory, at the beginning of a flat buffer."""
    rows, h, n, e = shape
    return flat[: math.prod(shape)].view(n, rows, h, e).permute(1, 2, 0, 3)


def _as_time_first(t: Tensor) -> Tensor:
    """(rows, h, n, e) as (n, rows, h, e), which is how it lies in memory."""
    return t.permute(2, 0, 1, 3)


def _flat(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
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


def _load_flat(value: Any, tensors: Mapping[str, Tensor], name: str) -> Any:
    """The value with tensors in place of its own, where there are some of its dotted name."""
    if isinstance(value, State):
        own = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **_load_flat(own, tensors, name))
    if isinstance(value, dict):
        return {key: _load_flat(inner, tensors, _below(name, key)) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(_load_flat(dict(enumerate(value)), tensors, name).values())
    places = {key: f"{name}.{key}" for key in ("pos", *OPTIONAL, "facts")}
    if {places["pos"], places["facts"]} <= tensors.keys():
        return Coords.from_flat({key: tensors[place] for key, place in places.items() if place in tensors})
    if isinstance(value, int | float) and name in tensors:
        return type(value)(tensors[name].item())
    return tensors.get(name, value)


def _below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)
