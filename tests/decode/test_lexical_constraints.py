"""Terms that must be written: every output has them, nothing else changes, and a beam wide enough finds the best there is."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decode import Constraints, Hypothesis, Request, Search, generate, score
from regard.decode.lexical_constraints import MAX_BEAM, TermConstraint, interleave_needs, widen_beam
from regard.errors import DataError, SpecError
from tests.decode.toys import EOS, MARKS, Oracle, close, random_says, some_sources, tiny

pytestmark = pytest.mark.numeric

words = st.integers(3, 6)
terms = st.lists(st.lists(words, min_size=1, max_size=3), max_size=3)


def holds(tokens: Sequence[int], term: Sequence[int]) -> bool:
    return any(tuple(tokens[i : i + len(term)]) == tuple(term) for i in range(len(tokens) - len(term) + 1))


@settings(max_examples=40)
@given(
    st.integers(0, 10**6), st.integers(1, 5), st.lists(terms, min_size=4, max_size=4), st.integers(9, 14),
    st.floats(-3, 3), st.booleans(), st.booleans(),
)  # fmt: skip
def test_every_output_has_its_terms(
    seed: int, beam: int, must: list[list[list[int]]], longest: int, bias: float, guard: bool, forced: bool
) -> None:
    """Also with a beginning that is forced, and where terms overlap, repeat or hold one another."""
    sources, oracle = some_sources(seed, 4, 7), Oracle(random_says(seed, 7, bias), 7)
    prefixes = [[3], [], [4, 3], [5, 5]] if forced else None
    search = Search(beam=beam, n_best=beam, max_extra=11, max_length=longest, repetition_guard=guard)
    try:
        found = generate([oracle], Request(sources, search, MARKS, Constraints(prefixes=prefixes, must_include=must)))  # type: ignore[list-item]
    except DataError as error:
        assert "there is room for" in str(error)
        assert max(sum(map(len, row)) for row in must) + 2 * forced > 9
        return
    for row, prefix, hypotheses in zip(must, prefixes or [[]] * 4, found, strict=True):
        assert hypotheses
        for h in hypotheses:
            assert all(holds(h.tokens, term) for term in row)
            assert list(h.tokens[: len(prefix)]) == prefix


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.sampled_from([1, 4]))
def test_a_row_is_the_same_alone_and_without_terms_it_is_as_ever(seed: int, beam: int) -> None:
    net, sources, search = tiny(seed), some_sources(seed, 6), Search(beam=beam, max_extra=8)
    must = [[], [[4, 5]], [[3], [8, 7]], [], [[6, 6, 6]], [[4], [4, 5]]]
    found = generate([net], Request(sources, search, MARKS, Constraints(must_include=must)))
    free = generate([net], Request(sources, search, MARKS))
    for source, row, each, without in zip(sources, must, found, free, strict=True):
        if not row:
            assert close(each, without)
        assert close(each, generate([net], Request([source], search, MARKS, Constraints(must_include=[row])))[0])
        ended = len(each[0].tokens) < search.limit(len(source))
        target = [*each[0].tokens, EOS] if ended else each[0].tokens
        assert each[0].log_prob == pytest.approx(score(net, [source], [target], MARKS)[0])


@pytest.mark.parametrize("row", [[[3]], [[4, 3]], [[3, 3], [4]], [[4, 4], [3]], [[3, 4, 3]]])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_as_wide_as_all_outputs_finds_the_best_of_those_with_the_terms(row: list[list[int]], seed: int) -> None:
    says, source, limit = random_says(seed, 5), (3, 3, 3, 3, EOS), 5
    search = Search(beam=90, n_best=90, alpha=0.8, max_extra=0, max_length=limit, repetition_guard=False)
    wanted = []
    for n in range(limit + 1):
        for written in itertools.product((3, 4), repeat=n):
            if all(holds(written, term) for term in row):
                path = written if n == limit else (*written, EOS)
                said = torch.tensor([says(source, path[:i]) for i in range(len(path))], dtype=torch.float64)
                total = float(said.log_softmax(-1).gather(1, torch.tensor(path).view(-1, 1)).sum())
                wanted.append(Hypothesis(written, total, total / search.divisor(len(path))))
    wanted.sort(key=lambda h: -h.score)
    (found,) = generate([Oracle(says, 5)], Request([list(source)], search, MARKS, Constraints(must_include=[row])))  # type: ignore[list-item]
    assert close(found, wanted)


def test_a_term_that_the_model_wants_anyway_changes_nothing() -> None:
    net, sources = tiny(3), some_sources(3, 8)
    search = Search(beam=6, max_extra=8)
    free = generate([net], Request(sources, search, MARKS))
    must = [[h.tokens[1:3]] if len(h.tokens) > 2 else [] for (h,) in free]
    assert sum(map(bool, must)) > 2
    found = generate([net], Request(sources, search, MARKS, Constraints(must_include=must)))
    assert all(new[0].score >= old[0].score - 1e-9 for old, new in zip(free, found, strict=True))


def test_the_guard_lets_a_term_repeat_itself() -> None:
    loud = Oracle(lambda source, written: [-9.0, -9.0, -9.0, -9.0, 0.0, -9.0], 6)
    ((h,),) = generate([loud], Request([[5, EOS]], Search(beam=2), MARKS, Constraints(must_include=[[[4] * 12]])))  # type: ignore[list-item]
    assert holds(h.tokens, [4] * 12)
    assert not holds(h.tokens, [4] * 13)


def test_terms_may_take_all_the_room_there_is() -> None:
    ((h,),) = generate(
        [tiny(1)],
        Request([[4, EOS]], Search(beam=2, max_length=5), MARKS, Constraints(must_include=[[[7, 8], [6, 5, 4]]])),
    )
    assert sorted([h.tokens[:2], h.tokens[2:]], key=len) in ([(7, 8), (6, 5, 4)], [(6, 5), (4, 7, 8)])


@given(st.lists(st.integers(3, 4), min_size=1, max_size=5), st.lists(st.integers(3, 5), max_size=12))
def test_how_far_a_term_has_come(term: list[int], written: list[int]) -> None:
    """By definition: the longest beginning of it that the text ends with, until all of it was there."""
    tracked = TermConstraint([[term]], torch.tensor([99]), eos=EOS)
    done = False
    for n in range(1, len(written) + 1):
        tracked.update(torch.tensor([written[n - 1]]))
        ends = [i for i in range(len(term) + 1) if i <= n and written[n - i : n] == term[:i]]
        done = done or max(ends) == len(term)
        assert tracked.state.tolist() == [[len(term) if done else max(ends)]]


def test_every_need_takes_its_turn() -> None:
    totals = torch.tensor([[-1.0, -2.0, -3.0, -4.0, -torch.inf, -6.0]])
    need = torch.tensor([[1, 1, 1, 0, 2, 0]])
    scores, order = interleave_needs(totals, need, 6)
    assert order.tolist() == [[0, 3, 1, 5, 2, 4]]
    assert scores[0, :5].tolist() == [-1, -4, -2, -6, -3]


def test_a_beam_is_as_wide_as_the_terms_need() -> None:
    assert widen_beam(1, []) == 1
    assert widen_beam(1, [[3]]) == 2
    assert widen_beam(4, [[3, 4], [5, 6, 7]]) == 6
    assert widen_beam(9, [[3]]) == 9
    assert widen_beam(1, [[3] * 99]) == MAX_BEAM


def test_with_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("regard.decode.generation"), "_count_workers", lambda device, rows: 3)
    sources, draw = some_sources(8, 12), random.Random(8)
    must = [[[draw.randrange(3, 9)] for _ in range(i % 3)] for i in range(12)]
    found = generate([tiny(8)], Request(sources, Search(max_extra=5), MARKS, Constraints(must_include=must)))
    assert all(holds(h[0].tokens, term) for h, row in zip(found, must, strict=True) for term in row)


@pytest.mark.parametrize(
    ("search", "must", "error", "said"),
    [
        (Search(), [], DataError, "expected one entry per source in must_include, got 0 for 1 sources"),
        (Search(sample=True), [[[4]]], SpecError, "terms need beam search, not sampling"),
        (Search(), [[[]]], DataError, r"source 0: the term \[\] should be one or more tokens, none of which is forbidden"),
        (Search(), [[[4, EOS]]], DataError, r"source 0: the term \[4, 0\] should be one or more tokens"),
        (Search(), [[[6]]], DataError, r"source 0: the term \[6\] should be one or more tokens"),
        (Search(max_length=3), [[[4, 5], [7, 8]]], DataError,
         "source 0: the required text has 4 tokens, and there is room for 3; ask for fewer terms"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(search: Search, must: list[list[list[int]]], error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        generate([tiny(1)], Request([[4, EOS]], search, MARKS, Constraints(banned=[6], must_include=must)))
