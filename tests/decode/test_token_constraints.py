"""What may be written: forced beginnings, banned tokens, and the guard against endless repetition."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decode import Constraints, Request, Search, SpecialTokens, generate, score
from regard.decode.decode_request import FREE
from regard.decode.token_constraints import RepetitionGuard
from regard.errors import DataError
from tests.decode.toys import (
    BOS,
    EOS,
    MARKS,
    PAD,
    Oracle,
    close,
    copies,
    loops,
    random_says,
    slow_beam,
    some_sources,
    tiny,
)

pytestmark = pytest.mark.numeric

UNK = 3


# --------------------------------------------------------------------------------------------- forced beginnings


@pytest.mark.parametrize("search", [Search(beam=1, max_extra=6), Search(max_extra=6), Search(sample=True, max_extra=6)])
def test_outputs_begin_as_told_and_scores_count_what_was_forced(search: Search) -> None:
    net = tiny(5)
    sources = some_sources(5, 8)
    prefixes = [[], [4], [5, 4, 7], [8, 8], [], [3], [6, 6, 6, 6], [7]]
    found = generate([net], Request(sources, search, MARKS, Constraints(prefixes=prefixes)))
    free = generate([net], Request(sources, search, MARKS))
    for source, prefix, (h,), without in zip(sources, prefixes, found, free, strict=True):
        assert list(h.tokens[: len(prefix)]) == prefix
        ended = len(h.tokens) < search.limit(len(source))
        (wanted,) = score(net, [source], [[*h.tokens, EOS] if ended else h.tokens], MARKS)
        assert h.log_prob == pytest.approx(wanted)
        if not prefix:
            assert [h.tokens] == [h.tokens for h in without]
    longer = [len(h.tokens) > len(p) for (h,), p in zip(found, prefixes, strict=True)]
    assert any(longer), "outputs go on after what was forced"


@given(
    st.integers(0, 10**6), st.integers(2, 4), st.lists(st.lists(st.integers(1, 5), max_size=4), min_size=5, max_size=5)
)
def test_beams_after_a_forced_beginning_equal_a_slow_search(seed: int, beam: int, prefixes: list[list[int]]) -> None:
    says, search = random_says(seed, 6), Search(beam=beam, n_best=beam, max_extra=4)
    sources = some_sources(seed, 5, 6)
    oracle = Oracle(says, 6)
    found = generate([oracle], Request(sources, search, MARKS, Constraints(banned=[UNK], prefixes=prefixes)))  # type: ignore[list-item]
    for source, prefix, each in zip(sources, prefixes, found, strict=True):

        def next_of(written: tuple[int, ...], source: list[int] = source) -> torch.Tensor:
            return torch.tensor(says(tuple(source), written), dtype=torch.float64).log_softmax(-1)

        wanted = slow_beam(next_of, search, source=len(source), prefix=prefix, banned=[BOS, PAD, UNK])
        assert close(each, wanted)


@pytest.mark.parametrize("search", [Search(beam=1), Search(), Search(sample=True)])
def test_a_beginning_may_hold_what_is_banned_elsewhere(search: Search) -> None:
    found = generate([tiny(1)], Request([[4, EOS]], search, MARKS, Constraints(banned=[UNK], prefixes=[[UNK]])))
    first, *rest = found[0][0].tokens
    assert first == UNK
    assert UNK not in rest


@pytest.mark.parametrize("search", [Search(beam=1), Search(beam=3), Search(sample=True, temperature=0.1)])
def test_a_beginning_may_hold_what_the_model_deems_impossible(search: Search) -> None:
    strict = Oracle(lambda source, written: [9.0 if written else 0.0, 0.0, 0.0, 0.0, 1.0, -math.inf], 6)
    (found,) = generate([strict], Request([[4, EOS]], search, MARKS, Constraints(prefixes=[[5, 5]])))  # type: ignore[list-item]
    assert found[0].tokens[:2] == (5, 5)


@pytest.mark.parametrize("search", [Search(beam=1), Search(beam=3), Search(sample=True)])
def test_free_places_of_a_beginning_are_filled_without_an_end(search: Search) -> None:
    """The end mark is likeliest everywhere, but may only come after the prefix."""
    eager = Oracle(lambda source, written: [9.0, 0.0, 0.0, 0.0, 1.0, 0.5], 6)
    prefixes = [[5, FREE, 5, FREE], [FREE], []]
    rules = Constraints(banned=[UNK], prefixes=prefixes)
    found = generate([eager], Request([[4, EOS]] * 3, search, MARKS, rules))  # type: ignore[list-item]
    for prefix, (best, *_) in zip(prefixes, found, strict=True):
        assert len(best.tokens) == len(prefix)
        assert all(
            token in ((4, 5) if want == FREE else (want,)) for token, want in zip(best.tokens, prefix, strict=True)
        )
    assert rules.has_gaps
    assert not Constraints(prefixes=[[4], []]).has_gaps


def test_a_prefix_for_every_source_or_for_none() -> None:
    with pytest.raises(DataError, match="expected one entry per source in prefixes, got 1 for 2 sources"):
        generate([tiny(1)], Request([[4, EOS], [5, EOS]], Search(), MARKS, Constraints(prefixes=[[4]])))


# --------------------------------------------------------------------------------------------------- banned tokens


@pytest.mark.parametrize("search", [Search(beam=1), Search(beam=3, n_best=3), Search(sample=True, temperature=3.0)])
def test_marks_and_banned_tokens_are_never_written(search: Search) -> None:
    loud = Oracle(lambda source, written: [0.0, 5.0, 5.0, 5.0, 1.0, 0.5], 6)
    found = generate([loud], Request([[4] * 9] * 10, search, MARKS, Constraints(banned=[UNK])))  # type: ignore[list-item]
    written = {t for each in found for h in each for t in h.tokens}
    assert written == {4, 5}


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_may_start_from_the_mark_it_ends_with(beam: int) -> None:
    says = [3.0, 0.0, 0.0, 1.0, 2.0]
    stops = Oracle(lambda source, written: says if len(written) > 1 else [-9.0, *says[1:]], 5)
    found = generate([stops], Request([[4, EOS]], Search(beam=beam), SpecialTokens(EOS, EOS, PAD)))  # type: ignore[list-item]
    assert found[0][0].tokens == (4, 4)


# ------------------------------------------------------------------------------------------- endless repetition


def cycle(*words: int) -> Oracle:
    """A model that says the words again and again, and hardly ever the end mark."""

    def says(source: tuple[int, ...], written: tuple[int, ...]) -> list[float]:
        scores = [-20.0, -9.0, -9.0, *[-30.0] * 12]
        scores[words[len(written) % len(words)]] = 0.0
        return scores

    return Oracle(says, 15)


@pytest.mark.parametrize("words", [(4,), (4, 5), (4, 5, 6), (4, 4, 5)])
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("n", [1, 7, 12])
def test_a_model_that_loops_is_stopped_after_the_sources_length(words: tuple[int, ...], beam: int, n: int) -> None:
    given = [[9] * n]
    ((free, *_),) = generate([cycle(*words)], Request(given, Search(beam=beam, repetition_guard=False), MARKS))  # type: ignore[list-item]
    assert len(free.tokens) == n + 50, "without the guard it loops to the limit"
    ((held, *_),) = generate([cycle(*words)], Request(given, Search(beam=beam), MARKS))  # type: ignore[list-item]
    assert len(held.tokens) == max(n + 1, 3 * len(words))
    assert held.tokens == free.tokens[: len(held.tokens)]


@pytest.mark.parametrize("beam", [1, 4])
def test_copying_a_text_that_repeats_stays_possible(beam: int) -> None:
    sources = [[4] * 40 + [EOS], [4, 5] * 20 + [EOS], [*range(3, 9)] * 7 + [EOS], [6, EOS]]
    found = generate([Oracle(copies, 9)], Request(sources, Search(beam=beam), MARKS))  # type: ignore[list-item]
    assert [[*each[0].tokens, EOS] for each in found] == sources


words = st.integers(0, 2)
beginnings = st.tuples(st.lists(words, max_size=9), st.lists(words, min_size=1, max_size=18))


@given(st.lists(beginnings, min_size=1, max_size=4), st.integers(0, 45), st.integers(0, 30), st.data())
def test_the_guard_forbids_what_its_definition_says(
    texts: list[tuple[list[int], list[int]]], n: int, patience: int, data: st.DataObject
) -> None:
    rows = [(head + tail * 45)[:n] for head, tail in texts]
    guard = RepetitionGuard(torch.full((len(rows),), patience))
    for step in range(n):
        guard.update(torch.tensor([row[step] for row in rows]))
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=5))
    guard.select(torch.tensor(order))
    log_probs = torch.zeros(len(order), 3)
    guard.apply(log_probs)
    wanted = [[loops(tuple(rows[i]), token, patience) for token in range(3)] for i in order]
    assert (log_probs == -torch.inf).tolist() == wanted


@pytest.mark.parametrize("beam", [1, 3])
def test_untrained_models_do_not_go_round_and_round(beam: int) -> None:
    """They would: without the guard some do to the very end."""
    looped = 0
    for seed in range(4):
        net, sources = tiny(seed), some_sources(seed, 4)
        for guard in (True, False):
            for source, (h, *_) in zip(
                sources,
                generate([net], Request(sources, Search(beam=beam, repetition_guard=guard), MARKS)),
                strict=True,
            ):
                turns = [i for i, token in enumerate(h.tokens) if loops(h.tokens[:i], token, len(source))]
                assert not (guard and turns)
                looped += bool(turns)
    assert looped > 2
