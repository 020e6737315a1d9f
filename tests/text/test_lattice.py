"""Every way to cut a word, and its probability: equal to what the papers' own words give, worked out by brute force."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise, product

import pytest
from tokenizers import Tokenizer as Core
from tokenizers import models, pre_tokenizers

from regard.errors import SpecError
from regard.text import Bpe, ByteBpe, Bytes, Chars, Pieces, Tokenizer, TokenizerSpec, Unigram, WordPiece, Words
from regard.text.lattice import Segmenter, State, build_segmenter
from regard.text.tokenizer_specs import ROLES

LINES = [
    "the lower the slower , and the lowest of the slow",
    "slow lower lowest newer newest wider widest , the newest of the wide",
    "banana bandana ananas nana an ana",
] * 4
WORDS = ["lowest", "the", "slower", "banana", "bandana", "a", "newest"]
Chances = dict[tuple[str, ...], float]


def trained(spec: TokenizerSpec) -> Tokenizer:
    return Tokenizer.train(LINES, spec, tags=["<2de>"])


def told(how: Segmenter, tokenizer: Tokenizer, word: str) -> Chances:
    """The probability of each cut, all steps followed to their ends."""
    start = how.start(tokenizer.encode(word))
    assert start is not None
    out: Chances = defaultdict(float)

    def follow(state: State, chance: float) -> None:
        steps = how.steps(state)
        rest = max(1 - sum(step[0] for step in steps), 0.0)
        if min(state) >= 0 and rest > 1e-12:
            out[tuple(tokenizer.tokens(state))] += chance * rest
        for share, at, parts, piece in steps:
            if share:
                follow((*state[:at], piece, *state[at + parts :]), chance * share)

    follow(start, 1.0)
    return dict(out)


def dropout(word: str, merges: Sequence[tuple[str, str]], share: float) -> Chances:
    """Algorithm 1 of Provilkov et al. (2020), over every set of merges that chance may remove at each step."""
    out: Chances = defaultdict(float)

    def split(pieces: tuple[str, ...], chance: float) -> None:
        possible = [i for i, pair in enumerate(pairwise(pieces)) if pair in merges]
        for removed in product([True, False], repeat=len(possible)):
            p = chance * math.prod(share if gone else 1 - share for gone in removed)
            left = [i for i, gone in zip(possible, removed, strict=True) if not gone]
            if p == 0:
                continue
            if not left:
                out[pieces] += p
                continue
            best = min(left, key=lambda i: merges.index((pieces[i], pieces[i + 1])))
            split((*pieces[:best], pieces[best] + pieces[best + 1], *pieces[best + 2 :]), p)

    split(tuple(word), 1.0)
    return dict(out)


def merges_of(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(tokenizer.core.to_str())["model"]["merges"]]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("word", WORDS)
def test_bpe_dropout_is_the_papers(word: str, share: float) -> None:
    tokenizer = trained(Bpe(vocab=70))
    found = told(build_segmenter(tokenizer, share), tokenizer, word)
    wanted = dropout(f" {word}", merges_of(tokenizer), share)
    assert found == pytest.approx({tuple(p.replace(" ", "▁") for p in cut): p for cut, p in wanted.items()}, abs=1e-12)
    assert sum(found.values()) == pytest.approx(1)
    usual, letters = tuple(tokenizer.tokens(tokenizer.encode(word))), tuple(f"▁{word}")
    if share == 0:
        assert found == {usual: 1.0}
    if share == 1:
        assert found == {letters: 1.0}


def test_bpe_dropout_is_close_to_the_librarys() -> None:
    """The `tokenizers` library gives only segmentations that ours can give, with similar probabilities.

    They are not the same: it queues a merge once for each neighbor that made it possible, and drops each entry by itself,
    so that it drops fewer merges than the paper says. Its generator has no seed, so the bound is a wide one.
    """
    tokenizer, share, times = trained(Bpe(vocab=70)), 0.3, 4000
    chances = told(build_segmenter(tokenizer, share), tokenizer, "lowest")
    loose = Core.from_str(tokenizer.core.to_str())
    loose.model.dropout = share
    seen = Counter(tuple(tokenizer.tokens(e.ids)) for e in loose.encode_batch(["lowest"] * times))
    assert set(seen) <= set(chances)
    assert (
        sum(abs(p - seen[cut] / times) for cut, p in chances.items()) / 2 < 0.1
    )  # total variation; 0.045 when measured


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("word", WORDS)
def test_unigram_cuts_come_as_often_as_their_flattened_probability(word: str, share: float) -> None:
    tokenizer = trained(Unigram(vocab=60))
    how = build_segmenter(tokenizer, share)
    scores = {p: s for p, s in json.loads(tokenizer.core.to_str())["model"]["vocab"] if p not in (*ROLES, "<2de>")}
    power = 0.2 / 9 * (1 - share) / share
    text, weights = f" {word}", dict[tuple[str, ...], float]()
    for marks in product([True, False], repeat=len(text) - 1):
        ends = [i for i, cut in enumerate(marks, 1) if cut]
        cut = tuple(text[a:b] for a, b in pairwise([0, *ends, len(text)]))
        if all(piece in scores for piece in cut):
            weights[tuple(p.replace(" ", "▁") for p in cut)] = math.exp(power * sum(map(scores.__getitem__, cut)))
    total = sum(weights.values())
    assert told(how, tokenizer, word) == pytest.approx({cut: w / total for cut, w in weights.items()}, abs=1e-12)


def test_a_small_share_of_unigram_is_its_likeliest_cut() -> None:
    tokenizer = trained(Unigram(vocab=60))
    for word in WORDS:
        found = told(build_segmenter(tokenizer, 1e-6), tokenizer, word)
        assert max(found, key=found.__getitem__) == tuple(tokenizer.tokens(tokenizer.encode(word)))


@pytest.mark.parametrize("spec", [Bpe(vocab=70), ByteBpe(vocab=300), Unigram(vocab=60)])
def test_marks_and_unknown_letters_are_not_cut(spec: TokenizerSpec) -> None:
    tokenizer = trained(spec)
    how = build_segmenter(tokenizer, 0.5)
    for mark in tokenizer.marks:
        assert how.start([mark]) is None
        assert how.ends[mark] == (-1, -1)


def test_words_that_the_tokenizer_keeps_apart_stay_apart() -> None:
    """Merges would join digits; this tokenizer never lets them."""
    ids = {token: i for i, token in enumerate([*ROLES, *"12ab", "12", "ab"])}
    core = Core(models.BPE(vocab=ids, merges=[("1", "2"), ("a", "b")], unk_token=ROLES[3]))
    core.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
    core.add_special_tokens([*ROLES])
    tokenizer = Tokenizer(core)
    how = build_segmenter(tokenizer, 0.5)
    assert how.start(tokenizer.encode("12")) is None
    assert how.start(tokenizer.encode("ab")) == (ids["a"], ids["b"])


def test_bonds_are_where_pieces_span() -> None:
    tokenizer = trained(Bpe(vocab=70))
    how = build_segmenter(tokenizer, 0.5)
    ids = {token: tokenizer.core.token_to_id(token) for token in " hnwtd,"}
    assert (ids["t"], ids["h"]) in how.bonds
    assert not any(right == ids[" "] for _, right in how.bonds), "no piece has a space inside"
    assert not any(ids[","] in pair for pair in how.bonds if ids[" "] not in pair)


@pytest.mark.parametrize(
    "spec", [Chars(), Words(), Bytes(), WordPiece(vocab=80), Pieces()], ids=lambda spec: type(spec).__name__
)
def test_one_way_to_cut_is_not_several(spec: TokenizerSpec) -> None:
    assert not spec.can_sample
    with pytest.raises(SpecError, match="this one has one; use tokenizer bpe, byte_bpe or"):
        build_segmenter(trained(spec), 0.1)
