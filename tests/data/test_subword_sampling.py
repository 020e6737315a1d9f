"""Words cut anew: in the right proportions, never another text, and a pure function of seed and epoch."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Core
from tokenizers import models, pre_tokenizers

from regard.data import subword_sampling
from regard.data.example_rng import Rng
from regard.data.pair_reader import Corpus, read_corpus
from regard.data.ragged import Ragged
from regard.data.subword_sampling import SubwordSampler
from regard.errors import SpecError
from regard.text import (
    Bpe,
    ByteBpe,
    SubwordNmt,
    Tokenizer,
    TokenizerSpec,
    Unigram,
    from_sentencepiece,
    from_subword_nmt,
)
from regard.text.lattice import build_segmenter
from regard.text.tokenizer_specs import ROLES
from tests.text.test_importers import write_model
from tests.text.test_lattice import LINES, WORDS, told

KINDS: dict[str, TokenizerSpec] = {
    "bpe": Bpe(vocab=70),
    "byte_bpe": ByteBpe(vocab=300),
    "unigram": Unigram(vocab=60),
}


@cache
def trained(kind: str) -> Tokenizer:
    return Tokenizer.train(LINES, KINDS[kind], tags=["<2de>"])


def recut(texts: list[str], tokenizer: Tokenizer, share: float, seed: int = 1, epoch: int = 0) -> Ragged:
    return SubwordSampler(Ragged.of(tokenizer.encode_all(texts)), tokenizer, share).sample(Rng(seed, 0, epoch))


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("word", ["lowest", "banana", "the"])
def test_cuts_come_as_often_as_they_should(kind: str, word: str, share: float) -> None:
    """Beside other words, and at the beginning, the end and in the middle of texts."""
    tokenizer, times = trained(kind), 6000
    texts = [f"{word} slow {word}", f"newest {word}"] * (times // 3)
    rows = recut(texts, tokenizer, share)
    chances = told(build_segmenter(tokenizer, share), tokenizer, word)
    seen = Counter[tuple[str, ...]]()
    for ids in rows:
        labels = tokenizer.tokens(ids)
        starts = [i for i, label in enumerate(labels) if label.startswith("▁")] + [len(labels)]
        found = (tuple(labels[a:b]) for a, b in pairwise(starts))
        seen.update(cut for cut in found if "".join(cut) == f"▁{word}")
    assert seen.total() == times
    assert set(seen) <= set(chances)
    often = {cut: p * times for cut, p in chances.items() if p * times >= 5}
    away, k = sum((seen[cut] - n) ** 2 / n for cut, n in often.items()), len(often)
    assert away < k * (1 - 2 / (9 * k) + 4 * math.sqrt(2 / (9 * k))) ** 3


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe"])
def test_no_share_is_the_tokenizer_and_a_whole_one_leaves_letters(kind: str) -> None:
    tokenizer = trained(kind)
    texts = [*LINES, "", "x unknown öß", " , "]
    assert recut(texts, tokenizer, 0.0) == Ragged.of(tokenizer.encode_all(texts))
    letters = recut(LINES, tokenizer, 1.0)
    assert [tokenizer.tokens(ids) for ids in letters] == [[*f"▁{line}".replace(" ", "▁")] for line in LINES]


@pytest.mark.parametrize("kind", KINDS)
@given(
    texts=st.lists(st.text("thelowrsnabd ,.<2>!ö\n", max_size=30), min_size=1, max_size=6),
    share=st.sampled_from([0.05, 0.3, 0.9]),
    epoch=st.integers(0, 3),
)
def test_the_text_stays(kind: str, texts: list[str], share: float, epoch: int) -> None:
    tokenizer = trained(kind)
    rows = Ragged.of(tokenizer.encode_all(texts))
    drawn = recut(texts, tokenizer, share, epoch=epoch)
    assert [tokenizer.decode(ids) for ids in drawn] == [tokenizer.decode(ids) for ids in rows]
    assert [i for i in drawn.ids if i in tokenizer.marks] == [i for i in rows.ids if i in tokenizer.marks]


def test_tags_stay_where_they_are() -> None:
    tokenizer = trained("bpe")
    tag = tokenizer.tag("<2de>")
    rows = Ragged.of([[tag, *ids] for ids in tokenizer.encode_all(LINES)])
    drawn = SubwordSampler(rows, tokenizer, 0.5).sample(Rng(1))
    assert all(ids[0] == tag and tag not in ids[1:] for ids in drawn)
    assert drawn != rows


def test_the_same_epoch_is_cut_the_same_and_another_otherwise() -> None:
    tokenizer = trained("bpe")
    rows = Ragged.of(tokenizer.encode_all(LINES))
    words = SubwordSampler(rows, tokenizer, 0.2)
    first = {(seed, epoch): words.sample(Rng(seed, 0, epoch)) for seed in (1, 2) for epoch in (0, 1, 2)}
    again = SubwordSampler(rows, tokenizer, 0.2)  # a resumed run, which has seen no epoch before
    for place in reversed(first):
        assert again.sample(Rng(place[0], 0, place[1])) == first[place]
    assert all(first[a] != first[b] for a in first for b in first if a != b)


def test_equal_words_are_drawn_each_for_itself() -> None:
    drawn = recut(["lowest lowest lowest lowest"] * 50, trained("bpe"), 0.3)
    assert len({tuple(ids) for ids in drawn}) > 40


def test_what_is_forgotten_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subword_sampling, "BLOCK", 7)
    tokenizer = trained("unigram")
    texts = [*LINES, "", *WORDS]
    kept = recut(texts, tokenizer, 0.3)
    monkeypatch.setattr(subword_sampling, "MAX_GRAPH", 0)
    assert recut(texts, tokenizer, 0.3) == kept
    assert [tokenizer.decode(ids) for ids in kept] == [tokenizer.decode(ids) for ids in tokenizer.encode_all(texts)], (
        "texts longer than a block, and shorter"
    )


@pytest.mark.parametrize("texts", [[], [""], ["", "the", ""]])
def test_little_or_nothing_to_cut(texts: list[str]) -> None:
    drawn = recut(texts, trained("bpe"), 0.9)
    assert [trained("bpe").decode(ids) for ids in drawn] == texts


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_sentencepiece(algorithm: str, tmp_path: Path) -> None:
    """Its sentences are not split into words beforehand; they fall apart where no piece spans."""
    path, _ = write_model(tmp_path, model_type=algorithm, byte_fallback=True, vocab_size=600, character_coverage=0.98)
    tokenizer = from_sentencepiece(path)
    texts = ["Two young, White males are outside near bushes.", "Männer für 12 Gäste ≠ Essen"]
    words = SubwordSampler(Ragged.of(tokenizer.encode_all(texts)), tokenizer, 0.3)
    assert len(words) > 10
    for epoch in range(5):
        drawn = words.sample(Rng(1, 0, epoch))
        assert [tokenizer.decode(ids) for ids in drawn] == [tokenizer.decode(tokenizer.encode(text)) for text in texts]
    if algorithm == "bpe":
        assert recut(texts, tokenizer, 0.0) == Ragged.of(tokenizer.encode_all(texts))


def test_subword_nmt(tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\nl o\nlo w</w>\nlo w\nlow e\nlowe r</w>\n")
    tokenizer = from_subword_nmt(codes, ["lower slow , low"])
    assert recut(["lower slow , low"], tokenizer, 0.0) == Ragged.of([tokenizer.encode("lower slow , low")])
    drawn = recut(["lower slow , low"] * 200, tokenizer, 0.4)
    assert {tokenizer.decode(ids) for ids in drawn} == {"lower slow , low"}
    seen = {tuple(tokenizer.tokens(ids)[:-4]) for ids in drawn}
    assert ("lower", "s@@", "low") in seen
    assert any(cut[:2] == ("l@@", "o@@") for cut in seen)


def test_what_the_tokenizer_keeps_apart_stays_apart_and_the_rest_is_cut() -> None:
    ids = {token: i for i, token in enumerate([*ROLES, *"12ab", "12", "ab"])}

    def made(merges: list[tuple[str, str]]) -> Tokenizer:
        core = Core(models.BPE(vocab=ids, merges=merges, unk_token=ROLES[3]))
        core.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
        core.add_special_tokens([*ROLES])
        return Tokenizer(core)

    both = made([("1", "2"), ("a", "b")])
    drawn = {tuple(both.tokens(row)) for row in recut(["12ab12"] * 50, both, 0.5)}
    assert drawn == {("1", "2", "ab", "1", "2"), ("1", "2", "a", "b", "1", "2")}
    with pytest.raises(
        SpecError, match=r"data\.subword_sampling: this tokenizer does not segment words by its own vocabulary; remove"
    ):
        recut(["12"], made([("1", "2")]), 0.5)


def test_the_published_cuts_of_multi30k_are_those_of_its_codes(shared_data: Path) -> None:
    folder = shared_data / "multi30k" / "bpe_en_de"
    pairs = read_corpus(Corpus(paths=(str(folder / "valid.en.gz"), str(folder / "valid.de.gz"))))
    lines, spec = [*pairs.source, *pairs.target], SubwordNmt(codes=str(folder / "code.gz"), undo=True)
    tokenizer = Tokenizer.train(lines, spec)
    rows = Ragged.of(tokenizer.encode_all(lines))
    assert [" ".join(tokenizer.tokens(ids)) for ids in rows] == [line.strip() for line in lines]
    assert [tokenizer.decode(ids) for ids in rows] == [spec.desegment(line.strip()) for line in lines]
    words = SubwordSampler(rows, tokenizer, 0.1)
    drawn = words.sample(Rng(1, 0, 0))
    assert 1.15 < len(drawn.ids) / len(rows.ids) < 1.35
    assert [tokenizer.decode(ids) for ids in drawn] == [tokenizer.decode(ids) for ids in rows]
    assert np.mean(drawn.lengths >= rows.lengths) > 0.99
