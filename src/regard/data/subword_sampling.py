"""New segmentations of words in every epoch.

BPE dropout (Provilkov et al. 2020) and subword sampling (Kudo 2018). Every intermediate segmentation of a word is a node of a
graph whose edges are the steps of `text/lattice`. All words of a corpus walk through the graph in parallel, one step at a time:

    t·h·e  ──▶  th·e  ──▶  the           a random number chooses an edge, arrays give the next node;
           ╲          ╲                  Python code runs only when a node is reached for the first time
            t·he       stop

So each word is sampled independently and exactly in every epoch, at the cost of a few array operations per step. (A table of
some ready segmentations for each word type would be as fast, but wrong: segmentations not in the table would never occur.)
The graph is only a cache: clearing it, which happens when it is full, changes no segmentation.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.example_rng import Rng
from regard.data.ragged import Ragged
from regard.errors import SpecError
from regard.text import Tokenizer
from regard.text.lattice import Segmenter, State, build_segmenter

Indices = NDArray[np.int64]
S = TypeVar("S", bound=np.generic)

MAX_GRAPH = 1 << 23
"""Maximum number of token ids in all nodes of the graph."""
BLOCK = 1 << 18
"""Number of tokens whose words are processed in parallel."""
_NEW, _STOP = -1, -2  # edges not taken yet, and edges that end the walk


class SubwordSampler:
    """The words of tokenized texts, to be segmented anew by `sample`; with `share` 0 nothing changes."""

    def __init__(self, rows: Ragged, tokenizer: Tokenizer, share: float) -> None:
        self._segmenter = build_segmenter(tokenizer, share)
        joined = _find_joins(rows, self._segmenter)
        starts = np.flatnonzero(~joined)
        self._kinds, self._which = _find_types(rows.ids, starts)
        self._ends = np.searchsorted(starts, rows.ends)  # number of words up to the end of each text
        self._blocks = np.searchsorted(
            rows.ends, np.arange(0, len(rows.ids) + 1, BLOCK)
        )  # the first text of each block
        self._begin = [self._segmenter.start(kind.tolist()) for kind in self._kinds]
        if rows.ids.size and not any(self._begin):
            raise SpecError(
                "data.subword_sampling: this tokenizer does not segment words by its own vocabulary; remove the setting"
            )
        self._forget()

    def __len__(self) -> int:
        """The number of words."""
        return len(self._which)

    def sample(self, rng: Rng) -> Ragged:
        """Return all texts with randomly segmented words."""
        out, ends = list[Ragged](), np.append(0, self._ends)
        for first, last in pairwise([*self._blocks.tolist(), len(self._ends)]):
            which = self._which[ends[first] : ends[last]]
            drawn = self._graph.pieces(self._graph.walk(self._nodes(which), rng))
            out.append(Ragged(drawn.ids, np.append(0, drawn.ends)[ends[first + 1 : last + 1] - ends[first]]))
            if len(self._graph) > MAX_GRAPH:
                self._forget()
        return Ragged.concat(out)

    def _nodes(self, which: Indices) -> Indices:
        """Return the node where each word starts."""
        for kind in np.unique(which[self._start[which] == _NEW]).tolist():
            begin = self._begin[kind]
            self._start[kind] = self._graph.leaf(self._kinds[kind]) if begin is None else self._graph.node(begin)
        return self._start[which]

    def _forget(self) -> None:
        self._graph = _Graph(self._segmenter)
        self._start = np.full(len(self._kinds), _NEW, np.int64)


class _Graph:
    """States and the steps between them, in flat arrays that grow when new states are reached.

    The edges of a node are adjacent; an edge is taken if the random number is below its `upto`, but not below that of the
    previous edge. The last edge stops.
    """

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter
        self._known: dict[State, int] = {}
        self._ids, self._ends = array("i"), array("q")
        self._first, self._upto, self._to = array("q"), array("d"), array("q")

    def __len__(self) -> int:
        return len(self._ids)

    def leaf(self, state: Iterable[int]) -> int:
        """Add a node without steps."""
        return self._add(state, [])

    def node(self, state: State) -> int:
        """Return the node of a state; add it if it is new."""
        if (known := self._known.get(state)) is not None:
            return known
        steps = self._segmenter.steps(state)
        self._known[state] = made = self._add(state, [*accumulate(step[0] for step in steps)])
        return made

    def walk(self, starts: Indices, rng: Rng) -> Indices:
        """Return the final nodes of words that start at these nodes."""
        node, moving = starts.copy(), np.arange(len(starts))
        while len(moving):
            edge, drawn = _as_numpy(self._first, np.int64)[node[moving]], rng.uniform(len(moving))
            beyond, upto = np.arange(len(moving)), _as_numpy(self._upto, np.float64)
            while len(beyond := beyond[drawn[beyond] >= upto[edge[beyond]]]):
                edge[beyond] += 1
            del upto  # an array cannot grow while it is exported
            to = self._follow(edge)
            moving, to = moving[to != _STOP], to[to != _STOP]
            node[moving] = to
        return node

    def pieces(self, nodes: Indices) -> Ragged:
        """Return the states of nodes."""
        return Ragged(_as_numpy(self._ids, np.int32), _as_numpy(self._ends, np.int64)).take(nodes)

    def _add(self, state: Iterable[int], upto: list[float]) -> int:
        self._first.append(len(self._upto))
        self._ids.extend(state)
        self._ends.append(len(self._ids))
        self._upto.extend([*upto, 2.0])
        self._to.extend([*[_NEW] * len(upto), _STOP])
        return len(self._ends) - 1

    def _follow(self, edges: Indices) -> Indices:
        """Return the nodes that edges lead to; new nodes are added."""
        to = _as_numpy(self._to, np.int64)[edges]
        new = np.unique(edges[to == _NEW])
        owners = np.searchsorted(_as_numpy(self._first, np.int64), new, side="right") - 1
        for edge, owner in zip(new.tolist(), owners.tolist(), strict=True):
            state = tuple(self._ids[self._ends[owner - 1] if owner else 0 : self._ends[owner]])
            _, at, parts, piece = self._segmenter.steps(state)[edge - self._first[owner]]
            self._to[edge] = self.node((*state[:at], piece, *state[at + parts :]))
        return _as_numpy(self._to, np.int64)[edges] if len(new) else to


def _as_numpy(values: array[int] | array[float], dtype: type[S]) -> NDArray[S]:
    """View a Python array as a NumPy array."""
    return np.frombuffer(values, dtype) if len(values) else np.empty(0, dtype)


def _find_joins(rows: Ragged, segmenter: Segmenter) -> NDArray[np.bool_]:
    """Return for every token whether a piece may span the boundary before it."""
    ends = np.asarray(segmenter.ends, np.int64)
    base = int(ends.max()) + 2
    bonds = np.sort(np.array([(a + 1) * base + b + 1 for a, b in segmenter.bonds], np.int64))
    joined = np.zeros(len(rows.ids), bool)
    joined[1:] = np.isin((ends[rows.ids[:-1], 1] + 1) * base + ends[rows.ids[1:], 0] + 1, bonds)
    joined[rows.ends[rows.ends < len(rows.ids)]] = False
    joined[:1] = False
    return joined


def _find_types(ids: NDArray[np.int32], starts: Indices) -> tuple[Ragged, Indices]:
    """Return the distinct words among those that begin at `starts`, and the index of each word among them."""
    raw, ends = ids.tobytes(), np.append(starts[1:], len(ids))[: len(starts)]
    numbers: dict[bytes, int] = {}
    spans = zip((4 * starts).tolist(), (4 * ends).tolist(), strict=True)
    which = np.fromiter((numbers.setdefault(raw[a:b], len(numbers)) for a, b in spans), np.int64, len(starts))
    return Ragged.of([np.frombuffer(word, np.int32) for word in numbers]), which
