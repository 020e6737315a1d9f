"""Training requests: recipe, settings, advice, files and device; and those that are refused."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.data.pair_reader import Corpus, read_corpus
from regard.errors import SpecError, UnknownName
from regard.families.expand import check_model_keys
from regard.machine import resolve_device
from regard.recipes.merge import parse_yaml
from regard.tasks.common.advice import advise_pairs
from regard.training.optimizer import Adam, Muon, OptimizerSpec
from regard.training.recipe import Train
from regard.training.request import TrainRequest, build_recipe
from regard.training.train import run_training
from tests.training.small import ROWS, events, on_files, tiny


def test_defaults_then_advice_then_recipe_then_set(tmp_path: Path, corpus: Path) -> None:
    """Each layer only where the ones over it are silent."""
    text = "task: translate\nauto: true\ndata: {metrics: [exact], tokenizer: chars}\n"
    text += (
        "model: {width: 16, depth: 1, heads: 2}\ntrain: {epochs: 1, optimizer: {weight_decay: 0.25}, log_every: 7}\n"
    )
    recipe = tmp_path / "my.yaml"
    recipe.write_text(text)
    out = tmp_path / "run"
    changes = {"train.log_every": "3", "train.schedule.lr": "7e-3", "train.threads": 1, "model.hidden": 8}
    run_training(TrainRequest(str(recipe), (str(corpus),), set=changes, out=str(out), quiet=True))
    kept = parse_yaml((out / "recipe.yaml").read_text(), "x")
    assert kept["train"]["keep_checkpoints"] == 2, "a default"
    advice = advise_pairs([read_corpus(Corpus(paths=(str(corpus),)))], {"epochs": 1}).recipe
    assert kept["train"]["batch_tokens"] == advice["train"]["batch_tokens"] != Train(steps=1).batch_tokens, "advice"
    assert kept["model"]["dropout"] == advice["model"]["dropout"], "advice"
    assert kept["train"]["schedule"]["kind"] == advice["train"]["schedule"]["kind"], "advice, for the kind"
    assert kept["train"]["schedule"]["lr"] == 0.007 != advice["train"]["schedule"]["lr"], "--set, within it"
    assert kept["model"]["width"] == 16, "the recipe, over advice"
    assert kept["data"]["tokenizer"]["kind"] == "chars", "the recipe, over advice of another kind"
    assert kept["train"]["epochs"] == 1, "the recipe, over advice"
    assert kept["train"]["optimizer"]["kind"] == advice["train"]["optimizer"]["kind"] == "muon"
    assert kept["train"]["optimizer"]["weight_decay"] == 0.25, "the recipe, within the part that was advised"
    assert kept["train"]["log_every"] == 3, "--set, over the recipe"
    assert kept["model"]["hidden"] == 8, "--set, over advice"


def test_a_recipe_keeps_what_another_family_has_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "book.txt"
    text.write_text("to be or not to be\n" * 40)
    changes = {"model.family": "rnn", "train.steps": 2, "train.schedule": "constant", "data.context": 16}
    run_training(TrainRequest("gpt", (str(text),), set=changes, out=str(tmp_path / "run")))
    left_out = "left out of the recipe's model, because 'rnn' does not have them: heads, hidden, bias, activation"
    assert left_out in capsys.readouterr().err
    kept = parse_yaml((tmp_path / "run" / "recipe.yaml").read_text(), "x")["model"]
    assert (kept["family"], kept["width"], kept["depth"]) == ("rnn", 128, 4)
    asked = TrainRequest("gpt", set={"model.family": "rnn", "model.heads": 4})
    with pytest.raises(SpecError, match=r"no key 'model\.heads' in 'rnn'"):
        check_model_keys(build_recipe(asked, None)["model"])


def test_advice_can_be_declined(tmp_path: Path, corpus: Path) -> None:
    run_training(dataclasses.replace(on_files(tmp_path / "run", corpus, auto="false"), quiet=True))
    assert parse_yaml((tmp_path / "run" / "recipe.yaml").read_text(), "x")["train"]["optimizer"]["kind"] == "adam"
    with pytest.raises(SpecError, match="auto should be true or false, got 'no'"):
        run_training(on_files(tmp_path / "run", corpus, auto="no"))


def test_advice_does_not_keep_faults_back(tmp_path: Path) -> None:
    """What no advice can mend is told before the corpus is read."""
    order = on_files(tmp_path / "run", tmp_path / "nowhere.tsv", train__schedule={"lr": 1}, train__stepz=1)
    with pytest.raises(SpecError, match=r"^no key 'train\.stepz'; did you mean 'steps'\?$"):
        run_training(order)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train__stepz": 1}, "no key 'train.stepz'; did you mean 'steps'"),
        ({"train__schedule": {"lr": 1}, "train__schedule__kind": None}, "no schedule None"),
        ({"data__generate__cuont": 1}, "data.generate: no key 'cuont'; did you mean 'count'"),
        ({"data__tokenizer": "char"}, "no tokenizer 'char'; did you mean 'chars'"),
        ({"data__metric": "bleu"}, "no key 'data.metric'; did you mean 'metrics'"),
        ({"data__metrics": []}, "`metrics` should name at least one score"),
        ({"model__widht": 3}, "no key 'model.widht' in 'transformer'; did you mean 'width'"),
        ({"model__width": "wide"}, "model.width: "),
        ({"model__heads": 3}, "3"),
        ({"task": "translat"}, "no task 'translat'; did you mean 'translate'"),
        ({"task": None}, "task: input should be a valid string, got None"),
        ({"decode__n_best": 5}, "n_best=5 needs a beam of at least as many"),
        ({"train__seed": 2**63}, "train.seed: input should be less than 9223372036854775808, got 9223372036854775808"),
        ({"train__threads": 100_000}, "train.threads: input should be less than or equal to 1024, got 100000"),
        ({"modl": {}}, "no key 'modl'; did you mean 'model'"),
        ({"steps": 3}, "no key 'steps'; did you mean 'train.steps'?"),
        ({"seed": 3}, "no key 'seed'; did you mean 'train.seed' or 'decode.seed'?"),
        (
            {"width": 3, "beam": 2},
            "no key 'width'; did you mean 'model.width'?; no key 'beam'; did you mean 'decode.beam'?",
        ),
        ({"family": "gpt"}, "no key 'family'; did you mean 'model.family'?"),
        ({"filters": "standard"}, "no key 'filters'; did you mean 'data.filters'?"),
        ({"wings": 2}, "no key 'wings'; available: task, train, data, model, decode, about, purpose"),
        (
            {"data__filters": "standart"},
            "data.filters: should be the word standard, or a list such as [length, ratio], got 'st",
        ),
    ],
)
def test_what_cannot_be_is_told_at_once(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        run_training(tiny(tmp_path, **changes))
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_largest_seed(tmp_path: Path) -> None:
    final = run_training(tiny(tmp_path, train__seed=2**63 - 1, train__steps=4, model__dropout=0.1))
    assert events(tmp_path, "done")[-1]["step"] == 4
    assert (final / "model.safetensors").exists()


def test_a_recipe_without_a_task(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="task is missing"):
        run_training(TrainRequest({"train": {"steps": 1}}, out=str(tmp_path)))


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"f\xff.tsv")
    (tmp_path / name).write_text("".join(ROWS))
    for order in (on_files(tmp_path / "run", tmp_path / name), tiny(tmp_path / name)):
        with pytest.raises(
            SpecError, match=r"f\\udcff\.tsv' is not UTF-8 and cannot be stored in the run; rename the file"
        ):
            run_training(order)
    assert not (tmp_path / "run").exists()


def test_files_and_a_generator_do_not_go_together(tmp_path: Path, corpus: Path) -> None:
    for given in ({"data": (str(corpus),)}, {"valid": (str(corpus),)}):
        with pytest.raises(SpecError, match="from `train` and `valid` corpora or from `generate`, not from both"):
            run_training(dataclasses.replace(tiny(tmp_path / "run"), **given))  # type: ignore[arg-type]


def test_validation_files(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "v.src").write_text("aaa\nb1\n")
    (tmp_path / "v.trg").write_text("1a\n1b\n")
    order = on_files(tmp_path / "run", corpus)
    run_training(dataclasses.replace(order, valid=(str(tmp_path / "v.src"), str(tmp_path / "v.trg"))))
    (done,) = events(tmp_path / "run", "done")
    assert [row["source"] for row in done["examples"]] == ["aaa", "b1"]
    capsys.readouterr()
    again = dataclasses.replace(order, valid=(str(corpus),), fresh=True, quiet=False)
    run_training(again)
    assert "corpus.tsv: 40 of 40 pairs are also in the training data" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cpu:1", "", "CUDA"])
def test_unknown_devices(name: str) -> None:
    with pytest.raises(UnknownName, match=f"no device '{name}'"):
        resolve_device(name)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert resolve_device("auto") == resolve_device("cpu") == "cpu"
    with pytest.raises(SpecError, match="torch finds no device 'cuda:1' on this machine; use --device auto"):
        resolve_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (resolve_device("auto"), resolve_device("cuda:1"), resolve_device("cpu")) == ("cuda", "cuda:1", "cpu")


@pytest.mark.parametrize("path", ["train.optimizer", "train.optimizer.kind"])
@pytest.mark.parametrize(("kind", "own"), [("adam", Adam()), ("muon", Muon())])
def test_another_optimizer_has_its_own_defaults(path: str, kind: str, own: OptimizerSpec) -> None:
    """The recipe gpt sets betas and weight decay of AdamW."""
    train = build_recipe(TrainRequest("gpt", set={path: kind}), None)["train"]
    assert Train.parse({**train, "epochs": 1}).optimizer == own
    assert train["schedule"]["lr"] == 1e-3, "the schedule stays"
