"""Headers of tables: found, told where they are not certain, and refused where they belong to another task."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.labels import read_labeled, read_tagged
from regard.data.pair_reader import Corpus, read_corpus
from regard.data.pairs import Pairs
from regard.data.table_header import is_header
from regard.errors import DataError
from tests.verbs.calling import call

SENTENCES = (
    "\nA dog runs home.,Ein Hund rennt heim.\nIt rains.,Es regnet.\nThe cat sleeps a lot.,Die Katze schläft viel.\n"
)


def pairs_of(folder: Path, text: str, name: str = "x.csv", **settings: object) -> Pairs:
    (folder / name).write_text(text)
    return read_corpus(Corpus.parse({"paths": [str(folder / name)], **settings}))


@pytest.mark.parametrize("header", ["english,german", "en,de", "English,My German", "text_en,text_de", "src,tgt"])
def test_an_unknown_header_is_no_pair(tmp_path: Path, header: str) -> None:
    """It trained as a pair, and counted in scores."""
    found = pairs_of(tmp_path, header + SENTENCES)
    assert len(found) == 3
    one, other = header.split(",")
    (note,) = found.notes
    assert f"x.csv: the first line is read as a header, {one} is the source and {other} is the target;" in note
    assert "header: false if it is data" in note
    assert pairs_of(tmp_path, header + SENTENCES, header=False).source[0] == one
    named = pairs_of(tmp_path, header + SENTENCES, columns=[other, one])
    assert (named.target[1], named.notes) == ("It rains.", ())
    assert len(pairs_of(tmp_path, header + SENTENCES, columns=[2, 1])) == 3
    assert len(pairs_of(tmp_path, (header + SENTENCES).replace(",", "\t"), "x.tsv")) == 3


@pytest.mark.parametrize("header", ["summary,article", "highlights,document", "Summary,Text"])
def test_a_summary_is_the_target_wherever_it_stands(tmp_path: Path, header: str) -> None:
    one, other = header.split(",")
    for name, text in (
        ("x.csv", f"{header}\nA dog.,A dog runs home.\n"),
        ("y.csv", f"id,{header}\n7,A dog.,A dog runs home.\n"),
    ):
        found = pairs_of(tmp_path, text, name)
        assert (found.source[0], found.target[0]) == ("A dog runs home.", "A dog.")
        assert f"read as a header, {other} is the source and {one} is the target; set columns" in found.notes[0]


def test_known_names_and_plain_data_need_no_word(tmp_path: Path) -> None:
    for text in (
        f"source,target{SENTENCES}",
        SENTENCES.lstrip("\n"),
        f"Dogs run fast,Hunde rennen schnell{SENTENCES}x,",
    ):
        found = pairs_of(tmp_path, text, on_bad="drop")
        assert (found.notes, len(found) - text.startswith("Dogs")) == ((), 3)


def test_what_cannot_be_seen_is_said(tmp_path: Path) -> None:
    """A list of words: the first two may be names of columns or words like the others."""
    words = "dog,Hund\ncat,Katze\nhouse,Haus\n"
    found = pairs_of(tmp_path, words)
    assert found.source[0] == "dog"
    (note,) = found.notes
    assert "x.csv: the first line (dog, Hund) is read as data; if it is a header, set header: true" in note
    assert pairs_of(tmp_path, words, header=True).source[0] == "cat"
    assert pairs_of(tmp_path, words, header=False).notes == ()


@pytest.mark.parametrize("header", ["text,label", "review,stars", "Sentence,Category"])
def test_labels_are_no_translations(tmp_path: Path, header: str) -> None:
    rows = f"{header}\nA good book,positive\nA dull one,negative\n"
    with pytest.raises(
        DataError,
        match=r"labeled texts, not pairs of texts; use .*\(classify\), or set columns",
    ):
        pairs_of(tmp_path, rows)
    assert len(pairs_of(tmp_path, rows, columns=header.split(","))) == 2, "who names them gets them"
    assert read_labeled(str(tmp_path / "x.csv")).target == ["positive", "negative"]


@pytest.mark.parametrize("header", ["english,german", "source,target"])
def test_translations_are_no_labels(tmp_path: Path, header: str) -> None:
    (tmp_path / "x.csv").write_text(header + SENTENCES)
    with pytest.raises(
        DataError, match=r"x\.csv has the columns .*: no label among them; use a task that learns from pairs"
    ):
        read_labeled(str(tmp_path / "x.csv"))


def test_tags_and_their_header(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("words\ttags\na b\tX Y\n")
    assert read_tagged(str(tmp_path / "x.tsv"), "words").source == ["a b"]
    (tmp_path / "x.tsv").write_text("text\tlabel\na\tX\n")
    assert read_tagged(str(tmp_path / "x.tsv"), "words").source == ["a"], "as many words as labels: it was trained on"


def test_more_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="has 3 columns and no header with source and target, but 'id', 'english' and 'german'"
    ):
        pairs_of(tmp_path, "id,english,german\n1,a b c,d\n")
    with pytest.raises(DataError, match="are names, which need a header; set header: true"):
        pairs_of(tmp_path, "a,b\n", columns=["a", "b"], header=False)


@pytest.mark.parametrize(
    ("first", "below", "expected"),
    [
        (["good", "up"], [["bad", "down"], ["fine", "up"]], (False, True)),
        (["word", "count"], [["dog", "3"], ["cat", "12"]], (True, True)),
        (["", "english"], [["0", "a dog"], ["1", "a cat"]], (True, True)),
        (["12", "x"], [["0", "a dog"]], (False, True)),
        (["Who is it?", "Wer ist es?"], [], (False, True)),
        (["quelle", "ziel"], [["a b c d", "e f"], ["a b c", "d e f"]], (True, False)),
        (["a", "b"], [], (False, False)),
    ],
)
def test_the_first_row_decides(first: list[str], below: list[list[str]], expected: tuple[bool, bool]) -> None:
    assert is_header(first, below) == expected


def test_every_verb_says_how_a_table_was_read(tmp_path: Path) -> None:
    """train, eval and a fine-tuning run; a language model reads no tables."""
    table = tmp_path / "x.csv"
    table.write_text("english,german\n" + 4 * SENTENCES.lstrip("\n"))
    tiny = ["model.width=16", "model.depth=1", "model.heads=2", "model.hidden=16", "train.steps=1", "auto=false",
            "data.tokenizer=chars", "train.epochs=null"]  # fmt: skip
    order = [word for pair in tiny for word in ("--set", pair)]
    trained = call("train", "translate", table, "--out", tmp_path / "run", *order)
    assert trained.err.count("x.csv: the first line is read as a header, english is the source") == 1, trained
    assert "8 pairs" in trained.err and "4 pairs are held out" in trained.err
    scored = call("eval", tmp_path / "run", table, "--metric", "loss", "--json")
    assert "english is the source" in scored.err
    swapped = call("eval", tmp_path / "run", table, "--metric", "loss", "--set", "data.columns=[german, english]")
    assert (swapped.code, "header" in swapped.err) == (0, False)
    assert swapped.out != scored.out
    table.write_text("text,label\nA good book,up\nA dull one,down\nA fine day,up\n")
    for words in (["train", "finetune", table, "--from", tmp_path / "run"], ["eval", tmp_path / "run", table]):
        refused = call(*words)
        assert (refused.code, "labeled texts, not pairs of texts" in refused.err) == (2, True)
    refused = call("train", "gpt", table, "--out", tmp_path / "lm")
    assert (refused.code, "x.csv is a table, and this task reads plain text" in refused.err) == (2, True)
