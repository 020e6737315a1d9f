"""What examples are called in a message: by number and text, and by file and line where the files are still there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from regard.data.pair_reader import Corpus, locate_pairs
from regard.tasks.common.example_names import EXCERPT, number_examples, quote_excerpt
from regard.tasks.common.text_corpus import Texts
from regard.tasks.lm import Lm, LmData
from regard.tasks.translate import Translate, TranslateData
from regard.text import Tokenizer


def test_numbers_and_places_in_a_stream() -> None:
    assert number_examples(np.array([3, 0])) == ["example 3", "example 0"]
    assert number_examples(np.array([[16, 8, 0]])) == ["example 16 8 0"]


def test_long_texts_are_cut() -> None:
    assert quote_excerpt("a\nb") == r"'a\nb'"
    assert quote_excerpt("x" * 99) == repr("x" * EXCERPT + "…")


def test_a_pair_by_its_file_and_line(tmp_path: Path) -> None:
    one, two = tmp_path / "a.en", tmp_path / "a.de"
    one.write_text("the cat\na dog\nthe cat\na bird\n" * 3)
    two.write_text("die Katze\nein Hund\ndie Maus\nein Vogel\n" * 3)
    settings = TranslateData.parse({"train": [{"paths": [str(one), str(two)]}], "tokenizer": "chars"})
    raw = Translate.read(settings, 1)
    task = Translate.prepare(settings, raw)
    examples, pairs = task.encode(raw.train), raw.train[0]
    lines = {"die Katze": 1, "ein Hund": 2, "die Maus": 3, "ein Vogel": 4}
    for i in range(len(pairs)):
        wanted = f"{one}, line {lines[pairs.target[i]]}: example {i} {pairs.source[i]!r}"
        assert task.describe_examples(examples, np.array([i])) == [wanted]
    one.unlink()
    assert task.describe_examples(examples, np.array([0])) == [f"example 0 {pairs.source[0]!r}"]


def test_places_of_several_corpora(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / f"{name}.tsv").write_text(f"a\tb\nc{name}\td\n")
    corpora = [Corpus((str(tmp_path / f"{name}.tsv"),), prefix=prefix) for name, prefix in (("x", ""), ("y", "do: "))]
    found = locate_pairs(corpora, [("a", "b"), ("do: cy", "d"), ("not", "there")])
    assert found == {("a", "b"): f"{tmp_path / 'x.tsv'}, line 1", ("do: cy", "d"): f"{tmp_path / 'y.tsv'}, line 2"}


def test_windows_and_segments_by_their_text() -> None:
    text = "the cat sat on the mat"
    for stream, index in ((False, np.array([1])), (True, np.array([[8, 8, 8]]))):
        settings = LmData(context=8, stream=stream)
        task = Lm(settings, Tokenizer.train([text], settings.tokenizer))
        (name,) = task.describe_examples(task.encode(Texts((text,))), index)
        number, _, shown = name.partition(" '")
        assert number == ("example 8 8 8" if stream else "example 1")
        assert shown.rstrip("'") in text and len(shown) > 2
