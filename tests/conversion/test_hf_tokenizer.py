"""Tokenizers of Hugging Face folders give the ids that `transformers` gives, come back unchanged, and go out again."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from regard.conversion.hf_tokenizer import MASK, from_hf, to_hf
from regard.conversion.marian_tokenizer import marian_files
from regard.errors import CheckpointError, DataError, RegardError, SpecError
from regard.text import Bpe, Template, Tokenizer, Unigram, WordPiece
from tests.conversion.makers import CORPUS, MAKERS, said, wordpiece
from tests.text.test_importers import LINES, ODD, OTHERS, write_model

TEXTS = [
    *LINES,
    *OTHERS,
    *ODD,
    "Don't  PANIC!? 12345 \n\n\t x",
    "ÀÉÎ çà et là",
    "日本語とEnglish",
    "\x00\ufffd\u00ad a\u0301",
]
PAIRS = [("Two men", "a house"), ("", "near"), ("a" * 300, "中文 ?")]


@pytest.fixture(scope="module", params=MAKERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    return MAKERS[request.param](path)


def same(ours: Tokenizer, theirs: Any, text: str) -> None:
    ids = theirs(text, add_special_tokens=False)["input_ids"]
    spelled = {*theirs.all_special_ids} - {ours.unk}  # a unigram model finds them in text all the same; ours are sealed
    assert ours.encode(text) == [ours.unk if i in spelled else i for i in ids], text
    if spelled.isdisjoint(ids):
        assert ours.frame(ours.encode(text))[0] == theirs(text)["input_ids"]


def load(folder: Path) -> Any:
    """Their tokenizer, told to take text that spells a special token as text, as ours does."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, split_special_tokens=True)


def found(folder: Path) -> Tokenizer:
    ours = from_hf(folder)
    assert ours is not None
    return ours


def test_ids_are_theirs(folder: Path) -> None:
    ours, theirs = found(folder), load(folder)
    assert ours.size == len(theirs)
    for text in TEXTS:
        same(ours, theirs, text)

    @given(st.text())
    def any_text(text: str) -> None:
        same(ours, theirs, text)

    any_text()


def test_pairs_and_segments_are_theirs(folder: Path) -> None:
    ours, theirs = found(folder), load(folder)
    for first, second in PAIRS:
        told = theirs(first, second, return_token_type_ids=True)
        ids, segments = ours.frame(ours.encode(first), ours.encode(second))
        assert (ids, segments) == (told["input_ids"], told["token_type_ids"])


def test_roles_are_theirs(folder: Path) -> None:
    ours, theirs = found(folder), load(folder)
    for role, names in {"pad": ["pad"], "bos": ["bos", "cls"], "eos": ["eos", "sep"], "unk": ["unk"]}.items():
        ids = [i for name in names if (i := getattr(theirs, f"{name}_token_id")) is not None]
        if ids:
            assert getattr(ours, role) == ids[0], role
    if theirs.mask_token_id is not None:
        assert ours.tag(MASK) == theirs.mask_token_id
    assert ours.pad in range(ours.size)


def test_our_file_gives_it_back(folder: Path, tmp_path: Path) -> None:
    ours = found(folder)
    ours.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.encode_all(TEXTS) == ours.encode_all(TEXTS)
    assert again.frame([5], [6]) == ours.frame([5], [6])
    assert (again.pad, again.bos, again.eos, again.unk, again.tags) == (
        ours.pad, ours.bos, ours.eos, ours.unk, ours.tags,
    )  # fmt: skip


def test_out_again(folder: Path, tmp_path: Path) -> None:
    ours = found(folder)
    to_hf(ours, tmp_path)
    theirs, again = load(tmp_path), found(tmp_path)
    for text in TEXTS:
        same(ours, theirs, text)
    for first, second in PAIRS:
        told = theirs(first, second, return_token_type_ids=True)
        assert ours.frame(ours.encode(first), ours.encode(second)) == (told["input_ids"], told["token_type_ids"])
    assert again.encode_all(TEXTS) == ours.encode_all(TEXTS)
    assert (again.pad, again.bos, again.eos, again.unk) == (ours.pad, ours.bos, ours.eos, ours.unk)


@pytest.mark.parametrize("spec", [WordPiece(vocab=400), Bpe(vocab=300), Unigram(vocab=300)])
def test_what_we_trained_goes_out(spec: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    ours = Tokenizer.train(CORPUS, spec, ["<mask>"])
    to_hf(ours, tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path, split_special_tokens=True)
    for text in [*LINES, *OTHERS]:
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text)
    assert (theirs.pad_token_id, theirs.eos_token_id, theirs.mask_token_id) == (ours.pad, ours.eos, ours.tag(MASK))
    if ours.template is not None:
        assert (
            list(theirs("Two men", "a house")["token_type_ids"])
            == ours.frame(ours.encode("Two men"), ours.encode("a house"))[1]
        )


def test_t5_from_its_sentencepiece_model(tmp_path: Path) -> None:
    path, theirs = write_model(tmp_path, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    path.rename(tmp_path / "spiece.model")
    said(tmp_path, "T5Tokenizer", "t5", extra_ids=3)
    ours, size = found(tmp_path), theirs.get_piece_size()
    for text in [*LINES, *OTHERS]:
        assert ours.encode(text) == theirs.encode(text)
    assert (ours.pad, ours.bos, ours.eos, ours.unk, ours.size) == (0, 0, 1, 2, size + 3)
    assert ours.tag("<extra_id_0>") == size + 2 and ours.tag("<extra_id_2>") == size
    assert ours.frame([7, 8]) == ([7, 8, 1], [0, 0, 0])


def test_llama_from_its_sentencepiece_model(tmp_path: Path) -> None:
    path, theirs = write_model(
        tmp_path, model_type="bpe", byte_fallback=True, vocab_size=600, normalization_rule_name="identity",
        remove_extra_whitespaces=False,
    )  # fmt: skip
    path.rename(tmp_path / "tokenizer.model")
    ours = found(said(tmp_path, "LlamaTokenizer", "llama"))
    for text in [*LINES, *OTHERS]:
        assert ours.encode(text) == theirs.encode(text)
    assert (ours.unk, ours.bos, ours.eos, ours.pad, ours.size) == (0, 1, 2, 2, theirs.get_piece_size())
    assert ours.frame([7])[0] == [1, 7]


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    names: list[str] = []
    for side, lines in {"source": [*LINES, *LINES[:2] * 9], "target": [*LINES, *LINES[2:] * 9, "ß"]}.items():
        path, model = write_model(tmp_path, vocab_size=120, lines=lines)
        path.rename(tmp_path / f"{side}.spm")
        names += [model.id_to_piece(i) for i in range(3, model.get_piece_size())]
    vocab = dict.fromkeys(["</s>", "<unk>", ">>de<<", *sorted(names), "<pad>"])
    (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(vocab)}))
    return said(tmp_path, "MarianTokenizer", "marian")


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_marian_cuts_each_side_its_own_way(marian: Path) -> None:
    from transformers import MarianTokenizer

    theirs = MarianTokenizer.from_pretrained(marian)
    source, target = from_hf(marian, "source"), from_hf(marian, "target")
    assert source is not None and target is not None
    assert source.size == target.size == len(theirs)
    for text in [*LINES, "the ß house"]:
        assert source.frame(source.encode(text))[0] == theirs(text)["input_ids"]
        ids = theirs(text_target=text)["input_ids"]
        assert target.frame(target.encode(text))[0] == ids
        assert target.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert target.decode(source.encode("The men")) == "The men"
    assert (source.pad, source.bos, source.eos, source.unk) == (len(theirs) - 1, len(theirs) - 1, 0, 1)
    assert source.tag(">>de<<") == 2


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_marian_goes_out_again(marian: Path, tmp_path: Path) -> None:
    from transformers import MarianTokenizer

    source, target = from_hf(marian, "source"), from_hf(marian, "target")
    assert source is not None and target is not None
    (out := tmp_path / "out").mkdir()
    for name, data in marian_files(source, target).items():
        (out / name).write_bytes(data)
    before, after = MarianTokenizer.from_pretrained(marian), MarianTokenizer.from_pretrained(out)
    assert (before.pad_token_id, before.eos_token_id, before.unk_token_id) == (
        after.pad_token_id, after.eos_token_id, after.unk_token_id,
    )  # fmt: skip
    for text in [*LINES, *OTHERS, "the ß house", "ﬁ  ①"]:
        assert before(text)["input_ids"] == after(text)["input_ids"]
        assert before(text_target=text)["input_ids"] == after(text_target=text)["input_ids"]
    for side, was in (("source", source), ("target", target)):
        again = from_hf(said(out, "MarianTokenizer", "marian"), side)  # type: ignore[arg-type]
        assert again is not None and again.core.to_str() == was.core.to_str()


def test_two_tokenizers_of_another_kind_cannot_go_out() -> None:
    source, target = (Tokenizer.train(LINES, Bpe(vocab=80 + 20 * k)) for k in (0, 1))
    with pytest.raises(SpecError, match="only as Marian's do: two SentencePiece models"):
        marian_files(source, target)


def test_the_decoder_starts_as_the_configuration_says(tmp_path: Path) -> None:
    folder = MAKERS["bart-saved"](tmp_path)
    (folder / "config.json").write_text(json.dumps({"model_type": "bart", "decoder_start_token_id": 2}))
    ours = found(folder)
    assert (ours.bos, ours.eos) == (2, 2)
    assert ours.frame([9])[0] == [0, 9, 2]


def test_the_configuration_may_say_otherwise_than_the_file(tmp_path: Path) -> None:
    folder = MAKERS["bert-saved"](tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"do_lower_case": False}))
    same(found(folder), load(folder), "Two MEN outside")


def test_added_tokens_keep_their_ids(tmp_path: Path) -> None:
    folder = wordpiece(tmp_path)
    size = found(folder).size
    (folder / "added_tokens.json").write_text(json.dumps({"<new>": size}))
    assert found(folder).tag("<new>") == size
    (folder / "added_tokens.json").write_text(json.dumps({"<new>": size + 7}))
    with pytest.raises(DataError, match=f"cannot use the tokenizer in .*'<new>' should have the id {size + 7}"):
        from_hf(folder)


def test_added_tokens_of_both_kinds_keep_their_ids(tmp_path: Path) -> None:
    folder = wordpiece(tmp_path)
    size = found(folder).size
    kinds = [True, True, False, True, False, False]
    added = {size + i: {"content": f"<{i}>", "special": special} for i, special in enumerate(kinds)}
    said(folder, "BertTokenizer", "bert", added_tokens_decoder=added)
    core = found(folder).core
    assert [core.token_to_id(f"<{i}>") for i in range(6)] == [*range(size, size + 6)]
    there = core.get_added_tokens_decoder()
    assert [there[size + i].special for i in range(6)] == kinds
    said(folder, "BertTokenizer", "bert", added_tokens_decoder=added | {size + 6: {"content": "<0>"}})
    with pytest.raises(DataError, match=f"'<0>' should have the id {size + 6}"):
        from_hf(folder)


def test_a_folder_without_one(tmp_path: Path) -> None:
    assert from_hf(tmp_path) is None


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(DataError, match=r"cannot tell how a tokenizer of kind 'ctrl' uses vocab.json; save it with"):
        from_hf(said(tmp_path, "CTRLTokenizer", "ctrl"))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer.json is not a tokenizer: EOF"):
        from_hf(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"tokenizer_config.json should hold an object, got list"):
        from_hf(tmp_path)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_huge_id_takes_no_memory(tmp_path: Path) -> None:
    """The library would list all ids below it, and end the process if they do not fit."""
    folder = said(tmp_path, "PreTrainedTokenizerFast", "bert", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    made = json.loads(Tokenizer.train(CORPUS, WordPiece(vocab=500)).to_bytes())
    made["model"]["vocab"][next(reversed(made["model"]["vocab"]))] = 2**31
    (folder / "tokenizer.json").write_text(json.dumps(made))
    code = f"""
import pathlib, resource
from regard.conversion.hf_tokenizer import from_hf
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, ((pages << 12) + (1 << 30),) * 2)
try:
    from_hf(pathlib.Path({str(folder)!r}))
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "its ids have gaps" in done.stdout, done.stderr


def test_values_of_another_kind_are_refused_or_harmless(tmp_path: Path) -> None:
    folder = wordpiece(tmp_path)
    (folder / "vocab.json").write_text("{}")
    keys = [
        "do_lower_case",
        "strip_accents",
        "tokenizer_class",
        "pad_token",
        "cls_token",
        "added_tokens_decoder",
        "add_bos_token",
    ]
    values = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just([1]), st.just({"7": 1}))

    @given(st.dictionaries(st.sampled_from(keys), values))
    def told(config: dict[str, Any]) -> None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        with suppress(RegardError):
            found(folder).encode("Two men")

    told()
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": "yes"}))
    with pytest.raises(CheckpointError, match=r"the tokenizer in .* is damaged: "):
        from_hf(folder)


def test_a_token_that_is_called_nothing_is_none(tmp_path: Path) -> None:
    folder = MAKERS["bert-saved"](tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    for nothing in ("", {"content": ""}):
        (folder / "tokenizer_config.json").write_text(json.dumps(config | {"mask_token": nothing}))
        assert "<mask>" not in found(folder).tags


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path) -> None:
    tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        DataError, match=r"no token ends a text; name it in tokenizer_config.json, as eos_token or sep_token"
    ):
        from_hf(tmp_path)


def test_two_texts_framed_by_what_we_do_not_know_are_refused() -> None:
    post = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "NewProcessing"}]}
    with pytest.raises(DataError, match="cannot use a tokenizer with the post-processor NewProcessing"):
        Template.read(post)
