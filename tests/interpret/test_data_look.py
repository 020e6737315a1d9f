"""Looking at a data set: faithfulness, ablation and heads on every kind of task, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import regard
from regard.api import Model
from regard.api.look_at_data import CHARACTERS, _divide
from regard.conversion.convert import convert
from regard.errors import DataError, SpecError
from regard.interpret.heads import PairCounter
from regard.tasks.common.capabilities import Classifies
from tests.conversion.test_convert import folder
from tests.verbs.calling import call

pytestmark = pytest.mark.numeric

PAIRS = "a cab\tbad\nbad dad\tcab\na bad cab\tdad a\n"
BOOK = "a cab bad dad\nabba cab dad bad\n"
EXAMPLES = {
    "marian": ("pairs.tsv", PAIRS),
    "gpt2": ("book.txt", BOOK),
    "bert, both heads": ("book.txt", BOOK),
    "bert, classes": ("labels.tsv", ""),
}


@pytest.fixture(params=EXAMPLES)
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Model, Path]:
    name, text = EXAMPLES[request.param]
    convert(str(folder(request.param, tmp_path / "theirs")), str(tmp_path / "ours"))
    model = regard.load(tmp_path / "ours")
    if isinstance(model.task, Classifies):
        text = "".join(f"{line}\t{model.task.classes[0]}\n" for line in ("text\tlabel", *BOOK.splitlines()))
        text = text.replace(f"text\tlabel\t{model.task.classes[0]}", "text\tlabel")
    (tmp_path / name).write_text(text, encoding="utf-8")
    return model, tmp_path / name


def test_every_kind_of_model_is_measured_on_its_data(trained: tuple[Model, Path]) -> None:
    model, data = trained
    found = regard.look_at_data(model, data, faithful=True, ablate_parts="heads", describe=True, examples=3, samples=50)
    assert 1 <= found.examples <= 3
    assert found.faithfulness["occlusion"].correlation.score == pytest.approx(1)
    assert found.faithfulness["random"].gain is not None
    assert found.faithfulness["random"].gain.score == 0
    assert {"attention", "attention_rollout", "integrated_gradients"} <= set(found.faithfulness)
    assert [worth.place for worth in found.worths] == [f"{each.layer}.head.{each.head}" for each in found.heads]
    assert all(way.low <= way.score <= way.high for worth in found.worths for way in (worth.zero, worth.mean))
    for each in found.heads:
        assert sum(pair.weight * pair.count for pair in each.pairs) > 0
    text, page = found.render(), found.html()
    assert "more comprehensive than random by" in text
    assert "What is each part worth?" in page
    assert page.count("fill-opacity=") == len(found.worths)
    assert json.loads(json.dumps(found.plain()))["examples"] == found.examples


def test_layers_and_places_are_ablated(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    convert(str(folder("marian", tmp_path / "theirs")), str(tmp_path / "ours"))
    for parts, wanted in (("layers", {"mix", "cross", "feed"}), ("decoder.blocks.0.cross", {"cross"})):
        found = regard.look_at_data(tmp_path / "ours", tmp_path / "pairs.tsv", ablate_parts=parts, samples=20)
        assert {worth.place.rpartition(".")[2] for worth in found.worths} == wanted


def test_parts_are_worth_the_same_together_and_alone(tmp_path: Path) -> None:
    """Copies of an example that run together do not affect one another."""
    (tmp_path / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    convert(str(folder("marian", tmp_path / "theirs")), str(tmp_path / "ours"))
    model = regard.load(tmp_path / "ours")
    together = regard.look_at_data(model, tmp_path / "pairs.tsv", ablate_parts="heads", samples=20).worths
    for worth in (together[0], together[-1]):
        (alone,) = regard.look_at_data(model, tmp_path / "pairs.tsv", ablate_parts=worth.place, samples=20).worths
        assert alone.zero.score == pytest.approx(worth.zero.score, abs=1e-6)
        assert alone.mean.score == pytest.approx(worth.mean.score, abs=1e-6)


def test_the_verb_on_data(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    convert(str(folder("marian", tmp_path / "theirs")), str(tmp_path / "ours"))
    here, data, page = tmp_path / "ours", tmp_path / "pairs.tsv", tmp_path / "page.html"
    said = call("look", here, "--faithful", data, "--out", page, "--examples", 2)
    assert (said.code, said.lines) == (0, [str(page)])
    assert "Are explanations faithful?" in page.read_text()
    said = call("look", here, "--ablate", "layers", data, "--text")
    assert "| encoder.blocks.0.mix" in said.out
    said = call("look", here, "--heads", data, "--json")
    assert json.loads(said.out)["heads"][0]["card"]["entropy"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b"], "look shows one text, got 2; quote it"),
        (["--faithful", "nowhere.tsv"], "nowhere.tsv"),
        (["--faithful", "pairs.tsv", "--link", "a", "b"], "are about one text, not about data"),
        (["--ablate", "encoder.blocks.9.*", "pairs.tsv"], "no place 'encoder.blocks.9.*'"),
    ],
)
def test_what_data_cannot_be_asked(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text(PAIRS, encoding="utf-8")
    convert(str(folder("marian", tmp_path / "theirs")), str(tmp_path / "ours"))
    said = call("look", "ours", *words)
    assert said.code == 2
    assert message in said.err
    assert len(said.err.splitlines()) == 1


def test_nothing_asked_and_nothing_to_predict(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    convert(str(folder("bert, body", tmp_path / "theirs")), str(tmp_path / "ours"))
    model = regard.load(tmp_path / "ours")
    with pytest.raises(SpecError, match="nothing is asked"):
        regard.look_at_data(model, tmp_path / "pairs.tsv")
    with pytest.raises(DataError, match=r"predicts nothing in .*pairs\.tsv"):
        regard.look_at_data(model, tmp_path / "pairs.tsv", faithful=True)


def test_running_text_is_divided_between_words() -> None:
    text = " ".join(f"word{i}" for i in range(200))
    pieces = list(_divide([text, "x" * (CHARACTERS + 1), ""]))
    assert " ".join(pieces[:-2]) == text
    assert max(map(len, pieces)) <= CHARACTERS
    assert "".join(pieces[-2:]) == "x" * (CHARACTERS + 1)


def test_the_order_of_texts_does_not_change_their_pairs() -> None:
    """A text counts also if its weight is small and no earlier one had a larger one."""
    texts = [(torch.tensor([[[w]]]), ["a"], ["b"]) for w in (0.01, 0.5, 0.25)]
    for order in (texts, texts[::-1]):
        counter = PairCounter()
        for weights, queries, keys in order:
            counter.add("layer", weights, queries, keys)
        (pair,) = counter.most_attended("layer", 0)
        assert (pair.weight, pair.count) == (0.25, 3)


def test_pairs_of_a_corpus_are_counted() -> None:
    weights = torch.zeros(1, 3, 3)
    weights[0, 0, 1], weights[0, 2, 1] = 0.9, 0.5
    counter = PairCounter()
    counter.add("layer", weights, ["it", "cat", "sat"], ["it", "cat", "sat"])
    counter.add("layer", weights / 3, ["it", "cat", "sat"], ["it", "cat", "sat"])
    first, second = counter.most_attended("layer", 0)
    assert (first.query, first.key, first.count, first.weight) == ("it", "cat", 2, pytest.approx(0.6))
    assert (second.query, second.key) == ("sat", "cat")
