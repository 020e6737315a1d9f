"""Tokenizers from other tools cut as the tool itself does, and what cannot be converted is refused."""

from __future__ import annotations

import gzip
import io
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from regard.errors import CheckpointError, DataError, SpecError
from regard.text import Tokenizer, TokenizerSpec, from_sentencepiece, from_subword_nmt

LINES = [
    "Two young, White males are outside near many bushes.",
    "Several men in hard hats are operating a giant pulley system.",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz.",
    "Zwei Männer stehen am Herd und bereiten Essen zu (für 12 Gäste).",
    "The men are standing near the house; the girl is outside, too!",
    "Die Männer in den Helmen bedienen ein Antriebsradsystem.",
]
OTHERS = [
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng",
    "모든 인간은 태어날 때부터 자유로우며",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में",
    "يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا مُتَسَاوِينَ",
    "כָּל בְּנֵי הָאָדָם נוֹלְדוּ בְּנֵי חוֹרִין",
    "Ὅλοι οἱ ἄνθρωποι γεννιοῦνται ἐλεύθεροι",
    "すべての人間は、ｶﾞｷﾞ ～ ①②",
    "ﬁ ½ … Ａ１ İstanbul ẞ 👩‍👧 \u200bx\u00a0y\tz\x07",
]
ODD = ["", " ", "  two  spaces ", "▁x ▁", "<s> a</s>b", "<unk><pad>", "[CLS] <2de>", "<0x41>", "xq🤗z"]


def write_model(
    folder: Path, lines: Sequence[str] = (*LINES * 3, *OTHERS), **asked: Any
) -> tuple[Path, sentencepiece.SentencePieceProcessor]:
    """Train a small SentencePiece model."""
    model = io.BytesIO()
    options = {"vocab_size": 400, "hard_vocab_limit": False, "minloglevel": 2, "character_coverage": 1.0, **asked}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
    path = folder / "their.model"
    path.write_bytes(model.getvalue())
    return path, sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"byte_fallback": True, "vocab_size": 600, "character_coverage": 0.98},
        {"normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
        {"normalization_rule_name": "nmt_nfkc_cf", "split_by_whitespace": False},
        {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "control_symbols": ["<2de>", "[CLS]"]},
    ],
    ids=["plain", "bytes", "identity", "folded", "t5"],
)
def test_sentencepiece_cuts(algorithm: str, asked: dict[str, Any], tmp_path: Path) -> None:
    path, theirs = write_model(tmp_path, model_type=algorithm, **asked)
    ours = from_sentencepiece(path)
    apart = [unicodedata.normalize("NFD", line) for line in OTHERS]
    for line in [*LINES, *OTHERS, *apart, *(a + b for a in LINES for b in OTHERS)]:
        ids = theirs.encode(line)
        assert ours.encode(line) == ids, line
        assert ours.decode(ids) == theirs.decode([i for i in ids if i != theirs.unk_id()])
    for line in ODD:
        ids = ours.encode(line)
        assert {ours.pad, ours.bos, ours.eos}.isdisjoint(ids)
        if algorithm == "bpe":
            assert ids == theirs.encode(line), line
        elif ours.unk not in ids:  # a unigram model is kept from spelling a special token by a cut of its own
            assert ours.decode(ids) == theirs.decode(theirs.encode(line))


def test_sentencepiece_ids_stay_and_roles_are_found(tmp_path: Path) -> None:
    path, theirs = write_model(tmp_path, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, pad_piece="[PAD]",
                               control_symbols=["[CLS]"], user_defined_symbols=["<2de>"])  # fmt: skip
    ours = from_sentencepiece(path, tags=["<2fr>"])
    size = theirs.get_piece_size()
    assert (ours.pad, ours.eos, ours.unk, ours.bos, ours.size) == (0, 1, 2, size, size + 2)
    assert ours.tags == ("[CLS]", "<2de>", "<2fr>")
    assert ours.tag("<2de>") == theirs.piece_to_id("<2de>")
    assert ours.tokens(range(5, 50)) == [theirs.id_to_piece(i) for i in range(5, 50)]


def test_a_converted_model_is_a_file_like_any_other(tmp_path: Path) -> None:
    ours = from_sentencepiece(write_model(tmp_path)[0])
    ours.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.fingerprint == ours.fingerprint
    assert loaded.encode_all([*LINES, *OTHERS, *ODD]) == ours.encode_all([*LINES, *OTHERS, *ODD])


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"model_type": "char"}, "it is neither unigram nor BPE"),
        ({"treat_whitespace_as_suffix": True}, "it does not mark spaces at the beginning of words"),
        ({"user_defined_symbols": ["(c)"]}, r"it has user-defined symbols that are not tags, such as '\(c\)'"),
    ],
)
def test_other_sentencepiece_models_are_refused(asked: dict[str, Any], fault: str, tmp_path: Path) -> None:
    path, _ = write_model(tmp_path, **asked)
    with pytest.raises(DataError, match=f"cannot use the SentencePiece model .*their.model: {fault}"):
        from_sentencepiece(path)


def test_pieces_out_of_use_are_refused(tmp_path: Path) -> None:
    path, _ = write_model(tmp_path)
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(path.read_bytes())
    model.pieces[7].type = 5
    path.write_bytes(model.SerializeToString())
    with pytest.raises(DataError, match="it has unused pieces such as "):
        from_sentencepiece(path)


def test_a_tag_that_is_a_piece_is_refused(tmp_path: Path) -> None:
    path, _ = write_model(tmp_path, control_symbols=["<2de>"])
    with pytest.raises(DataError, match="has the piece '<2de>' twice; if it is a tag, choose other tags"):
        from_sentencepiece(path, tags=["<2de>"])


def test_what_is_no_sentencepiece_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "odd.model"
    with pytest.raises(CheckpointError, match=r"cannot read the SentencePiece model .*odd\.model: .*No such file"):
        from_sentencepiece(path)
    path.write_bytes(b"no model at all")
    with pytest.raises(CheckpointError, match=r"cannot read the SentencePiece model .*odd\.model"):
        from_sentencepiece(path)
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"odd\.model is not a SentencePiece model: it has no pieces"):
        from_sentencepiece(path)


def test_a_damaged_sentencepiece_model_is_named(tmp_path: Path) -> None:
    path, _ = write_model(tmp_path)
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(path.read_bytes())
    model.normalizer_spec.precompiled_charsmap = b"\xff" * 12
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match=r"their\.model is a damaged SentencePiece model: its character map"):
        from_sentencepiece(path)


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(SpecError, match=r"pip install '\.\[sentencepiece\]'"):
        from_sentencepiece(tmp_path / "any.model")


CODES = "#version: 0.2\nl o\nlo w</w>\ne r</w>\nlo w\n"


@pytest.fixture
def codes(tmp_path: Path) -> Path:
    path = tmp_path / "codes"
    path.write_text(CODES, encoding="utf-8")
    return path


def test_subword_nmt_cuts(codes: Path) -> None:
    tokenizer = from_subword_nmt(codes, ["slow , lower"], tags=["<2de>"])
    ids = tokenizer.encode("low lower slow , oo")
    assert " ".join(tokenizer.tokens(ids)) == "low low@@ er s@@ low , o@@ o"
    assert tokenizer.decode(ids) == "low lower slow , oo"
    assert tokenizer.tokens(tokenizer.encode("lot")) == ["lo@@", "<unk>"]
    assert (tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk, tokenizer.tag("<2de>")) == (0, 1, 2, 3, 4)


def test_a_recipe_brings_its_own_vocabulary(codes: Path, tmp_path: Path) -> None:
    """The kinds of a recipe give what the functions give, and the file is not needed afterwards."""
    made = Tokenizer.train(
        ["slow , lower"], TokenizerSpec.parse({"kind": "subword_nmt", "codes": str(codes)}), ["<2de>"]
    )
    assert made.to_bytes() == from_subword_nmt(codes, ["slow , lower"], tags=["<2de>"]).to_bytes()
    path, _ = write_model(tmp_path)
    made = Tokenizer.train([], TokenizerSpec.parse({"kind": "sentencepiece", "path": str(path)}))
    assert made.to_bytes() == from_sentencepiece(path).to_bytes()
    path.unlink()
    assert Tokenizer.from_bytes(made.to_bytes(), "x").encode("low") == made.encode("low")


def test_text_that_was_cut_with_the_codes_is_joined_first(codes: Path) -> None:
    packed = codes.with_suffix(".gz")
    packed.write_bytes(gzip.compress(codes.read_bytes()))
    spec = TokenizerSpec.parse({"kind": "subword_nmt", "codes": str(packed), "undo": True})
    tokenizer = Tokenizer.train(["s@@ low , lower"], spec)
    for text in ("low s@@ low , lo@@ w@@ er", "low slow , lower"):
        ids = tokenizer.encode(text)
        assert " ".join(tokenizer.tokens(ids)) == "low s@@ low , low@@ er"
        assert tokenizer.decode(ids) == spec.desegment(text) == "low slow , lower"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match=r"cannot read the merge file .*codes\.gz: Compressed file ended"):
        Tokenizer.train([], spec)


def test_subword_nmt_text_spells_no_special_token(codes: Path) -> None:
    tokenizer = from_subword_nmt(codes, ["</s> <2de>"], tags=["<2de>"])
    text = "</s> <2de> <s></w> low</s>"
    ids = tokenizer.encode(text)
    assert {*range(5)}.isdisjoint(ids)
    assert tokenizer.decode(ids) == text


def test_subword_nmt_reproduces_the_published_cuts(shared_data: Path, tmp_path: Path) -> None:
    def read(name: str) -> list[str]:
        return (
            gzip.decompress((shared_data / "multi30k" / "bpe_en_de" / f"{name}.gz").read_bytes()).decode().splitlines()
        )

    (tmp_path / "codes").write_text("\n".join(read("code")), encoding="utf-8")
    cut = [line for name in ("test.2016.en", "test.2016.de", "test.coco.de", "valid.de") for line in read(name)]
    whole = [line.replace("@@ ", "") for line in cut]
    tokenizer = from_subword_nmt(tmp_path / "codes", whole)
    for line, text, ids in zip(cut, whole, tokenizer.encode_all(whole), strict=True):
        assert " ".join(tokenizer.tokens(ids)) == line.strip()
        assert tokenizer.decode(ids) == text.strip()


@pytest.mark.parametrize(
    ("text", "error", "fault"),
    [
        ("l o\n", CheckpointError, r"codes should begin with '#version: 0.2', as subword-nmt writes it, got 'l o'"),
        ("#version: 0.2\nl o\nlow\n", CheckpointError, r"codes should have two pieces per line, got 'low' in line 3"),
        ("#version: 0.2\nlo w\n", CheckpointError, r"codes is not a merge file: .*Token `lo` out of vocabulary"),
        (
            "#version: 0.2\n< s\n<s >\n",
            DataError,
            "creates the piece '<s>', which is a special token; remove its merge",
        ),
    ],
)
def test_other_merge_files_are_refused(codes: Path, text: str, error: type[Exception], fault: str) -> None:
    codes.write_text(text, encoding="utf-8")
    with pytest.raises(error, match=fault):
        from_subword_nmt(codes, ["low"])


def test_a_missing_merge_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read the merge file .*gone: .*No such file"):
        from_subword_nmt(tmp_path / "gone", [])


def test_a_piece_that_is_no_text(tmp_path: Path) -> None:
    path, model = write_model(tmp_path)
    piece = model.id_to_piece(10).encode()
    path.write_bytes(path.read_bytes().replace(piece, b"\xff" * len(piece), 1))
    with pytest.raises(
        CheckpointError, match=r"their\.model is a damaged SentencePiece model: it has a piece that is not UTF-8"
    ):
        from_sentencepiece(path)
