"""Outputs word by word: probabilities that multiply to the whole, and links to the words that were looked at."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import torch

import regard
from regard.decode.scoring import TokenScores
from regard.errors import DataError, NoRoom, SpecError
from regard.tasks.common.word_scores import align_words, default_layer, word_confidence
from regard.text.word_ids import TokenizedWords

pytestmark = pytest.mark.numeric

WORDS = {
    "one": "eins",
    "two": "zwei",
    "three": "drei",
    "four": "vier",
    "five": "fünf",
    "six": "sechs",
    "seven": "sieben",
}


def backwards(seed: int, count: int) -> list[tuple[str, str]]:
    """Numbers, and the same in German from the last to the first."""
    draw = random.Random(seed)
    rows = [[draw.choice(list(WORDS)) for _ in range(draw.randint(1, 5))] for _ in range(count)]
    return [(" ".join(row), " ".join(WORDS[word] for word in reversed(row))) for row in rows]


def trained(here: Path, steps: int, **tokenizer: object) -> regard.Model:
    (here / "train.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in backwards(1, 1500)), encoding="utf-8")
    recipe = {
        "task": "translate",
        "data": {
            "train": [{"paths": [str(here / "train.tsv")], "target_lang": "de"}],
            "tokenizer": tokenizer,
            "max_length": 40,
        },
        "model": {"width": 48, "depth": 2, "heads": 4, "hidden": 96, "dropout": 0.0, "norm": "pre"},
        "train": {
            "steps": steps, "batch_tokens": 1024, "schedule": {"kind": "cosine", "lr": 5e-3, "warmup": steps // 8 + 1},
            "validate_every": steps, "threads": 1,
        },
        "decode": {"beam": 2},
    }  # fmt: skip
    return regard.train(recipe, out=here / "run", quiet=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    """A model that has learned them."""
    return trained(tmp_path_factory.mktemp("learned"), 300, kind="words")


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    """One that has hardly begun, and whose words are several tokens."""
    return trained(tmp_path_factory.mktemp("raw"), 3, kind="bpe", vocab=36)


PAIRS = backwards(2, 40)
SOURCES, TARGETS = [s for s, _ in PAIRS], [t for _, t in PAIRS]


def test_words_are_linked_to_those_they_translate(model: regard.Model) -> None:
    assert sum(a == b for a, b in zip(model.run(SOURCES, tag="2de"), TARGETS, strict=True)) >= 36
    right = total = 0
    for source, target, found in zip(SOURCES, TARGETS, model.align(SOURCES, TARGETS, tag="2de"), strict=True):
        n = len(source.split())
        assert [j for _, j in found] == list(range(len(target.split())))
        assert all(0 <= i < n for i, _ in found)
        right += sum(WORDS[source.split()[i]] == target.split()[j] for i, j in found)
        total += n
    assert right / total > 0.85, (right, total)


def test_a_model_is_sure_of_what_it_has_learned(model: regard.Model) -> None:
    (right, wrong) = model.confidence(["one two three"] * 2, ["drei zwei eins", "drei sechs eins"], tag="2de")
    assert min(right.probs) > 0.5 > wrong.probs[1]


@pytest.mark.parametrize("name", ["model", "raw"])
def test_probabilities_of_words_multiply_to_that_of_the_whole(name: str, request: pytest.FixtureRequest) -> None:
    model: regard.Model = request.getfixturevalue(name)
    outputs = [*TARGETS[:6], "", "  ", "zwei", "🙂 eins", "sieben sieben sieben"]
    inputs = [*SOURCES[:6], "one", "one", "", "one", "two"]
    found = model.confidence(inputs, outputs, tag="2de")
    for each, output, total in zip(found, outputs, model.score(inputs, outputs, tag="2de"), strict=True):
        assert each.words == output.split()
        assert len(each.probs) == len(each.words)
        assert all(0 <= p <= 1 for p in each.probs)
        assert math.log(math.prod(each.probs) * each.end) == pytest.approx(total, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", ["model", "raw"])
def test_what_is_said_of_a_search_is_of_the_tokens_it_wrote(name: str, request: pytest.FixtureRequest) -> None:
    model: regard.Model = request.getfixturevalue(name)
    found = model.run_all(SOURCES[:8], beam=3, n_best=3, words=True, tag="2de")
    plain = model.run_all(SOURCES[:8], beam=3, n_best=3, tag="2de")
    for source, each, without in zip(SOURCES, found, plain, strict=False):
        for output, other in zip(each, without, strict=True):
            assert (output.text, output.log_prob) == (other.text, other.log_prob)
            more = json.loads(json.dumps(output.plain()))
            assert [word["text"] for word in more["words"]] == output.text.split()
            sures = math.log(math.prod(word["confidence"] for word in more["words"]))
            ends = (
                [math.log(more["end"])] if name == "model" else [math.log(more["end"]), 0.0]
            )  # or it came to the limit
            assert any(sures + end == pytest.approx(output.log_prob, rel=1e-4, abs=1e-5) for end in ends)
            assert all(0 <= i < len(source.split()) and 0 <= j < len(more["words"]) for i, j in more["alignment"])


def test_an_ensemble_speaks_with_one_voice(model: regard.Model) -> None:
    (alone,), (both,) = (model.run_all(["one two"], words=True, others=others) for others in ([], [model]))
    assert both[0].more["end"] == pytest.approx(alone[0].more["end"], rel=1e-5)


def test_another_layer(model: regard.Model) -> None:
    first, last, usual = (model.align(SOURCES, TARGETS, layer=layer, tag="2de") for layer in (0, 1, None))
    assert usual == last == model.align(SOURCES, TARGETS, layer=-1, tag="2de")
    assert first != last
    assert [default_layer(n) for n in (1, 2, 3, 6)] == [-1, -1, -2, -2]
    with pytest.raises(SpecError, match="layer should be -2 to 1, got 2"):
        model.align(SOURCES, TARGETS, layer=2)


def test_as_many_outputs_as_inputs(model: regard.Model) -> None:
    for ask in (model.align, model.confidence):
        with pytest.raises(DataError, match="as many outputs as inputs are needed, got 1 for 2"):
            ask(["one", "two"], ["eins"])


def test_links_by_hand() -> None:
    """Two marks before the source, its end mark after; tokens of a word count together; what was cut off is not linked."""
    read = TokenizedWords([5, 6, 7, 8], ["ab", "c", "d"], [0, 0, 1, 2])
    written = TokenizedWords([1, 2, 3], ["x", "yz"], [0, 1, 1])
    weights = torch.tensor(
        [[0.5, 0.0, 0.1, 0.1, 0.2, 0.1], [0.0, 0.6, 0.1, 0.1, 0.2, 0.0], [0.1, 0.0, 0.3, 0.3, 0.2, 0.1], [0.0] * 6]
    )
    assert align_words(read, written, weights, 2) == [(0, 0), (0, 1)]
    weights[:3, 4] = 0.9
    assert align_words(read, written, weights, 2) == [(1, 0), (1, 1)]
    assert align_words(TokenizedWords([], [], []), written, weights[:, :3], 2) == []
    assert align_words(read, TokenizedWords([], [], []), weights[:1], 2) == []


def test_confidence_by_hand() -> None:
    told = TokenScores(torch.tensor([0.5, 0.5, 0.25, 0.8], dtype=torch.float64).log())
    found = word_confidence(TokenizedWords([1, 2, 3], ["x", "yz"], [0, 1, 1]), told)
    assert (found.words, found.probs, found.end) == (["x", "yz"], pytest.approx([0.5, 0.125]), pytest.approx(0.8))
    assert found.plain() == {
        "words": [{"text": "x", "confidence": found.probs[0]}, {"text": "yz", "confidence": found.probs[1]}],
        "end": found.end,
    }
    blank = word_confidence(TokenizedWords([1], [], [0]), TokenScores(told.log_probs[2:]))
    assert (blank.words, blank.end) == ([], pytest.approx(0.2))


# ------------------------------------------------------------------------------------------------- terms and glossary


@pytest.mark.parametrize("name", ["model", "raw"])
def test_terms_are_in_the_outputs_that_must_have_them(name: str, request: pytest.FixtureRequest) -> None:
    model: regard.Model = request.getfixturevalue(name)
    must = [["sieben sechs"], [], ["eins", "vier"], ["drei"]]
    found, free = model.run(SOURCES[:4], must_include=must, tag="2de"), model.run(SOURCES[:4], tag="2de")
    for text, terms in zip(found, must, strict=True):
        assert all(f" {term}" in f" {text}" for term in terms)
    assert found[1] == free[1]
    assert model.run(SOURCES[:1], must_include=must[:1], beam=1, tag="2de") != free[:1], "also greedy"


@pytest.mark.parametrize(
    ("options", "error", "wanted"),
    [
        ({"must_include": [["日本"]]}, DataError, "the model cannot write '日本': not all of it is in its vocabulary"),
        ({"must_include": [[" "]]}, DataError, "the model cannot write ' '"),
        (
            {"must_include": ["eins"]},
            SpecError,
            r"`must_include` should have a list of terms for each input, got a text",
        ),
        ({"must_include": []}, DataError, "must_include should have one entry per input, got 0 for 1"),
        (
            {"must_include": [["eins"]], "sample": True},
            SpecError,
            "terms need beam search, not sampling; leave out sample or the terms",
        ),
        ({"prefixes": ["日本"]}, DataError, "the model cannot write '日本': not all of it is in its vocabulary"),
        ({"prefixes": ["eins " * 60]}, NoRoom, "source 0: the required text has .*; ask for .* a shorter prefix"),
        ({"must_include": [["eins " * 60]]}, NoRoom, "source 0: the required text has .* and there is room for"),
    ],
)
def test_terms_that_cannot_be(model: regard.Model, options: dict[str, object], error: type, wanted: str) -> None:
    with pytest.raises(error, match=wanted):
        model.run(["one"], **options)
