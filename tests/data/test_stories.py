"""Files of bAbI: what is read, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.stories import Story, parse_story, read_stories
from regard.errors import DataError


def written(folder: Path, *rows: str) -> Path:
    (folder / "qa.txt").write_text("".join(f"{row}\n" for row in rows))
    return folder / "qa.txt"


def test_a_question_is_about_the_sentences_before_it(tmp_path: Path) -> None:
    path = written(
        tmp_path, "1 Mary left.", "2 Where is Mary? \tout\t1", "3 Mary sat.", "4 How? \tN,W\t3", "1 Who? \tnobody"
    )
    first, second, third = read_stories(path)
    assert first == Story(("Mary left.",), "Where is Mary?", "out", f"{path}, line 2")
    assert (second.sentences, second.answer) == (("Mary left.", "Mary sat."), "n,w")
    assert third.sentences == ()
    assert parse_story(str(second)) == Story(second.sentences, "How?")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("Mary left.", "line 2: a number and a sentence should be there"),
        ("3 Mary left.", "line 2: the number should be 2, or 1 for a new story, got 3"),
        ("2 ...", "line 2: the sentence has no words"),
        ("2 Where? \t \t1", "line 2: the question has no answer after its tab"),
        ("1" * 5000 + " x", "line 2: a number and a sentence should be there"),
        ("2 Where?\thome\tx", r"line 2: numbers of earlier sentences should be behind the answer \(`1 3`\), got 'x'"),
        ("2 Where?\thome\t1 2", "line 2: numbers of earlier sentences should be behind the answer"),
        ("2 Where?\thome\t1\t1", "line 2: numbers of earlier sentences should be behind the answer"),
    ],
)
def test_a_malformed_line_is_named_by_its_number(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_stories(written(tmp_path, "1 John left.", row))


def test_no_question(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no question"):
        read_stories(written(tmp_path, "1 John left."))
    with pytest.raises(DataError, match=r"^a story should end with a question"):
        parse_story("John left.")
