"""Several tasks in one model: prefixes, how much of an epoch each gets, and a score for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.data.bucket import Buckets
from regard.data.pair_reader import Corpus, corpus_like, read_corpus
from regard.data.pairs import Pairs
from regard.errors import SpecError
from regard.tasks.common.task import Dataset
from regard.tasks.translate import Translate, TranslateData
from regard.text import Chars
from regard.training.train import run_training
from tests.training.small import events, tiny

pytestmark = pytest.mark.numeric

WORDS = ("house", "tree", "sea", "dog", "cat", "mat", "old", "new", "day", "night", "one", "two")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Words backwards, and words doubled three times as often; each a table with a column too many."""
    made = {}
    for name, scale in (("back", 1), ("double", 3)):
        made[name] = tmp_path / f"{name}.tsv"
        rows = [(f"{w}{i}", f"{w}{i}"[::-1] if name == "back" else f"{w}{i}" * 2) for i in range(scale) for w in WORDS]
        made[name].write_text("".join(f"x\t{source}\t{target}\n" for source, target in rows))
    return made


def recipe(files: dict[str, Path], **data: Any) -> dict[str, Any]:
    corpora = [{"paths": [str(path)], "columns": [2, 3], "prefix": f"{name}: "} for name, path in files.items()]
    return {
        "task": "translate",
        "data": {"train": corpora, "tokenizer": "chars", "max_length": 32, "metrics": ["chrf"], **data},
    }


def test_a_prefix_stands_before_every_source(files: dict[str, Path]) -> None:
    corpus = Corpus((str(files["back"]),), columns=(2, 3), prefix="back: ")
    pairs = read_corpus(corpus)
    assert (pairs.source[0], pairs.target[0]) == ("back: house0", "0esuoh")
    assert pairs.name == corpus.name == "back.tsv (back)"
    assert corpus_like(corpus, ("other.tsv",)) == Corpus(("other.tsv",), columns=(2, 3), prefix="back: ")
    assert corpus_like(corpus, ("a.en", "a.de")) == Corpus(("a.en", "a.de"), prefix="back: ")


MIXES: list[tuple[dict[str, Any], list[float]]] = [
    ({}, [10, 1000]),
    ({"limit": 100}, [10, 100]),
    ({"temperature": 2.0}, [10**0.5, 1000**0.5]),
    ({"limit": 40, "temperature": 2.0}, [1, 2]),
]


@pytest.mark.parametrize(("settings", "shares"), MIXES, ids=str)
def test_an_epoch_is_shared_out_as_asked(settings: dict[str, Any], shares: list[float]) -> None:
    corpora = [Pairs([f"a{i}" for i in range(n)], [f"b{i}" for i in range(n)], name=str(n)) for n in (10, 1000)]
    task = Translate.prepare(TranslateData(tokenizer=Chars(), **settings), Dataset(corpora, [], "", {}))
    encoded = task.encode(corpora)
    assert encoded.shares is not None
    assert np.array(encoded.shares) / sum(encoded.shares) == pytest.approx(np.array(shares) / sum(shares))
    batches = Buckets(encoded.lengths, tokens=100, seed=1, groups=encoded.groups, shares=encoded.shares).epoch(0)
    assert encoded.groups is not None
    drawn = np.bincount(encoded.groups[np.concatenate(batches)])
    assert drawn / drawn.sum() == pytest.approx(np.array(shares) / sum(shares), abs=0.01)


def test_a_temperature_below_one_is_refused() -> None:
    with pytest.raises(SpecError, match="temperature: "):
        TranslateData(temperature=0.5)


def test_every_corpus_has_its_score(files: dict[str, Path], tmp_path: Path) -> None:
    run_training(tiny(tmp_path / "run", recipe(files), train__steps=4))
    (valid, *_), (done,) = events(tmp_path / "run", "valid"), events(tmp_path / "run", "done")
    names = ["chrf", "chrf of back.tsv (back), held out", "chrf of double.tsv (double), held out"]
    assert list(valid["scores"]) == names
    assert [name for name in done["scores"] if "chrf" in name] == names
    page = (tmp_path / "run" / "report.html").read_text()
    assert "back.tsv (back)" in page
    # Files it was trained on are read as they were then; others as they are, for there is more than one way.
    model = regard.load(tmp_path / "run")
    (pairs,) = model.task.read_test(model.task.settings, [str(files["double"])])
    assert pairs.source[0] == "double: house0"
    plain = tmp_path / "plain.tsv"
    plain.write_text("back: cat\ttac\n")
    found = regard.evaluate(tmp_path / "run", plain, beam=1, device="cpu")
    assert found.pairs == 1
    assert list(found.models[0].scores) == ["chrf"]


def test_other_files_are_read_like_those_of_the_only_corpus(files: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("x\tcat\ttac\n")
    settings = TranslateData.parse(recipe({"back": files["back"]})["data"])
    (pairs,) = Translate.read_test(settings, [str(other)])
    assert (pairs.source, pairs.target) == (["back: cat"], ["tac"])
