"""Words to phones: variants on one side, any listed pronunciation right, no word judged that was learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import regard
from regard.data.pronunciation import assign_split
from regard.errors import DataError, SpecError
from regard.metrics import METRICS
from regard.tasks.pronounce import Pronounce, PronounceData
from regard.training.request import TrainRequest
from regard.training.train import run_training

pytestmark = pytest.mark.numeric

WORDS = [f"{a}{b}{c}" for a in "bdgk" for b in "aeiou" for c in "lmnr"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    rows = [f"{word} {' '.join(word.upper())}\n{word}(2) {' '.join(reversed(word.upper()))}\n" for word in WORDS]
    (tmp_path / "words.dict").write_text("".join(rows))
    return str(tmp_path / "words.dict")


def test_all_variants_of_a_word_are_on_one_side(path: str) -> None:
    settings = PronounceData(train=(path,), valid=0.2, test=0.2)
    raw = Pronounce.read(settings, 1)
    (train,), (valid,), (test,) = raw.train, raw.valid, Pronounce.read_test(settings, [path])
    parts = [set(pairs.source) for pairs in (train, valid, test)]
    assert set.union(*parts) == set(WORDS) and sum(map(len, parts)) == len(WORDS)
    assert len(train) == 2 * len(parts[0]), "each pronunciation is one to learn"
    assert all(" | " in ways for ways in [*valid.target, *test.target]), "and any is right"
    assert parts[2] == {word for word in WORDS if assign_split(word, valid=0.2, test=0.2) == "test"}
    assert raw.messages == [
        f"{path}: {len(parts[0])} words with {len(train)} pronunciations for training, {len(valid)} words for validation, "
        f"{len(test)} for testing"
    ]


def test_letters_and_phones_have_their_own_vocabularies(path: str) -> None:
    settings = PronounceData(train=(path,), valid=0.2)
    raw = Pronounce.read(settings, 1)
    task = Pronounce.prepare(settings, raw)
    assert task.model_arguments()["vocab"] == 4 + 13 and task.model_arguments()["source_vocab"] == 4 + 13
    assert task.tokenizer.decode(task.tokenizer.encode("B A L")) == "B A L"
    encoded = task.encode(raw.valid)
    assert set(encoded.lengths[:, 1].tolist()) == {4}, "of several right answers the first is taken"
    assert raw.valid[0].source[0] in task.describe_examples(encoded, np.arange(1))[0]
    (trial,) = task.eval_sets(raw.valid)
    assert list(trial.references) == list(raw.valid[0].target)


def test_any_listed_pronunciation_is_right() -> None:
    outputs, ways = ["A B", "B", "", "X Y Z"], ["A B | B A", "A B | C B C", "A", "A Y Z | X Y Z W V | X Y"]
    assert METRICS["word_error"].compute(outputs, ways) == 75.0
    assert METRICS["phone_error"].compute(outputs, ways) == pytest.approx(100 * (0 + 1 + 1 + 1) / (2 + 2 + 1 + 3))
    assert not METRICS["word_error"].higher and not METRICS["phone_error"].higher


def test_the_recipe_trains_and_is_judged_by_words_it_never_saw(path: str, tmp_path: Path) -> None:
    settings = {
        "data.valid": 0.2,
        "data.test": 0.2,
        "model.width": 16,
        "model.heads": 2,
        "model.depth": 1,
        "train.steps": 4,
    }
    settings |= {"train.schedule.warmup": 1, "train.validate_every": 2, "train.threads": 1, "train.batch_tokens": 64}
    run_training(TrainRequest("pronounce", (path,), set=settings, out=str(tmp_path / "run"), quiet=True))
    found = regard.evaluate(tmp_path / "run", path)
    scores = found.models[0].scores
    assert set(scores) >= {"word_error", "phone_error"}
    assert len(regard.load(tmp_path / "run").run(["bal", "Ünknown", ""])) == 3


def test_what_it_needs_is_said(tmp_path: Path, path: str) -> None:
    with pytest.raises(DataError, match=r"^no training data; name a pronouncing dictionary, such as cmudict"):
        run_training(TrainRequest("pronounce", out=str(tmp_path / "run"), quiet=True))
    with pytest.raises(SpecError, match=r"^words for validation are chosen from the dictionary .* leave out --valid$"):
        run_training(TrainRequest("pronounce", (path,), (path,), out=str(tmp_path / "run"), quiet=True))
    with pytest.raises(SpecError, match=r"^`metrics` should name at least one score"):
        PronounceData(metrics=())
    for word, why in (("aa", "none of them for training"), ("d", "none of them for valid")):
        (tmp_path / "one.dict").write_text(f"{word} A\n")
        with pytest.raises(DataError, match=f"holds 1 words, {why}; name a larger dictionary$"):
            Pronounce.read(PronounceData(train=(str(tmp_path / "one.dict"),)), 1)
