"""Scores where the vocabulary does not cover the text, and of models with different vocabularies."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import regard
from regard.metrics.items import bits_per_byte, count_items
from regard.text import Bpe, Chars, Tokenizer, WordPiece
from regard.training.train import run_training
from tests.laws.tasks import PLAY, TASK, order_of
from tests.verbs.calling import call

FOREIGN = "мама мыла раму, а папа читал книгу.\nпотом они пили чай.\n\nпошёл дождь, и все ушли домой.\n" * 3


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two language models with different vocabularies, a masked one and one that translates, all hardly trained."""
    home = tmp_path_factory.mktemp("runs")
    for name, task, example, changes in (
        ("chars", "lm", "file", {"train__steps": 30}),
        ("bpe", "lm", "file", {"data__tokenizer": {"kind": "bpe", "vocab": 60}, "train__steps": 30}),
        ("masked", "mlm", "bert", {"train__steps": 2}),
        ("pairs", "translate", "mixture", {"train__steps": 2}),
    ):
        run_training(order_of(TASK[task][example], home, home / name, **changes))
    (home / "foreign.txt").write_text(FOREIGN)
    return home


def test_an_unknown_text_is_not_an_easy_one(runs: Path) -> None:
    """Its perplexity is low, since unknown tokens are all the same; its bits are not, and its tokens are counted."""
    own = json.loads(call("eval", runs / "chars", runs / "play.txt", "--json").out)["models"][0]["scores"]
    said = call("eval", runs / "chars", runs / "foreign.txt", "--json")
    foreign = json.loads(said.out)["models"][0]["scores"]
    assert list(own) == ["loss", "perplexity", "bits_per_byte", "unknown_tokens"]
    assert own["unknown_tokens"] == pytest.approx(100 / len(PLAY)), "a comma that is only in the part that was held out"
    assert own["bits_per_byte"] == pytest.approx(own["loss"] / math.log(2) + 8 / len(PLAY), rel=1e-9)
    assert foreign["unknown_tokens"] > 70
    assert foreign["bits_per_byte"] > 7 > own["bits_per_byte"]
    assert "% of the tokens that " in said.err and "should write are unknown to its vocabulary" in said.err
    assert "unknown" not in call("eval", runs / "chars", runs / "play.txt").err


def test_other_tasks_say_it_too(runs: Path) -> None:
    said = call("eval", runs / "masked", runs / "foreign.txt", "--json")
    assert "unknown_tokens" in json.loads(said.out)["models"][0]["scores"] if said.code == 0 else said.code == 2
    (runs / "foreign.tsv").write_text(
        "".join(f"{line} слово тут\t{line[::-1]} и там\n" for line in FOREIGN.split("\n")[:2])
    )
    said = call("eval", runs / "pairs", runs / "foreign.tsv", "--metric", "chrf", "--metric", "unknown_tokens")
    assert "reads are unknown to its vocabulary" in said.err and "should write are unknown" in said.err


def test_vocabularies_are_compared_in_bits(runs: Path) -> None:
    found: list[str] = []
    both = regard.evaluate(
        [runs / "chars", runs / "bpe"], runs / "play.txt", device="cpu", samples=50, notify=found.append
    )
    assert list(both.models[1].differences) == ["bits_per_byte", "unknown_tokens"]
    for kind in ("loss", "perplexity"):
        assert any(f"their {kind} cannot be compared; compare bits_per_byte" in note for note in found)
    gap = both.models[1].differences["bits_per_byte"]
    scores = [model.scores["bits_per_byte"].score for model in both.models]
    assert gap.difference == pytest.approx(scores[1] - scores[0])
    assert gap.low <= gap.difference <= gap.high
    same = regard.evaluate([runs / "chars"] * 2, runs / "play.txt", device="cpu", samples=50)
    assert same.models[1].differences["bits_per_byte"].plain() == {
        "difference": 0, "low": 0, "high": 0, "not_better": 1,
    }  # fmt: skip
    assert "loss" in same.models[1].differences


def test_what_a_vocabulary_does_not_cover() -> None:
    chars = Tokenizer.train(["abc "], Chars())
    assert chars.count_unknown(["abc", "", "aä€", "ä" * 70_000]) == [
        (3, 0, 3, 0), (0, 0, 0, 0), (3, 2, 6, 5), (70_000, 70_000, 140_000, 140_000),
    ]  # fmt: skip
    words = Tokenizer.train([PLAY], WordPiece(100))
    (row,) = words.count_unknown(["the ☃☃ dog"])
    assert (row.unknown, row.unknown_bytes) == (2, 7), "with the space before the first"
    (row,) = Tokenizer.train([PLAY], Bpe(60)).count_unknown([PLAY])
    assert (row.unknown, row.unknown_bytes, row.bytes) == (0, 0, len(PLAY))


def test_bits_per_byte() -> None:
    """Of 10 tokens of 2 bytes with a bit each; and if half of the text is unknown, four bits more."""
    items = count_items([(math.log(2), 1.0)] * 10, bits_per_byte(bytes_per_token=2.0, unknown_share=0.0))
    assert items.score() == pytest.approx(0.5)
    items = count_items([(math.log(2), 1.0)] * 10, bits_per_byte(bytes_per_token=2.0, unknown_share=0.5))
    assert items.score() == pytest.approx(4.5)
