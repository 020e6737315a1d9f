"""How many ways a regular expression can read one text.

A backtracking matcher tries every way in which a pattern can read a text before it gives up. The pattern becomes an automaton
over classes of letters, and the ways are counted by two questions about pairs of its states (Weber and Seidl 1991, for finite
automata; Weideman et al. 2016, for matchers):

    exponential   a state comes back to itself over one word in two ways              (a+)+b
    quadratic     a state comes back to itself and reaches another one that comes      \\s*(.*?)\\s*x
                  back to itself, all over one word

A search begins anywhere, which is a state that comes back to itself over every word: `\\s*x` is quadratic under search. Ways
that end in a match whatever follows, or that pass one each time round, are not tried again, and do not count. A possessive
repetition of a set of letters goes on only before a letter outside the set; other atomic groups count as ordinary ones, which
has more ways, not fewer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Literal

Mode = Literal["search", "match", "fullmatch"]
MANY = 64
"""Repetitions from which a limit of them counts as none."""
COPIES = 2
"""Copies of what is repeated a limited number of times: more of them add constant factors only."""
LETTERS = [
    *map(chr, range(0x250)),
    *"\u0301\u0410\u0430\u0660\u0967\u2003\u2028\u2581\u3002\u3042\u4e00\uac00\ufeff\uff01\U0001f600",
]
"""Letters whose classes stand for all: ASCII, Latin, and one or two of every category; those of the pattern come on top."""
END, BEGIN = -1, -1
Letters = frozenset[int]


@dataclass(frozen=True)
class Fault:
    """A pattern's ways of reading `pump` repeated, and why they are tried."""

    growth: Literal["exponential", "quadratic"]
    mode: Mode
    pump: str

    def __str__(self) -> str:
        return f"{self.growth} under {self.mode}, on {self.pump!r} repeated"


@dataclass
class _Edge:
    """A step that reads nothing, or a letter of a set."""

    target: int
    letters: Letters | None = None
    before: Letters | None = None
    after: Letters | None = None
    seen: bool = True
    """False: a lookaround of several letters stands here, so this way may be closed."""


@dataclass
class Automaton:
    """The states of a pattern; letters are classes that it cannot tell apart."""

    pattern: str
    flags: int = 0
    edges: dict[int, list[_Edge]] = field(default_factory=lambda: defaultdict(list))
    states: int = 0

    def __post_init__(self) -> None:
        tree = _parser.parse(self.pattern, self.flags)
        self.flags |= tree.state.flags
        self._atoms: dict[str, tuple[Any, int]] = {}
        alphabet = {*LETTERS}
        self._collect(tree, self.flags, alphabet)
        self._atoms |= {
            "w": ((sre.IN, [(sre.CATEGORY, sre.CATEGORY_WORD)]), self.flags),
            "n": ((sre.LITERAL, 10), 0),
        }
        classes: dict[tuple[bool, ...], str] = {}
        tests = list(self._atoms.values())
        for letter in sorted(alphabet, key=lambda x: (not x.isascii(), not x.isprintable(), x)):
            classes.setdefault(tuple(_is_in(letter, op, flags) for op, flags in tests), letter)
        self.letters = list(classes.values())
        self.sets = {
            key: frozenset(at for at, member in enumerate(classes) if member[place])
            for place, key in enumerate(self._atoms)
        }
        self.all: Letters = frozenset(range(len(self.letters)))
        self.groups: dict[int, Any] = {}
        self.start = self._state()
        self.accept = self._add(tree, self.start, self.flags)
        self.remembers = any(edge.before is not None for edges in self.edges.values() for edge in edges)

    def _state(self) -> int:
        self.states += 1
        return self.states

    def _collect(self, tree: Any, flags: int, alphabet: set[str]) -> None:
        """Note every set of letters in the pattern, and the letters at its borders."""
        for op, value in tree:
            if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
                self._atoms[repr((op, value, flags))] = ((op, value), flags)
                for kind, found in [(op, value)] if op is not sre.IN else value:
                    numbers = found if kind is sre.RANGE else (found,) if isinstance(found, int) else ()
                    near = {n + by for n in numbers if not isinstance(n, type(sre.IN)) for by in (-1, 0, 1)}
                    alphabet |= {chr(n) for n in near if 0 <= n < 0x110000}
                    alphabet |= {f(chr(n))[0] for n in near if 0 <= n < 0x110000 for f in (str.lower, str.upper)}
            for inner, its_flags in _children(op, value, flags):
                self._collect(inner, its_flags, alphabet)

    def _add(self, tree: Any, at: int, flags: int) -> int:
        for op, value in tree:
            at = self._add_one(op, value, at, flags)
        return at

    def _link(self, at: int, target: int, **conditions: Any) -> int:
        self.edges[at].append(_Edge(target, **conditions))
        return target

    def _add_one(self, op: Any, value: Any, at: int, flags: int) -> int:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            return self._link(at, self._state(), letters=self.sets[repr((op, value, flags))])
        if op is sre.SUBPATTERN:
            group, on, off, inner = value
            self.groups[group] = (inner, (flags | on) & ~off)
            return self._add(inner, at, (flags | on) & ~off)
        if op is sre.ATOMIC_GROUP:
            return self._add(value, at, flags)
        if op is sre.BRANCH:
            end = self._state()
            for inner in value[1]:
                self._link(self._add(inner, self._link(at, self._state()), flags), end)
            return end
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            return self._repeat(op, *value, at, flags)
        if op is sre.GROUPREF:  # it reads what its group read: some word that the group can read
            return self._add(self.groups[value][0], at, self.groups[value][1])
        if op is sre.AT:
            return self._place(value, at, flags)
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return self._look(op, *value, at, flags)
        raise ValueError(f"{self.pattern!r}: {op} is not known here")

    def _repeat(self, op: Any, least: int, most: int, inner: Any, at: int, flags: int) -> int:
        endless = most is sre.MAXREPEAT or most > MANY
        for _ in range(min(least, COPIES)):
            at = self._add(inner, at, flags)
        end = self._state()
        if endless:
            loop = self._link(at, self._state())
            self._link(self._add(inner, loop, flags), loop)
            one = _one_set(inner)
            stops = self.all - self.sets[repr((*one, flags))] | {END} if one and op is sre.POSSESSIVE_REPEAT else None
            return self._link(loop, end, after=stops)
        for _ in range(min(most, COPIES) - min(least, COPIES)):
            self._link(at, end)
            at = self._add(inner, at, flags)
        return self._link(at, end)

    def _place(self, value: Any, at: int, flags: int) -> int:
        end, word, newline = self._state(), self.sets["w"], self.sets["n"]
        other = self.all - word
        if value in (sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY):
            same = value is sre.AT_NON_BOUNDARY
            self._link(at, end, before=word, after=word if same else other | {END})
            return self._link(at, end, before=other | {BEGIN}, after=other | {END} if same else word)
        if value in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            return self._link(
                at, end, before={BEGIN} | (newline if flags & re.MULTILINE and value is sre.AT_BEGINNING else set())
            )
        if value is sre.AT_END and flags & re.MULTILINE:
            return self._link(at, end, after=newline | {END})
        return self._link(
            at, end, after=frozenset({END})
        )  # `$` before a last newline is one letter more: the same growth

    def _look(self, op: Any, way: int, inner: Any, at: int, flags: int) -> int:
        one, end = _one_set(inner), self._state()
        if one:
            letters = self.sets[repr((*one, flags))]
            letters = self.all - letters | {END} if op is sre.ASSERT_NOT else letters
            return self._link(at, end, **{"before" if way < 0 else "after": letters})
        if way > 0:
            self._add(inner, self._link(at, self._state()), flags)  # read beside the rest, and it leads nowhere
        last = _one_set(list(inner)[-1:]) if way < 0 and op is sre.ASSERT else None  # what it ends with stands before
        return self._link(at, end, seen=False, before=self.sets[repr((*last, flags))] if last else None)

    def ways(self, state: int, before: int, letter: int, *, sure: bool = False) -> list[int]:
        """States reached by reading a letter, once for each way; `sure` leaves out ways that may be closed."""
        return [
            edge.target
            for at in self._silent(state, before, letter, sure)
            for edge in self.edges.get(at, ())
            if edge.letters is not None and letter in edge.letters
        ]

    def accepts(self, state: int, before: int, after: int) -> bool:
        return self.accept in self._silent(state, before, after, sure=True)

    def _silent(self, state: int, before: int, after: int, sure: bool) -> list[int]:
        """States reached by reading nothing, once for each way that takes no step twice."""
        found: list[int] = []

        def walk(at: int, used: frozenset[int]) -> None:
            found.append(at)
            for edge in self.edges.get(at, ()):
                if edge.letters is not None or id(edge) in used or (sure and not edge.seen):
                    continue
                if (edge.before is None or before in edge.before) and (edge.after is None or after in edge.after):
                    walk(edge.target, used | {id(edge)})

        walk(state, frozenset())
        return found


Node = tuple[int, int]
"""A state (0: the search has not begun to read), and the letter before it if the pattern looks at that."""


class _Graph:
    """The steps of a matcher over letters."""

    def __init__(self, automaton: Automaton, mode: Mode) -> None:
        self.automaton, self.mode = automaton, mode
        self.first: Node = (0 if mode == "search" else automaton.start, BEGIN)
        self.steps: dict[Node, dict[int, list[Node]]] = {}
        self.words: dict[Node, list[int]] = {self.first: []}
        queue = [self.first]
        for node in queue:
            self.steps[node] = {letter: self._next(node, letter) for letter in automaton.all}
            for letter, found in self.steps[node].items():
                for other in found:
                    if other not in self.words:
                        self.words[other] = [*self.words[node], letter]
                        queue.append(other)
        self.reach = {node: self._reach(node) for node in self.steps}
        self.failing = {
            node: {letter: [] if self._matches(node, letter) else others for letter, others in found.items()}
            for node, found in self.steps.items()
        }
        """Steps, without those after a match: a matcher that goes on from there has something to return to."""

    def _next(self, node: Node, letter: int) -> list[Node]:
        state, before = node
        kept = letter if self.automaton.remembers else 0
        found = self.automaton.ways(state or self.automaton.start, before, letter)
        return [(to, kept) for to in found] + ([(0, kept)] if not state else [])

    def _matches(self, node: Node, letter: int) -> bool:
        return bool(node[0]) and self.mode != "fullmatch" and self.automaton.accepts(*node, letter)

    def _reach(self, node: Node) -> set[Node]:
        found, queue = set(), [node]
        for at in queue:
            for others in self.steps[at].values():
                new = {*others} - found
                found |= new
                queue += new
        return found

    def never_fails(self, node: Node) -> bool:
        """Whether a matcher that came round to this state finds a match whatever follows.

        It may find it from another state that the same letter leads to.
        """
        home = [other for other in self.reach[node] if node in self.reach[other]]
        groups = [frozenset(found) for other in home for found in self.steps[other].values() if node in found]
        return all(map(self._always_matches, groups))

    @cache  # noqa: B019  (a graph is small and does not live long)
    def _always_matches(self, group: frozenset[Node]) -> bool:
        """Whether the matcher finds a match from one of these states whatever follows."""
        automaton, queue = self.automaton, [group]
        known = {*queue}
        for group in queue:
            if not any(automaton.accepts(state, before, END) for state, before in group):
                return False
            for letter in automaton.all:
                if self.mode != "fullmatch" and any(automaton.accepts(s, before, letter) for s, before in group):
                    continue
                kept = letter if automaton.remembers else 0
                into = frozenset(
                    (to, kept) for s, before in group for to in automaton.ways(s, before, letter, sure=True)
                )
                if not into:
                    return False
                if into not in known:
                    known.add(into)
                    queue.append(into)
        return True

    def loops(self) -> list[Node]:
        return [node for node in self.steps if node in self.reach[node]]


def find_fault(pattern: str, mode: Mode, flags: int = 0) -> Fault | None:
    """A word that the pattern can read in more ways the longer it is repeated, before it fails; None if there is none."""
    graph = _Graph(Automaton(pattern, flags), mode)
    loops = [node for node in graph.loops() if not node[0] or not graph.never_fails(node)]
    for node in loops:
        if node[0] and (word := _two_ways(graph, node)):
            return Fault("exponential", mode, _spell(graph, word))
    for one, two in product(loops, loops):
        if one != two and two[0] and two in graph.reach[one] and (word := _three_ways(graph, one, two)):
            return Fault("quadratic", mode, _spell(graph, word))
    return None


def _spell(graph: _Graph, word: list[int]) -> str:
    return "".join(graph.automaton.letters[letter] for letter in word)


def _two_ways(graph: _Graph, node: Node) -> list[int] | None:
    """A word over which a state comes back to itself in two ways."""
    home = {other for other in graph.reach[node] if node in graph.reach[other]}
    queue: list[tuple[Node, Node, bool, list[int]]] = [(node, node, False, [])]
    known = {(node, node, False)}
    for one, two, parted, word in queue:
        for letter in graph.automaton.all:
            lefts, rights = graph.failing[one][letter], graph.failing[two][letter]
            twice = one == two and len(lefts) > len({*lefts})
            for left, right in product({*lefts} & home, {*rights} & home):
                apart = parted or left != right or (twice and lefts.count(left) > 1)
                if apart and left == right == node:
                    return [*word, letter]
                if (left, right, apart) not in known:
                    known.add((left, right, apart))
                    queue.append((left, right, apart, [*word, letter]))
    return None


def _three_ways(graph: _Graph, one: Node, two: Node) -> list[int] | None:
    """A word over which `one` comes back to itself and reaches `two`, and `two` comes back to itself."""
    homes = [{n for n in graph.reach[x] if x in graph.reach[n]} for x in (one, two)]
    between = {n for n in graph.reach[one] if two in graph.reach[n] or n == two}
    first = (one, one, two)
    queue: list[tuple[tuple[Node, Node, Node], list[int]]] = [(first, [])]
    known = {first}
    for (left, middle, right), word in queue:
        for letter in graph.automaton.all:
            lefts, rights = {*graph.steps[left][letter]} & homes[0], {*graph.failing[right][letter]} & homes[1]
            for at in product(lefts, {*graph.steps[middle][letter]} & between, rights):
                if at == (one, two, two):
                    return [*word, letter]
                if at not in known:
                    known.add(at)
                    queue.append((at, [*word, letter]))
    return None


def hard_texts(pattern: str, flags: int, mode: Mode, length: int) -> Iterator[str]:
    """Texts of about this length for a clock: a way into each loop, a short word repeated, and an end that may not match."""
    graph = _Graph(Automaton(pattern, flags), mode)
    letters = graph.automaton.letters
    starts = {_spell(graph, graph.words[node]) for node in graph.loops()}
    pumps = {*letters, *map("".join, product(letters, letters))}
    for start, pump, end in product(sorted(starts), sorted(pumps), ["", *letters]):
        yield start + pump * (length // len(pump)) + end


def _one_set(tree: Any) -> tuple[Any, Any] | None:
    """The set of letters, if this is one."""
    items = list(tree)
    if len(items) == 1 and items[0][0] is sre.SUBPATTERN and not items[0][1][1] and not items[0][1][2]:
        return _one_set(items[0][1][3])
    ops = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
    return (items[0][0], items[0][1]) if len(items) == 1 and items[0][0] in ops else None


def _children(op: Any, value: Any, flags: int) -> list[tuple[Any, int]]:
    if op is sre.SUBPATTERN:
        return [(value[3], (flags | value[1]) & ~value[2])]
    if op is sre.BRANCH:
        return [(inner, flags) for inner in value[1]]
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [(value[2], flags)]
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return [(value[1], flags)]
    return [(value, flags)] if op is sre.ATOMIC_GROUP else []


_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


def _is_in(letter: str, atom: tuple[Any, Any], flags: int) -> bool:
    op, value = atom
    cases = {letter, letter.lower(), letter.upper()} if flags & re.IGNORECASE else {letter}
    if op is sre.ANY:
        return bool(flags & re.DOTALL) or letter != "\n"
    if op is sre.LITERAL:
        return chr(value) in cases
    if op is sre.NOT_LITERAL:
        return chr(value) not in cases
    found = negate = False
    for kind, what in value:
        if kind is sre.NEGATE:
            negate = True
        elif kind is sre.LITERAL:
            found |= chr(what) in cases
        elif kind is sre.RANGE:
            found |= any(len(case) == 1 and what[0] <= ord(case) <= what[1] for case in cases)
        else:
            found |= re.match(_CATEGORIES[what], letter, flags & re.ASCII) is not None
    return found != negate
