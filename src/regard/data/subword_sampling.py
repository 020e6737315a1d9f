"""Texts whose words are cut in other ways each epoch: BPE dropout (Provilkov et al. 2020), subword sampling (Kudo 2018).

A corpus becomes a row of word types, and every state a word can be in on its way to being cut is a node of a graph, whose
edges are the steps of `text/subwords`. All words of a corpus walk through it side by side, a step at a time:

    t·h·e  ──▶  th·e  ──▶  the           an edge is taken by one number of an array, the next node read from another;
           ╲          ╲                  Python sees a node only when a word gets there for the first time
            t·he       stop

So each word is drawn for itself and exactly, in every epoch anew, at the price of a few array operations a step. (A table of
some ready cuts for each type would be as quick, and wrong: whatever was not drawn when it was made could never be seen.)
The graph is memory, not chance: forgetting it, which happens when it is full, changes no cut.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.example_rng import Rng
from regard.data.ragged import Ragged
from regard.errors import SpecError
from regard.text import Tokenizer
from regard.text.lattice import Segmenter, State, build_segmenter

Indices = NDArray[np.int64]

MAX_GRAPH = 1 << 23
"""Parts of words, in all states that are remembered."""
BLOCK = 1 << 18
"""Tokens whose words walk side by side."""
_NEW, _STOP = -1, -2  # edges that nobody has taken yet, and those that lead nowhere


class SubwordSampler:
    """The words of some texts, to be cut anew by `sample`; `share` 0 leaves them as they are."""

    def __init__(self, rows: Ragged, tokenizer: Tokenizer, share: float) -> None:
        self._segmenter = build_segmenter(tokenizer, share)
        joined = _find_joins(rows, self._segmenter)
        starts = np.flatnonzero(~joined)
        self._kinds, self._which = _find_types(rows.ids, starts)
        self._ends = np.searchsorted(starts, rows.ends)  # words up to the end of each text
        self._blocks = np.searchsorted(rows.ends, np.arange(0, len(rows.ids) + 1, BLOCK))  # the first text of each
        self._begin = [self._segmenter.start(kind.tolist()) for kind in self._kinds]
        if rows.ids.size and not any(self._begin):
            raise SpecError(
                "data.subword_sampling: this tokenizer cuts no word as its own vocabulary says; leave it out"
            )
        self._forget()

    def __len__(self) -> int:
        """How many words there are."""
        return len(self._which)

    def sample(self, rng: Rng) -> Ragged:
        """All texts, every word cut by chance."""
        out, ends = list[Ragged](), np.append(0, self._ends)
        for first, last in pairwise([*self._blocks.tolist(), len(self._ends)]):
            which = self._which[ends[first] : ends[last]]
            drawn = self._graph.pieces(self._graph.walk(self._nodes(which), rng))
            out.append(Ragged(drawn.ids, np.append(0, drawn.ends)[ends[first + 1 : last + 1] - ends[first]]))
            if len(self._graph) > MAX_GRAPH:
                self._forget()
        return Ragged.concat(out)

    def _nodes(self, which: Indices) -> Indices:
        """Where each word begins its walk."""
        for kind in np.unique(which[self._start[which] == _NEW]).tolist():
            begin = self._begin[kind]
            self._start[kind] = self._graph.leaf(self._kinds[kind]) if begin is None else self._graph.node(begin)
        return self._start[which]

    def _forget(self) -> None:
        self._graph = _Graph(self._segmenter)
        self._start = np.full(len(self._kinds), _NEW, np.int64)


class _Graph:
    """States and the steps between them, in flat arrays that grow as words get there.

    A node's edges follow one another; an edge is taken if the number drawn is below its `upto`, and not below that of the
    edge before it. The last is to stop.
    """

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter
        self._known: dict[State, int] = {}
        self._ids, self._ends = array("i"), array("q")
        self._first, self._upto, self._to = array("q"), array("d"), array("q")

    def __len__(self) -> int:
        return len(self._ids)

    def leaf(self, state: Iterable[int]) -> int:
        """A new node from which no step leads."""
        return self._add(state, [])

    def node(self, state: State) -> int:
        """The node of a state, new or not."""
        if (known := self._known.get(state)) is not None:
            return known
        steps = self._segmenter.steps(state)
        self._known[state] = made = self._add(state, [*accumulate(step[0] for step in steps)])
        return made

    def walk(self, starts: Indices, rng: Rng) -> Indices:
        """The nodes at which words that begin at these come to a stop."""
        node, moving = starts.copy(), np.arange(len(starts))
        while len(moving):
            edge, drawn = _as_numpy(self._first, np.int64)[node[moving]], rng.uniform(len(moving))
            beyond, upto = np.arange(len(moving)), _as_numpy(self._upto, np.float64)
            while len(beyond := beyond[drawn[beyond] >= upto[edge[beyond]]]):
                edge[beyond] += 1
            del upto  # what is being looked at cannot grow
            to = self._follow(edge)
            moving, to = moving[to != _STOP], to[to != _STOP]
            node[moving] = to
        return node

    def pieces(self, nodes: Indices) -> Ragged:
        """The states of some nodes."""
        return Ragged(_as_numpy(self._ids, np.int32), _as_numpy(self._ends, np.int64)).take(nodes)

    def _add(self, state: Iterable[int], upto: list[float]) -> int:
        self._first.append(len(self._upto))
        self._ids.extend(state)
        self._ends.append(len(self._ids))
        self._upto.extend([*upto, 2.0])
        self._to.extend([*[_NEW] * len(upto), _STOP])
        return len(self._ends) - 1

    def _follow(self, edges: Indices) -> Indices:
        """The nodes that edges lead to; those that nobody has been at are made."""
        to = _as_numpy(self._to, np.int64)[edges]
        new = np.unique(edges[to == _NEW])
        owners = np.searchsorted(_as_numpy(self._first, np.int64), new, side="right") - 1
        for edge, owner in zip(new.tolist(), owners.tolist(), strict=True):
            state = tuple(self._ids[self._ends[owner - 1] if owner else 0 : self._ends[owner]])
            _, at, parts, piece = self._segmenter.steps(state)[edge - self._first[owner]]
            self._to[edge] = self.node((*state[:at], piece, *state[at + parts :]))
        return _as_numpy(self._to, np.int64)[edges] if len(new) else to


def _as_numpy(values: Any, dtype: Any) -> NDArray[Any]:
    """An array of Python's as one of numpy's, without a copy."""
    return np.frombuffer(values, dtype) if len(values) else np.empty(0, dtype)


def _find_joins(rows: Ragged, segmenter: Segmenter) -> NDArray[np.bool_]:
    """For every token, whether some piece may span the place between it and the one before it."""
    ends = np.asarray(segmenter.ends, np.int64)
    base = int(ends.max()) + 2
    bonds = np.sort(np.array([(a + 1) * base + b + 1 for a, b in segmenter.bonds], np.int64))
    joined = np.zeros(len(rows.ids), bool)
    joined[1:] = np.isin((ends[rows.ids[:-1], 1] + 1) * base + ends[rows.ids[1:], 0] + 1, bonds)
    joined[rows.ends[rows.ends < len(rows.ids)]] = False
    joined[:1] = False
    return joined


def _find_types(ids: NDArray[np.int32], starts: Indices) -> tuple[Ragged, Indices]:
    """The different words among those that begin at `starts`, and which of them each is."""
    raw, ends = ids.tobytes(), np.append(starts[1:], len(ids))[: len(starts)]
    numbers: dict[bytes, int] = {}
    spans = zip((4 * starts).tolist(), (4 * ends).tolist(), strict=True)
    which = np.fromiter((numbers.setdefault(raw[a:b], len(numbers)) for a, b in spans), np.int64, len(starts))
    return Ragged.of([np.frombuffer(word, np.int32) for word in numbers]), which
