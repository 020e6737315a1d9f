"""A vocabulary alone does not say how text is split: a wrong guess is said, and another tokenizer can be named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import transformers

import regard
from regard.conversion.choose_tokenizer import choose_tokenizer, doubt_tokenizer
from regard.conversion.hf_tokenizer import from_hf
from regard.conversion.vocabulary_kinds import KINDS
from regard.errors import DataError, SpecError
from regard.text import Tokenizer
from tests.conversion.makers import MAKERS, wordpiece
from tests.conversion.tiny import make, saved
from tests.text.test_importers import LINES
from tests.verbs.calling import call

SYMBOLS = ["C", "c", "N", "O", "Cl", "Br", "(", ")", "=", "1", ".", ">>", "[C@H]", "[Na+]", "%10"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *SYMBOLS]
FORMULA = "CCO>>CC(=O)O"
DOUBT = (
    r"^the tokenizer may be wrong: vocab.txt has no pieces with ##, so it is not WordPiece, as which it is read; it has "
    r"upper-case tokens, so case is kept; \d+% of what its own tokens spell is unknown to it; name its tokenizer with "
    r"--tokenizer: a tokenizer.json, a folder with one, or wordpiece, wordpiece-cased, words, chars, smiles$"
)


def formulas(place: Path) -> Path:
    """A classifier of chemical formulas with only a list of tokens."""
    saved(make("bert, classes"), place)
    (place / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    return place


def read(tokenizer: Tokenizer | None, text: str) -> list[str]:
    assert tokenizer is not None
    return tokenizer.tokens(tokenizer.encode(text))


def test_a_wrong_guess_is_said_and_a_named_tokenizer_is_used(tmp_path: Path) -> None:
    said = call("convert", formulas(tmp_path / "theirs"), tmp_path / "guessed", "--json")
    notes = json.loads(said.out)["notes"]
    assert said.code == 0
    assert re.match(DOUBT, notes[0]) and said.err.startswith(f"regard: {notes[0]}\n")
    said = call("run", tmp_path / "guessed", FORMULA)
    assert "input 1 is largely unknown to the model's vocabulary" in said.err
    said = call("convert", tmp_path / "theirs", tmp_path / "named", "--tokenizer", "smiles")
    assert (said.code, said.err) == (0, "")
    assert re.fullmatch(r"class: (\d+) of \1 texts give the same", said.lines[-1])
    assert call("run", tmp_path / "named", FORMULA).err == ""
    model = regard.load(tmp_path / "named")
    ids = model.tokenizer.encode(FORMULA)
    assert "".join(VOCABULARY[i] for i in ids) == FORMULA and VOCABULARY.index(">>") in ids
    assert call("convert", tmp_path / "named", tmp_path / "back").err == ""
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert theirs(FORMULA)["input_ids"] == [2, *ids, 3]


@pytest.mark.parametrize("name", MAKERS)
def test_ordinary_tokenizers_are_not_doubted(name: str, tmp_path: Path) -> None:
    folder = MAKERS[name](tmp_path)
    tokenizer = from_hf(folder)
    assert tokenizer is not None and doubt_tokenizer(tokenizer, folder, LINES) == []


def test_a_sample_of_another_kind_is_said(tmp_path: Path) -> None:
    folder = wordpiece(tmp_path)
    tokenizer = from_hf(folder)
    assert tokenizer is not None
    (note,) = doubt_tokenizer(tokenizer, folder, ["日本語の本", "Two men"])
    assert note.startswith("33% of the sample is unknown to the tokenizer; name its tokenizer with --tokenizer")


@pytest.mark.parametrize("lower", [True, False, None])
def test_upper_case_tokens_make_a_vocabulary_cased(lower: bool | None, tmp_path: Path) -> None:
    folder = wordpiece(tmp_path, lower=False)
    config = {} if lower is None else {"do_lower_case": lower}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert ("T" in read(from_hf(folder), "Two")[0]) is (lower is not True)


KIND_TOKENS = {
    "wordpiece": ["c", "[UNK]", "[UNK]"],
    "wordpiece-cased": ["C", "Cl", "[UNK]"],
    "words": ["C", "Cl", "[UNK]"],
    "chars": ["C", "[UNK]", "C", "[UNK]", "[UNK]", "C", "C"],
    "smiles": ["C", "Cl", "C", "C"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind: str, tmp_path: Path) -> None:
    assert read(choose_tokenizer(formulas(tmp_path / "theirs"), kind), "C Cl CC") == KIND_TOKENS[kind]


def test_files_and_folders_can_be_named(tmp_path: Path) -> None:
    folder = formulas(tmp_path / "theirs")
    named = choose_tokenizer(folder, "smiles")
    (tmp_path / "other").mkdir()
    named.save(tmp_path / "other" / "tokenizer.json")
    (tmp_path / "other" / "special_tokens_map.json").write_text(
        json.dumps({"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"})
    )
    (folder / "special_tokens_map.json").write_text((tmp_path / "other" / "special_tokens_map.json").read_text())
    for where in (tmp_path / "other", tmp_path / "other" / "tokenizer.json"):
        found = choose_tokenizer(folder, str(where))
        assert found.encode(FORMULA) == named.encode(FORMULA)
        assert found.frame([7])[0] == [2, 7, 3]


def test_what_cannot_be_named(tmp_path: Path) -> None:
    folder = formulas(tmp_path / "theirs")
    with pytest.raises(
        SpecError, match=r"no tokenizer 'smile'; it should be a tokenizer.json, .* or a kind: wordpiece,"
    ):
        choose_tokenizer(folder, "smile")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty has no tokenizer"):
        choose_tokenizer(folder, str(tmp_path / "empty"))
    (folder / "vocab.txt").unlink()
    with pytest.raises(DataError, match=r"kind 'smiles' needs a vocab.txt; name a tokenizer.json instead"):
        choose_tokenizer(folder, "smiles")


def test_only_hugging_face_folders_take_another_tokenizer(tmp_path: Path) -> None:
    call("convert", formulas(tmp_path / "theirs"), tmp_path / "ours", "--tokenizer", "smiles")
    said = call("convert", tmp_path / "ours", tmp_path / "back", "--tokenizer", "smiles")
    assert said.code == 2 and "has its own tokenizer; leave out --tokenizer" in said.err


def test_a_sample_is_compared_and_must_have_text(tmp_path: Path) -> None:
    (tmp_path / "sample.txt").write_text("CC(=O)O\n\nCCO\n")
    (tmp_path / "blank.txt").write_text("\n \n")
    folder = formulas(tmp_path / "theirs")
    options = ("--tokenizer", "smiles", "--sample")
    said = call("convert", folder, tmp_path / "ours", *options, tmp_path / "sample.txt")
    assert said.lines[-1] == "class: 2 of 2 texts give the same"
    said = call("convert", folder, tmp_path / "ours2", *options, tmp_path / "blank.txt")
    assert said.code == 2 and "blank.txt has no text" in said.err
