"""The tokenizer itself: reserved tokens that text cannot reach, the file, labels, and what it refuses."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import regard.text
from regard.errors import CheckpointError, DataError, RegardError, SpecError, UnknownName
from regard.text import TOKENIZERS, Bpe, ByteBpe, Bytes, Chars, Tokenizer, TokenizerSpec, Words
from regard.text.tokenizer import check_tags
from tests.faulty import limited_file_size

IMPORTED = ("sentencepiece", "subword_nmt")
"""Kinds that come from a file of the user's and learn nothing."""

TAGS = ("<2de>", "<2en>")
SPELLED = ("<pad>", "<s>", "</s>", "<unk>", *TAGS)
# Text made to tempt: it spells every reserved token, alone, within words and in pairs, and often enough to be learned.
CORPUS = ["Hello, world! <2de> <s>Größe</s> a<2en>b </s></s> <unk> x<pad>x <2de>", "<s> <pad> </s>", "<2de>"] * 20
EVERY_KIND = pytest.mark.parametrize("kind", [kind for kind in TOKENIZERS if kind not in IMPORTED])


def trained(kind: str, lines: list[str] = CORPUS) -> Tokenizer:
    return Tokenizer.train(lines, TokenizerSpec.parse({"kind": kind}), TAGS)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return trained("bpe")


@EVERY_KIND
def test_reserved_tokens_come_first(kind: str) -> None:
    tokenizer = trained(kind)
    assert (tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk) == (0, 1, 2, 3)
    assert (tokenizer.tag("<2de>"), tokenizer.tag("<2en>")) == (4, 5)
    assert tokenizer.tags == TAGS
    assert tokenizer.tokens(range(6)) == list(SPELLED)


@EVERY_KIND
def test_text_cannot_spell_a_reserved_token(kind: str) -> None:
    tokenizer = trained(kind)
    sealed = {*range(6)} - {tokenizer.unk}

    @given(
        st.lists(st.sampled_from([*SPELLED, " ", "a", "<", ">", "/", "＜", "s", "2", "de", "\n", "@@ "])).map("".join)
    )
    def is_text(text: str) -> None:
        ids = tokenizer.encode(text)
        assert sealed.isdisjoint(ids)
        assert tokenizer.encode_all([text, "a"])[0] == ids

    is_text()
    text = "Hello, world! <2de> <s>Größe</s> a<2en>b"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("again", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))], ids=["copied", "pickled"])
def test_a_copy_is_sealed_too(bpe: Tokenizer, again: Any) -> None:
    twin = again(bpe)
    assert twin.encode("<s> </s>") == bpe.encode("<s> </s>")
    assert twin.fingerprint == bpe.fingerprint


def test_a_file_from_elsewhere_is_sealed() -> None:
    """A unigram model of others takes `<s>` in text for its token; here it becomes unknown."""
    core = tokenizers.Tokenizer(tokenizers.models.Unigram([(s, 0.0) for s in SPELLED] + [("a", -1.0)], 3))
    core.add_special_tokens([*SPELLED])
    core.enable_truncation(2)
    tokenizer = Tokenizer.from_bytes(core.to_str().encode(), "theirs")
    assert tokenizer.encode("a<s>aa") == [6, 3, 6, 6]


def test_decoding_drops_special_tokens(bpe: Tokenizer) -> None:
    ids = [bpe.bos, bpe.tag("<2de>"), *bpe.encode("Hello, world!"), bpe.unk, bpe.eos, bpe.pad, bpe.pad]
    assert bpe.decode(ids) == "Hello, world!"
    assert bpe.decode(np.array(ids)) == "Hello, world!"


@EVERY_KIND
def test_the_file_gives_the_tokenizer_back(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    data = (tmp_path / "tokenizer.json").read_bytes()
    assert data == tokenizer.to_bytes() == loaded.to_bytes()
    assert hashlib.sha256(data).hexdigest() == tokenizer.fingerprint == loaded.fingerprint
    assert loaded.encode_all(CORPUS) == tokenizer.encode_all(CORPUS)
    assert (loaded.size, loaded.tags, loaded.eos) == (tokenizer.size, TAGS, tokenizer.eos)


def test_others_can_open_the_file(bpe: Tokenizer, tmp_path: Path) -> None:
    bpe.save(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = bpe.encode("Hello, Größe!")
    assert theirs.encode("Hello, Größe!").ids == ids
    assert theirs.decode([bpe.bos, *ids, bpe.eos]) == "Hello, Größe!"


def test_a_tokenizer_that_cannot_be_saved_leaves_the_old_one(bpe: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"the old one")
    with (
        limited_file_size(100),
        pytest.raises(CheckpointError, match=r"cannot write tokenizer\.json in .*File too large"),
    ):
        bpe.save(path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"the old one"]


def test_labels_are_printable() -> None:
    loose = {"normalize": {"spaces": False, "unicode": "none"}}
    chars = Tokenizer.train(["a b\n\u200b"], Chars.parse(loose))
    assert chars.tokens(chars.encode("a b\n\u200b")) == ["a", "▁", "b", "\\n", "\\u200b"]
    single = Tokenizer.train([], Bytes.parse(loose))
    assert single.tokens(single.encode("ä \n")) == ["\\xc3", "\\xa4", "▁", "\\n"]
    pairs = Tokenizer.train(["Übung"] * 2, ByteBpe())
    assert pairs.tokens(pairs.encode("Übung")) == ["▁Übung"]


def test_many_lines_are_the_lines_one_by_one(bpe: Tokenizer) -> None:
    lines = [f"Hello {i}, world" for i in range(23)]
    assert bpe.encode_all(iter(lines)) == [bpe.encode(line) for line in lines]
    assert bpe.encode_all([]) == []


@EVERY_KIND
def test_offsets_come_with_the_same_tokens(kind: str) -> None:
    """Also of a text that is encoded in pieces, in which the offsets count from its beginning."""
    tokenizer, lines = trained(kind), [*CORPUS[:3], "", "Größe a b " * 700]
    found = tokenizer.encode_with_offsets(lines)
    assert [ids for ids, _ in found] == tokenizer.encode_all(lines)
    for line, (ids, spans) in zip(lines, found, strict=True):
        assert len(ids) == len(spans)
        assert all(0 <= start <= end <= len(line) for start, end in spans)
        covered = {place for start, end in spans for place in range(start, end)}
        assert covered >= {place for place, letter in enumerate(line) if not letter.isspace()}


def test_chunks_change_nothing(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bpe.encode_all(CORPUS)
    monkeypatch.setattr("regard.text.tokenizer._CHUNK", 7)
    assert bpe.encode_all(CORPUS) == whole


def test_a_forked_process_encodes_quietly(tmp_path: Path) -> None:
    script = """
import os
from regard.text import Bytes, Tokenizer
tokenizer = Tokenizer.train([], Bytes())
tokenizer.encode_all(["some text"] * 5000)
child = os.fork()
if not child:
    os._exit(len(tokenizer.encode_all(["text"] * 5000)) != 5000)
raise SystemExit(os.waitpid(child, 0)[1])
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    env.pop("TOKENIZERS_PARALLELISM", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words"])
def test_speed(kind: str, shared_data: Path) -> None:
    with gzip.open(shared_data / "multi30k" / "train.de.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    tokenizer = trained(kind, lines[:5000])
    start = time.process_time()
    tokenizer.encode_all(lines)
    assert time.process_time() - start < 6  # about one; the rest is for machines that have more to do


@pytest.mark.parametrize("tag", ["2de", "<>", "<2 de>", "<2de", "<<2de>>", "<->", "<2dé>", ""])
def test_a_tag_that_text_could_be_is_refused(tag: str) -> None:
    with pytest.raises(SpecError, match="a tag should be letters or digits in angle brackets, such as '<2de>', got"):
        Tokenizer.train(CORPUS, Bpe(), [tag])


@pytest.mark.parametrize("tags", [["<s>"], ["<a>", "<a>"]])
def test_a_tag_twice_is_refused(tags: list[str]) -> None:
    with pytest.raises(SpecError, match=f"the token '{tags[-1]}' already exists; choose another name"):
        Tokenizer.train(CORPUS, Bpe(), tags)


def test_many_tags_are_checked_in_one_pass() -> None:
    tags = [f"<t{i}>" for i in range(200_000)]  # a quadratic check would take minutes
    assert check_tags(tags) == tags
    with pytest.raises(SpecError, match="the token '<t5>' already exists"):
        check_tags([*tags, "<t5>"])


def test_an_unknown_tag_names_its_neighbour(bpe: Tokenizer) -> None:
    with pytest.raises(UnknownName, match="no tag '<2du>'; did you mean '<2de>'"):
        bpe.tag("<2du>")


def test_ids_of_another_vocabulary_are_refused(bpe: Tokenizer) -> None:
    for wrong in (bpe.size, -1):
        for read in (bpe.decode, bpe.tokens):
            with pytest.raises(DataError, match=rf"token ids should be 0 to {bpe.size - 1}, got {wrong}; is this the"):
                read([5, wrong])


def test_half_a_character_is_refused(bpe: Tokenizer) -> None:
    with pytest.raises(DataError, match=r"line 1 has half a character, U\+DCFF"):
        bpe.encode("\udcff")


def file_of(**changes: Any) -> bytes:
    """The file of a small tokenizer with something changed in it."""
    state = json.loads(Tokenizer.train(["a b a b"], Words()).to_bytes())
    for path, value in changes.items():
        *way, last = path.split("__")
        place = state
        for key in way:
            place = place[key]
        place[last] = value
    return json.dumps(state).encode()


CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}  # makes the library panic


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "is not a tokenizer: EOF while parsing"),
        (b"PK\x03\x04\xff\xfe", "cannot read the tokenizer .*: 'utf-8' codec can't decode"),
        (b'{"a": 1}', "is not a tokenizer: "),
        (file_of(model__type="Nothing"), "is not a tokenizer: "),
        (file_of(normalizer=CHARSMAP), "is not a tokenizer: Precompiled: "),
        (file_of(model__unk_token="[UNK]"), "is not a tokenizer: WordLevel error: Missing"),
        (file_of(added_tokens=[]), "usable tokenizer: no special token <pad>, <s>, </s>, <unk>"),
        (file_of(model__vocab={"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "a": 9}), "usable tokenizer: its ids have gaps"),
        (file_of(model={"type": "BPE", "dropout": 0.1, "vocab": {t: i for i, t in enumerate(SPELLED)}, "merges": []}),
         "usable tokenizer: it segments the same text differently each time"),
    ],
)  # fmt: skip
def test_what_is_no_tokenizer_is_refused_by_name(data: bytes, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=fault) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read the tokenizer .*gone\.json: .*No such file"):
        Tokenizer.load(tmp_path / "gone.json")


@given(st.data())
def test_a_damaged_file_is_refused_or_harmless(data: st.DataObject) -> None:
    whole = bytearray(file_of())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=8))
    try:
        tokenizer = Tokenizer.from_bytes(bytes(whole), "damaged")
        ids = tokenizer.encode("a b c")
        tokenizer.decode(ids)
    except RegardError as error:
        assert "damaged" in str(error)
    else:
        assert all(0 <= i < tokenizer.size for i in ids)


def test_the_public_list() -> None:
    assert all(getattr(regard.text, name).__class__ is not ModuleType for name in regard.text.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Wordz'"):
        _ = regard.text.Wordz  # type: ignore[attr-defined]
    code = "import sys, regard.text; print('torch' in sys.modules, 'sentencepiece' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True) == "False False\n"


def test_the_unknown_share_counts_characters() -> None:
    """One unknown token may stand for a long word; ordinary text has a small share."""
    lines = ["the cat sat on the mat", "a dog ran to the house", "the house is on the mat"] * 3
    tokenizer = Tokenizer.train(lines, Words(min_count=1))
    texts = ["the cat sat", "the extraordinarily cat", "", "  ", "日本 the cat", "the cat sat on a dog and ran"]
    shares = tokenizer.unknown_shares(texts)
    assert shares == [0.0, pytest.approx(15 / 21), 0.0, 0.0, pytest.approx(2 / 8), pytest.approx(3 / 21)]
    assert tokenizer.mostly_unknown(texts) == [1]
    assert Tokenizer.train(["ab"], Chars()).unknown_shares(["a\ufffdb", "\ufffd\ufffd", "\ufffda日"]) == [0.0, 1.0, 0.5]
    assert Tokenizer.train(lines, Bytes()).unknown_shares(texts) == [0.0] * 6
