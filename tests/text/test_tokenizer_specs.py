"""Laws that hold for every kind of tokenizer: text comes back, training is repeatable, names in files work."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from regard.errors import DataError, SpecError, UnknownName
from regard.text import (
    TOKENIZERS,
    Bpe,
    ByteBpe,
    Bytes,
    Chars,
    Normalize,
    Pieces,
    Tokenizer,
    TokenizerSpec,
    Unigram,
    Words,
)
from regard.text.tokenizer_specs import byte_alphabet
from tests.text.test_normalize import normalizers

IMPORTED = ("sentencepiece", "subword_nmt")
"""Kinds that come from a file of the user's and learn nothing."""

CORPUS = [
    "The quick brown fox, it seems, jumps over the lazy dog.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich!",
    "A fox is a fox is a fox; a dog is a dog: 12 dogs, 3 foxes (2024).",
]
TEXT = st.text() | st.lists(st.sampled_from([*"ab \n<>/s2@▁\u0301\u200d", "</s>", "@@ ", "👩‍👧", "中", " "])).map(
    "".join
)
LEARNING = [Chars, Words, Bpe, Unigram, Pieces]
ANY_TEXT = [Bytes(), ByteBpe(vocab=300)]


def rare(kind: type[TokenizerSpec], normalize: Normalize) -> TokenizerSpec:
    """A spec of this kind that keeps whatever it sees once."""
    counts = {"min_count": 1} if kind in (Words, Pieces) else {}
    return kind.parse({"normalize": normalize.plain(), **counts})


@pytest.mark.parametrize("kind", LEARNING)
@given(text=TEXT, normalize=normalizers)
@example(text="Hello, world!", normalize=Normalize())
@example(text=" a  b ", normalize=Normalize(spaces=False))
@example(text="\n a\r\n\n b\t", normalize=Normalize(spaces=False))
def test_text_of_known_characters_comes_back(kind: type[TokenizerSpec], text: str, normalize: Normalize) -> None:
    wanted = normalize.apply(text)
    assume(wanted.strip(" "))
    if kind is Pieces:  # joins what was cut, and only spaces between pieces are kept
        wanted = re.sub("@@( |$(?!\n))", "", " ".join(p for p in wanted.split(" ") if p))
    tokenizer = Tokenizer.train([text], rare(kind, normalize))
    assert tokenizer.decode(tokenizer.encode(text)) == wanted


@pytest.mark.parametrize("normalize", [Normalize(), Normalize("none", spaces=False)], ids=["tidy", "exact"])
@pytest.mark.parametrize("spec", ANY_TEXT, ids=["bytes", "byte_bpe"])
def test_bytes_know_any_text(spec: Bytes | ByteBpe, normalize: Normalize) -> None:
    tokenizer = Tokenizer.train(CORPUS, dataclasses.replace(spec, normalize=normalize))

    @given(TEXT)
    @example("")
    @example("\x00\x1f \u2028\u2029\u0301🏴\U000e0067\U000e007f 👩‍👩‍👧\ufeff\uffff")
    def comes_back(text: str) -> None:
        ids = tokenizer.encode(text)
        assert tokenizer.unk not in ids
        assert tokenizer.decode(ids) == normalize.apply(text)

    comes_back()


@pytest.mark.parametrize("kind", [kind for kind in TOKENIZERS if kind not in IMPORTED])
def test_no_text_is_no_tokens(kind: str) -> None:
    tokenizer = Tokenizer.train(CORPUS, TokenizerSpec.parse({"kind": kind}))
    assert tokenizer.encode("") == tokenizer.encode(" \n ") == []
    assert tokenizer.decode([]) == ""


def test_how_each_kind_cuts() -> None:
    lines = ["low lower, lowest low low!"] * 9
    cuts = {
        Chars(): ["l", "o", "w", "▁", "l", "o", "w", "!"],
        Words(): ["▁low", "▁low", "!"],
        Bytes(): ["l", "o", "w", "▁", "l", "o", "w", "!"],
        Bpe(vocab=40): ["▁low", "▁low", "!"],
        ByteBpe(vocab=300): ["▁low", "▁low", "!"],
        Pieces(): ["low", "low!"],
    }
    for spec, wanted in cuts.items():
        tokenizer = Tokenizer.train(lines, spec)
        assert tokenizer.tokens(tokenizer.encode("low low!")) == wanted, spec


def test_unigram_finds_the_stem() -> None:
    lines = [f"{stem}{end}" for stem in ("work", "walk", "talk") for end in ("ed", "ing", "s", "")]
    tokenizer = Tokenizer.train(lines * 5, Unigram())
    assert tokenizer.tokens(tokenizer.encode("walks talks")) == ["▁walk", "s", "▁talk", "s"]


def test_a_word_is_the_same_token_wherever_it_stands() -> None:
    tokenizer = Tokenizer.train(CORPUS * 2, Words())
    first, *_, last = tokenizer.encode("fox is a fox")
    assert first == last != tokenizer.unk


def test_rare_words_are_unknown() -> None:
    tokenizer = Tokenizer.train(["a b a c a b"], Words(min_count=2))
    assert tokenizer.tokens(tokenizer.encode("a b c d")) == ["▁a", "▁b", "<unk>", "<unk>"]
    assert tokenizer.decode(tokenizer.encode("a b c d")) == "a b"


def test_the_most_frequent_words_are_kept() -> None:
    tokenizer = Tokenizer.train(["a b c a b a"], Words(vocab=6, min_count=1))
    assert tokenizer.tokens(range(4, tokenizer.size)) == ["▁a", "▁b"]


def test_cut_text_keeps_its_cuts_and_is_joined_again() -> None:
    tokenizer = Tokenizer.train(["the pul@@ ley sys@@ tem ."], Pieces())
    ids = tokenizer.encode("the sys@@ tem pul@@ ley .")
    assert tokenizer.tokens(ids) == ["the", "sys@@", "tem", "pul@@", "ley", "."]
    assert tokenizer.decode(ids) == "the system pulley ."
    assert tokenizer.decode(ids[:2]) == "the sys"


def test_a_byte_is_its_value_after_the_reserved_tokens() -> None:
    tokenizer = Tokenizer.train([], Bytes(), tags=["<2de>"])
    assert [i - 5 for i in tokenizer.encode("Aä")] == [*"Aä".encode()]
    assert tokenizer.size == 256 + 5


def test_byte_letters_are_the_librarys() -> None:
    letters = byte_alphabet()
    assert sorted(letters) == sorted(pre_tokenizers.ByteLevel.alphabet())
    ((cut, _),) = pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str("ä \n")
    assert cut == "".join(letters[b] for b in "ä \n".encode())


FINGERPRINTS = """
import random
from regard.text import TOKENIZERS, Tokenizer, TokenizerSpec
draw = random.Random(7)
words = ["".join(draw.choice("abcd") for _ in range(draw.randint(1, 6))) for _ in range(300)]
lines = [" ".join(draw.choice(words) for _ in range(8)) + draw.choice(".!?äöü中文") for _ in range(200)]
for kind in [kind for kind in TOKENIZERS if kind not in ("sentencepiece", "subword_nmt")]:
    sized = {"vocab": 340} if hasattr(TOKENIZERS[kind], "vocab") else {}
    spec = TokenizerSpec.parse({"kind": kind, **sized})
    print(kind, Tokenizer.train(iter(lines), spec, tags=["<b>", "<a>"]).fingerprint)
"""


def test_training_is_the_same_in_every_process() -> None:
    def run(seed: str, threads: str) -> str:
        env = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "RAYON_NUM_THREADS": threads,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        return subprocess.run(
            [sys.executable, "-c", FINGERPRINTS], env=env, check=True, capture_output=True, text=True
        ).stdout

    once, again = run("1", "1"), run("2", "3")
    assert once == again
    assert len(once.splitlines()) == len(TOKENIZERS) - len(IMPORTED) == len({*once.split()}) // 2


def test_unigram_does_not_depend_on_the_order_of_the_librarys_maps() -> None:
    rare = ["".join(chr(c) for c in range(0x4E00 + i, 0x4E00 + i + 3)) for i in range(0, 90, 3)]
    assert len({Tokenizer.train(CORPUS * 3 + rare, Unigram(vocab=200)).fingerprint for _ in range(8)}) == 1


def test_a_file_names_the_kind() -> None:
    assert TokenizerSpec.parse("bytes") == Bytes()
    spec = TokenizerSpec.parse({"kind": "byte_bpe", "vocab": 500, "normalize": {"lowercase": True}})
    assert spec == ByteBpe(vocab=500, normalize=Normalize(lowercase=True))
    assert TokenizerSpec.parse(spec.plain()) == spec
    with pytest.raises(UnknownName, match="no tokenizer 'unigramm'; did you mean 'unigram'"):
        TokenizerSpec.parse("unigramm")


@pytest.mark.parametrize("spec", [Bpe(vocab=10), Unigram(vocab=10), ByteBpe(vocab=10)], ids=repr)
def test_a_vocabulary_without_room_is_refused(spec: TokenizerSpec) -> None:
    with pytest.raises(
        SpecError, match=r"vocab=10 (is too small: 4 reserved tokens and .* need|does not suit this corpus: )"
    ):
        Tokenizer.train(CORPUS, spec)


@pytest.mark.parametrize("spec", [Chars(), Words(), Bpe(), ByteBpe(), Unigram(), Pieces()], ids=repr)
def test_a_corpus_without_text_is_refused(spec: TokenizerSpec) -> None:
    if isinstance(spec, ByteBpe):
        assert Tokenizer.train([], spec).size == 4 + 256
        return
    with pytest.raises(DataError, match="found no tokens in this corpus; is it empty"):
        Tokenizer.train(["", " \n"], spec)


def test_what_is_no_text_is_refused_with_its_line() -> None:
    with pytest.raises(DataError, match=r"line 2 has half a character, U\+D800; read its file as UTF-8"):
        Tokenizer.train(["fine", "a\ud800"], Bpe())
    with pytest.raises(DataError, match="line 1 should be text, got 5"):
        Tokenizer.train([5], Bpe())  # type: ignore[list-item]
    with pytest.raises(DataError, match="several texts, got the string 'one text'; put it in a list"):
        Tokenizer.train("one text", Bpe())


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe", "unigram", "wordpiece", "words"])
def test_a_vocabulary_beyond_all_use_is_refused_before_memory_is_taken(kind: str) -> None:
    with pytest.raises(SpecError, match="vocab: input should be less than or equal to 10000000, got 2147483648"):
        TokenizerSpec.parse({"kind": kind, "vocab": 2**31})
