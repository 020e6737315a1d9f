"""`regard eval`: the scores others would get, and differences that are paired."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import regard
from regard.errors import SpecError
from regard.metrics import METRICS
from regard.training.request import TrainRequest
from regard.training.train import run_training
from tests.verbs.calling import call

pytestmark = pytest.mark.numeric

DECODED = [name for name, metric in METRICS.items() if metric.decodes]
REFERENCES = [
    "the cat sat on the mat",
    "a dog runs",
    "two birds fly over the house .",
    "it rains",
    "well done , all",
] * 4
GOOD = [line.replace("the", "a") if i % 3 else line for i, line in enumerate(REFERENCES)]
POOR = [" ".join(reversed(line.split())) if i % 2 else line[:-3] for i, line in enumerate(REFERENCES)]


def test_one_model(model: Path, letters: tuple[Path, Path]) -> None:
    said = call("eval", model, *letters, "--metric", "exact", "--metric", "chrf", "--json")
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    lines = letters[0].read_text().splitlines()
    outputs = regard.load(model).run(lines)
    assert found["pairs"] == 10
    assert found["data"] == "source + target"
    (only,) = found["models"]
    assert only == {
        "model": str(model),
        "scores": {name: METRICS[name].compute(outputs, lines) for name in ("exact", "chrf")},
        "intervals": only["intervals"],
    }
    for name, (low, high) in only["intervals"].items():
        assert low <= only["scores"][name] <= high


def test_the_task_names_the_scores(model: Path, letters: tuple[Path, Path]) -> None:
    assert list(json.loads(call("eval", model, *letters, "--json").out)["models"][0]["scores"]) == ["exact"]


def test_signatures_are_sacrebleus(model: Path, letters: tuple[Path, Path]) -> None:
    said = call("eval", model, *letters, "--metric", "bleu", "--metric", "chrf")
    assert said.code == 0
    assert "bleu: BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in said.out
    assert "chrf: chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:" in said.out
    assert "10 pairs of source + target" in said.out
    assert said.out.startswith(f"| model{' ' * (len(str(model)) - 5)} |")


def test_a_model_against_itself(model: Path, letters: tuple[Path, Path]) -> None:
    words = ("eval", model, model, *letters, "--metric", "bleu", "--metric", "wer", "--samples", 20)
    found = json.loads(call(*words, "--json").out)
    same = {"difference": 0, "low": 0, "high": 0, "not_better": 1}
    assert "differences" not in found["models"][0]
    assert found["models"][1]["differences"] == {"bleu": same, "wer": same}
    assert call(*words).out.count(": +0.00 (95 % interval +0.00 … +0.00, not better in 100.0 % of the samples)") == 2


def test_two_models(model: Path, other: Path, letters: tuple[Path, Path]) -> None:
    found = json.loads(call("eval", model, other, *letters, "--metric", "chrf", "--samples", 50, "--json").out)
    first, second = (m["scores"]["chrf"] for m in found["models"])
    gap = found["models"][1]["differences"]["chrf"]
    assert gap["difference"] == pytest.approx(second - first)
    assert gap["low"] <= gap["high"]
    assert 0 <= gap["not_better"] <= 1


def test_any_number_of_models(model: Path, other: Path, letters: tuple[Path, Path]) -> None:
    words = ("eval", model, other, model, *letters, "--samples", 20)
    first, second, third = json.loads(call(*words, "--json").out)["models"]
    assert "differences" not in first
    assert [m["differences"]["exact"]["difference"] for m in (second, third)] == [
        m["scores"]["exact"] - first["scores"]["exact"] for m in (second, third)
    ]
    said = call(*words).out
    assert f"{other} − {model}" in said and f"{model} − {model}" in said
    assert "95 % intervals over test items: of these trained models, not of the methods" in said


def test_language_models_have_intervals_and_differences(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("the cat sat on the mat. " * 40)
    small = {"train.batch_tokens": 64, "model.width": 16, "model.depth": 1, "train.schedule": "constant"}
    for name, steps in (("a", 1), ("b", 12)):
        run_training(
            TrainRequest(
                "gpt",
                (str(text),),
                set={**small, "train.steps": steps, "data.context": 32},
                out=str(tmp_path / name),
                quiet=True,
            )
        )
    said = call("eval", tmp_path / "a", tmp_path / "b", text, "--samples", 50, "--json")
    assert said.code == 0
    first, second = json.loads(said.out)["models"]
    assert list(first["scores"]) == ["loss", "perplexity", "bits_per_byte", "unknown_tokens"]
    assert list(second["differences"])[:2] == ["loss", "perplexity"]
    low, high = first["intervals"]["loss"]
    assert low <= first["scores"]["loss"] <= high
    gap = second["differences"]["loss"]
    assert gap["difference"] == pytest.approx(second["scores"]["loss"] - first["scores"]["loss"])
    assert gap["high"] < 0 and gap["not_better"] == 0, "a lower loss is better"


def test_python_and_command_line_agree(model: Path, other: Path, letters: tuple[Path, Path]) -> None:
    said = call("eval", model, other, *letters, "--samples", 20, "--json")
    found = regard.evaluate([model, other], letters, samples=20)
    assert json.loads(said.out) == json.loads(json.dumps(found.plain()))
    assert call("eval", model, other, *letters, "--samples", 20).out == f"{found}\n"


def test_progress_is_reported_while_it_works(model: Path, letters: tuple[Path, Path]) -> None:
    seen: list[tuple[str, int, int]] = []
    regard.evaluate(model, letters, metrics=["exact", "loss"], samples=7, progress=lambda *step: seen.append(step))
    assert {what for what, done, of in seen if done == of} == {
        f"loss of {model}", f"outputs of {model}", "interval of exact", "interval of loss"
    }  # fmt: skip
    assert [done for what, done, _ in seen if what == "interval of exact"] == list(range(1, 8))


def test_the_language_to_write(polyglot: Path, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("one\tone!\ntwo\ttwo!\n")
    assert call("eval", polyglot, tmp_path / "test.tsv", "--to", "de").code == 0
    assert "no target language 'fr'" in call("eval", polyglot, tmp_path / "test.tsv", "--to", "fr").err


def test_the_language_of_a_corpus_is_that_of_loss_and_outputs_alike(polyglot: Path, tmp_path: Path) -> None:
    def scores(path: Path, *words: str) -> dict[str, float]:
        said = call("eval", polyglot, path, "--metric", "loss", "--metric", "chrf", "--json", *words)
        (only,) = json.loads(said.out)["models"]
        return only["scores"]

    own, copy = polyglot.parent / "cs.tsv", tmp_path / "copy.tsv"
    shutil.copy(own, copy)
    assert scores(own) == scores(own, "--to", "cs") == scores(copy, "--to", "cs")
    assert scores(own)["loss"] != scores(copy)["loss"] != scores(copy, "--to", "de")["loss"]


def test_a_model_that_chooses_no_language_beside_one_that_does(model: Path, polyglot: Path) -> None:
    corpus = polyglot.parent / "cs.tsv"
    alone = json.loads(call("eval", polyglot, corpus, "--metric", "chrf", "--samples", 5, "--json").out)["models"]
    both = call("eval", polyglot, model, corpus, "--metric", "chrf", "--samples", 5, "--json")
    assert json.loads(both.out)["models"][0] == alone[0]


def test_models_of_different_tasks_are_not_compared(model: Path, letters: tuple[Path, Path], tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("the cat sat on the mat. " * 40)
    sets = {
        "train.steps": 1,
        "train.batch_tokens": 64,
        "model.width": 16,
        "model.depth": 1,
        "train.schedule": "constant",
    }
    run_training(TrainRequest("gpt", (str(text),), set=sets, out=str(tmp_path / "lm"), quiet=True))
    for first, second, files in ((model, tmp_path / "lm", letters), (tmp_path / "lm", model, (text,))):
        said = call("eval", first, second, *files)
        assert (said.code, said.out) == (2, "")
        assert f"{first} and {second} cannot be compared: the task of one is " in said.err


def test_models_are_compared_on_the_same_questions_only(tmp_path: Path) -> None:
    """Another test part would hold words that the second has learned; other marks, answers that it cannot give."""
    words = [f"{a}{b}{c}" for a in "bdgk" for b in "aeiou" for c in "lmnr"]
    file = tmp_path / "words.dict"
    file.write_text("".join(f"{word} {word[0].upper()} {word[1].upper()}1 {word[2].upper()}\n" for word in words))
    small = {"train.steps": 1, "train.schedule": "constant", "data.valid": 0.2, "data.test": 0.2}
    small |= {"model.width": 16, "model.depth": 1, "model.hidden": 16}
    for name, change in {
        "a": {},
        "b": {"data.stress": True},
        "c": {"data.test": 0.1},
        "d": {"data.max_length": 30},
    }.items():
        out = str(tmp_path / name)
        run_training(TrainRequest("pronounce", (str(file),), set={**small, **change}, out=out, quiet=True))
    for name in "bc":
        with pytest.raises(SpecError, match="their settings turn this data into different test items"):
            regard.evaluate([tmp_path / "a", tmp_path / name], file, samples=5)
    regard.evaluate([tmp_path / "a", tmp_path / "d"], file, samples=5)


def test_bad_pairs_are_an_error_or_left_out_and_counted(polyglot: Path, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("one\tone!\ntwo\t\n")
    said = call("eval", polyglot, tmp_path / "test.tsv", "--to", "de")
    assert said.code == 2 and "(--on-bad drop)" in said.err
    said = call("eval", polyglot, tmp_path / "test.tsv", "--to", "de", "--on-bad", "drop", "--json")
    assert json.loads(said.out)["pairs"] == 1
    assert said.err.startswith("regard: test.tsv: ") and "1" in said.err


def test_what_a_loss_is_of_is_said(polyglot: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text(f"one\tone!\n{'long ' * 20}\tlong\n")
    said = call("eval", polyglot, tmp_path / "test.tsv", "--to", "de", "--metric", "loss", "--json")
    assert said.err.splitlines()[-1] == f"regard: the loss of {polyglot} is over 1 pairs: 1 are too long for it"
    corpus = polyglot.parent / "cs.tsv"
    both = call("eval", polyglot, model, corpus, "--metric", "loss", "--json")
    assert "divide text into different tokens: their loss cannot be compared" in both.err


@pytest.mark.parametrize(
    ("metric", "wanted"),
    [("bleu", "gives no outputs that bleu could score"), ("pair_accuracy", "has no pair_accuracy; available: loss")],
)
def test_a_score_that_the_task_does_not_have(tmp_path: Path, metric: str, wanted: str) -> None:
    (tmp_path / "text").write_text("the cat sat on the mat. " * 40)
    sets = {
        "train.steps": 1,
        "train.batch_tokens": 64,
        "model.width": 16,
        "model.depth": 1,
        "train.schedule": "constant",
    }
    run_training(TrainRequest("gpt", (str(tmp_path / "text"),), set=sets, out=str(tmp_path / "run"), quiet=True))
    with pytest.raises(SpecError, match=wanted):
        regard.evaluate(tmp_path / "run", tmp_path / "text", metrics=[metric])


def test_sources_too_long_to_read_are_said(polyglot: Path, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text(f"one\tone!\n{'long ' * 20}\tlong\n")
    said = call("eval", polyglot, tmp_path / "test.tsv", "--to", "de", "--json")
    assert json.loads(said.out)["pairs"] == 2
    assert f"regard: {polyglot}: input 2 is longer than the model can read; it is read in parts" in said.err


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, "eval needs data: two text files, or one .tsv, .csv or .jsonl file"),
        ({"a.txt": "one\ntwo\n", "b.txt": "one\n"}, "a.txt has 2 lines and {here}/b.txt has 1"),
        ({"a.tsv": "one\teins\ntwo\t\n"}, "a.tsv, line 2: the target is empty"),
        ({"a.jsonl": '{"source": "one"}\n'}, "a.jsonl, line 1: should be an object with the texts"),
        ({"a.csv": 'one,eins\ntwo,"zwei\n'}, "a.csv, line 2: not CSV"),
        ({"a.txt": "one\n", "b.txt": None}, "there is no file or model folder {here}/b.txt"),
    ],
)
def test_data_that_cannot_be_used(model: Path, tmp_path: Path, files: dict[str, str | None], wanted: str) -> None:
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)
    said = call("eval", model, *(tmp_path / name for name in files))
    assert (said.code, said.out) == (2, "")
    if files:
        assert wanted.format(here=tmp_path) in said.err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--metric", "blue"], "no metric 'blue'; did you mean 'bleu'?"),
        (["--beam", "0"], "beam: input should be greater than or equal to 1"),
        (["--samples", "0"], "Invalid value for '--samples'"),
    ],
)
def test_an_option_that_cannot_be(model: Path, letters: tuple[Path, Path], words: list[str], wanted: str) -> None:
    said = call("eval", model, *letters, *words)
    assert (said.code, said.out) == (2, "")
    assert wanted in said.err


def test_models_that_are_not_there(model: Path, letters: tuple[Path, Path]) -> None:
    assert call("eval", "nowhere", *letters).err == "regard: there is no model folder nowhere\n"
    assert call("eval", model, "nowhere", *letters).err == "regard: there is no file or model folder nowhere\n"


def test_what_no_weight_depends_on_can_be_set(tmp_path: Path) -> None:
    """A longer memory than in training; what the weights do not fit is refused."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat; the dog sat on the cat. " * 6)
    small = {"model.width": 16, "model.depth": 2, "model.heads": 2, "model.hidden": 32, "model.memory_length": 4}
    small |= {"data.context": 8, "train.steps": 2, "train.schedule": "constant", "train.threads": 1}
    run_training(TrainRequest("transformer_xl", (str(text),), set=small, out=str(tmp_path / "run"), quiet=True))
    losses = []
    for past in (4, 200):
        sets = {"model.decoder.block.mix.memory_length": past}
        found = regard.evaluate(tmp_path / "run", text, set=sets)
        losses.append(found.models[0].scores["loss"].score)
    assert losses[0] != losses[1]
    with pytest.raises(SpecError, match="the weights do not fit the changed model"):
        regard.evaluate(tmp_path / "run", text, set={"model.width": 32})
