"""Labelled texts from tables and CoNLL files; what is wrong is said with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.labels import read_labeled, read_tagged
from regard.errors import DataError


def put(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.tsv", "id\tlabel\ttext\n1\tup\ta b\n2\tdown\tc\n"),
        ("x.tsv", "a b\tup\nc\tdown\n"),
        ("x.csv", 'text,label\n"a b",up\nc,down\n'),
        ("x.jsonl", '{"text": "a b", "label": "up"}\n{"text": "c", "label": "down"}\n'),
    ],
)
def test_texts_and_labels(tmp_path: Path, name: str, text: str) -> None:
    found = read_labeled(put(tmp_path, name, text))
    assert (found.source, found.target, found.name) == (["a b", "c"], ["up", "down"], name)


def test_pairs_of_texts(tmp_path: Path) -> None:
    found = read_labeled(put(tmp_path, "x.csv", 'text,other,label\n"a\tb",c,yes\n'), pair=True)
    assert (found.source, found.target) == (["a b\tc"], ["yes"])


def test_columns_by_position(tmp_path: Path) -> None:
    path = put(tmp_path, "x.tsv", "1\ta\tx\n2\tb\ty\n")
    assert read_labeled(path, columns=(2, 3)).target == ["x", "y"]
    with pytest.raises(DataError, match=r"columns should be 2, for text, label, got \[2\]"):
        read_labeled(path, columns=(2,))
    with pytest.raises(DataError, match="has 3 columns and no header with text and label; set columns"):
        read_labeled(path)
    with pytest.raises(DataError, match="line 2: 2 columns, but the first line has 3"):
        read_labeled(put(tmp_path, "y.tsv", "a\tb\tx\na\tb\n"), pair=True)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.tsv", "a\tup\n \tdown\n", r"x\.tsv, line 2: the text is empty"),
        ("x.tsv", "a\tup\nb\t\n", r"x\.tsv, line 2: the label is empty"),
        ("x.jsonl", '{"text": "a"}\n', r"line 1: should be an object with the texts 'text' and 'label', got"),
        ("x.txt", "a\tb\n", r"x\.txt should be a table: \.tsv, \.csv, \.jsonl"),
        ("x.tsv", "text\tlabel\n", "contains no labeled texts"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_labeled(put(tmp_path, name, text))


def test_words_and_their_labels(tmp_path: Path) -> None:
    conll = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\nPeter NNP B-PER\n"
    table = "text\tlabels\nEU  rejects\tB-ORG O\nPeter\tB-PER\n"
    for name, text in (("x.conll", conll), ("x.tsv", table)):
        found = read_tagged(put(tmp_path, name, text), "words")
        assert (found.source, found.target) == (["EU rejects", "Peter"], ["B-ORG O", "B-PER"])


def test_letters_and_their_labels(tmp_path: Path, shared_data: Path) -> None:
    found = read_tagged(put(tmp_path, "x.tsv", "1\tMKV\tHHE\n"), "letters", columns=(2, 3))
    assert (found.source, found.target) == (["MKV"], ["HHE"])
    real = read_tagged(str(shared_data / "protein_ss" / "casp12_validation.tsv.gz"), "letters", columns=(2, 3))
    assert len(real) == 205
    assert set("".join(real.target)) <= set("HELTSGBI")


def test_out_of_step(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x\.tsv, line 2: 2 words but 1 labels; the numbers should be equal"):
        read_tagged(put(tmp_path, "x.tsv", "a\tX\na b\tX\n"), "words")
    with pytest.raises(DataError, match=r"x\.tsv, line 1: 3 letters but 2 labels"):
        read_tagged(put(tmp_path, "x.tsv", "abc\tXY\n"), "letters")
    with pytest.raises(DataError, match=r"x\.conll, line 2: should be a word and its label, got 'b'"):
        read_tagged(put(tmp_path, "x.conll", "a X\nb\n"), "words")
