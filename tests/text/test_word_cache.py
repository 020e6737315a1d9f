"""Texts that are encoded word by word have the tokens that the library gives them."""

from __future__ import annotations

import itertools
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Core
from tokenizers import models, pre_tokenizers

from regard.text import TOKENIZERS, Normalize, Tokenizer, word_cache
from regard.text.tokenizer_specs import encodes_words_apart
from regard.text.word_cache import WordCache, cut_at_spaces

LINES = [
    "The cafe\u0301 of line 3, said Straße; 3.5 % of it.",
    "naïve HOUSE <s> </s> <2de> house",
    "㍍ ﬁne ½ ´x x\u0301 한국",
]
SPACES = [chr(i) for i in range(sys.maxunicode) if chr(i).isspace()] + ["\u200b", "\ufeff", "\u2060", "\x00", "\x1a"]
KINDS = [
    (kind, Normalize(unicode=unicode, lowercase=lowercase))
    for kind in ("bpe", "byte_bpe", "unigram", "wordpiece", "words")
    for unicode, lowercase in itertools.product(("nfc", "nfkc", "none"), (False, True))
]
_made: dict[tuple[str, Normalize], Tokenizer] = {}


def learn(kind: str, normalize: Normalize) -> Tokenizer:
    if (kind, normalize) not in _made:
        spec = TOKENIZERS[kind](normalize=normalize, vocab=400)
        _made[kind, normalize] = Tokenizer.train(LINES * 3, spec, tags=["<2de>"])
    return _made[kind, normalize]


@pytest.mark.parametrize(("kind", "normalize"), KINDS, ids=str)
def test_white_space_of_every_kind(kind: str, normalize: Normalize) -> None:
    tokenizer = learn(kind, normalize)
    assert tokenizer._words is not None
    texts = [
        text for c in SPACES for text in (f"{c}a", f"a{c}", f"a{c} b", f"a {c}b", f"a {c} b", f" {c}{c} ", f"a{c}b")
    ]
    texts += [*LINES, "", " ", "  ", "\n", " a  b ", "a\n\nb\r\nc", "x" * 40_000, "ab " * 20_000]
    assert tokenizer.encode_all(texts) == tokenizer._encode_texts(texts)


ODD = [*SPACES, " ", " ", "\n", "\u0301", "\u0327", "H\u0331", "Σ", "İ", "´", "ﬃ", "</s>", "<2de>"]
PIECES = st.one_of(st.text(max_size=6), st.sampled_from(ODD))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KINDS), st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=4))
def test_any_text(kind: tuple[str, Normalize], lines: list[str]) -> None:
    tokenizer = learn(*kind)
    lines = [line.encode(errors="ignore").decode() for line in lines]
    assert tokenizer.encode_all(lines) == tokenizer._encode_texts(lines)


def test_other_tokenizers_are_left_to_the_library() -> None:
    """A space that is kept may be a piece of its own, and what others made may do anything."""
    for spec in (
        TOKENIZERS["bpe"](normalize=Normalize(spaces=False)),
        TOKENIZERS["byte_bpe"](leading_space=False),
        TOKENIZERS["chars"](),
        TOKENIZERS["pieces"](),
        TOKENIZERS["bytes"](),
    ):
        assert Tokenizer.train(LINES, spec)._words is None
    core = Core(models.BPE())
    assert not encodes_words_apart(core)
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    assert not encodes_words_apart(core)


def test_a_word_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def encode(words: list[str]) -> list[list[int]]:
        seen.extend(words)
        return [[len(word)] for word in words]

    cache = WordCache(encode)  # type: ignore[arg-type]
    assert cache.encode(["ab c ab", "", "c\nd"]) == [[2, 1, 2], [], [1, 1]]
    assert cache.encode(["ab d"]) == [[2, 1]]
    assert sorted(seen) == ["ab", "c", "d"]
    monkeypatch.setattr(word_cache, "MAX_CHARACTERS", 3)
    assert cache.encode(["ab"]) == [[2]]
    assert sorted(seen) == ["ab", "ab", "c", "d"]


def test_what_is_returned_may_be_changed() -> None:
    cache = WordCache(lambda words: [[len(word)] for word in words])
    cache.encode(["ab"])[0].append(7)
    assert cache.encode(["ab"]) == [[2]]


def test_long_texts_are_cut_at_spaces() -> None:
    assert list(cut_at_spaces("aa bb cc dd", 4)) == ["aa bb", "cc dd"]
    assert list(cut_at_spaces("aaaaaaaa bb", 2)) == ["aaaaaaaa", "bb"]
    assert list(cut_at_spaces("aaaa", 2)) == ["aaaa"]
    assert list(cut_at_spaces("", 2)) == [""]
