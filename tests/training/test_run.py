"""A run from the outside: what it refuses, what it keeps, where it starts from, and what it leaves behind."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.data.sources import Corpus, read
from regard.errors import CheckpointError, Interrupted, RegardError, SpecError, UnknownName
from regard.folder import pack, read_folder, write_folder
from regard.tasks.advice import advise
from regard.training.begin import FIXED, agree
from regard.training.checkpoint import Checkpoints
from regard.training.lock import RunLock
from regard.training.log import read_log
from regard.training.loop import Trainer
from regard.training.recipe import Recipe, Train, parse_yaml
from regard.training.run import Order, device_of, execute, model_folder
from tests.training.small import events, hard, interrupted, stopping_after, tiny, traces

ROWS = [f"{'abcdefgh'[i % 8] * (1 + i % 3)}{i}\t{i}{'abcdefgh'[i % 8]}\n" for i in range(40)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.tsv"
    path.write_text("".join(ROWS))
    return path


def on_files(out: Path, *paths: Path, **changes: Any) -> Order:
    """An order for a tiny run of the recipe `translate` on files."""
    order = tiny(out, recipe="translate", **{"data__tokenizer": "chars", "data__metrics": ["exact"], **changes})
    return dataclasses.replace(order, data=tuple(map(str, paths)))


def stopped(order: Order, step: int = 5) -> Order:
    """The order, after its run was stopped."""
    with stopping_after(step), pytest.raises(Interrupted):
        execute(order)
    return order


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "copy"
    execute(tiny(folder))
    return folder


# What lies in a run folder.


def test_a_run_folder(finished: Path) -> None:
    assert {p.name for p in finished.iterdir()} == {
        "best", "checkpoints", "final", "log.jsonl", "recipe.yaml", "report.html", "run.json", "run.lock", "vocabulary",
    }  # fmt: skip
    assert {p.name for p in (finished / "final").iterdir()} == {
        "README.md", "config.json", "manifest.json", "model.safetensors", "tokenizer.json",
    }  # fmt: skip
    assert [p.name for p in sorted((finished / "checkpoints").iterdir())] == ["step-00000010", "step-00000012"]
    log = read_log(finished / "log.jsonl")
    assert [e["event"] for e in log if e["event"] != "train"] == ["start", "valid", "valid", "valid", "done"]
    assert log[0]["total"] == 12
    assert log[0]["fingerprint"] == json.loads((finished / "run.json").read_text())["fingerprint"]
    assert len(log[-1]["examples"]) == 6
    assert set(log[-1]["examples"][0]) == {"source", "reference", "output"}
    assert "Finished" in (finished / "report.html").read_text()


def test_the_recipe_that_is_kept_makes_the_same_run_again(finished: Path, tmp_path: Path) -> None:
    execute(Order(str(finished / "recipe.yaml"), out=str(tmp_path / "again"), quiet=True))
    assert traces(tmp_path / "again") == traces(finished)


def test_the_card_tells_where_the_model_comes_from(finished: Path) -> None:
    text = (finished / "final" / "README.md").read_text()
    assert "# copy: a translate model" in text
    assert "| exact | " in text
    assert f"| torch | {torch.__version__} |" in text
    assert "| command | regard train copy --set data.generate.count=60 " in text
    assert "| fingerprint | " in text


def test_it_writes_to_stderr_only_and_nothing_when_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = tiny(tmp_path, train__steps=4)
    execute(order)
    assert capsys.readouterr() == ("", "")
    execute(dataclasses.replace(order, quiet=False, fresh=True))
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("model: 5,856 parameters, float32, on 1 threads of ")
    assert lines[1].startswith("training: 4 steps, 60 examples; run folder ")
    assert lines[2].startswith("step 4/4  loss ")
    assert lines[-1].startswith("done: loss ")


def test_pairs_too_long_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = tiny(tmp_path, train__steps=4, data__longest=5)
    execute(dataclasses.replace(order, quiet=False))
    err = capsys.readouterr().err
    assert " too long ones left out); run folder" in err
    examples = int(err.split("4 steps, ")[1].split()[0])
    left_out = int(err.split("examples (")[1].split()[0])
    assert left_out > 0
    assert examples + left_out == 60


def test_global_settings_are_left_as_they_were(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    before = torch.get_rng_state()
    execute(tiny(tmp_path, train__steps=4, model__dropout=0.2))
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), before)


# The same command again.


def test_a_finished_run_says_so_and_trains_no_more(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = traces(finished)
    monkeypatch.setattr(Trainer, "_update", lambda *_: pytest.fail("it trains"))
    monkeypatch.setattr(Trainer, "evaluate", lambda *_: pytest.fail("it validates"))
    path = execute(dataclasses.replace(tiny(finished), quiet=False))
    assert path == finished / "final"
    assert "this run is finished at step 12 of 12" in capsys.readouterr().err
    assert traces(finished) == before


def test_the_message_of_a_stop_is_the_command_that_goes_on(tmp_path: Path) -> None:
    order = dataclasses.replace(tiny(tmp_path / "my run", train__steps=6), device="cpu", tensorboard=True)
    with stopping_after(2), pytest.raises(Interrupted) as caught:
        execute(order)
    said = str(caught.value)
    assert said.startswith("stopped at step 2 of 6, saved; to go on: regard train copy --set data.generate.count=60 ")
    assert said.endswith(f"--out '{tmp_path / 'my run'}' --device cpu --tensorboard")
    assert caught.value.exit_code == 130


def test_stopping_at_the_last_step_leaves_the_rest_for_the_next_time(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path), 12)
    assert not (tmp_path / "final").exists()
    execute(order)
    assert (tmp_path / "final").exists()


def test_a_command_says_all_that_was_asked() -> None:
    order = Order(
        "my recipe.yaml", ("a.en", "a.de"), ("v.en", "v.de"), {"train.ema": None, "model.norm": "pre", "data.x": [1]},
        start="other", out="runs/x",
    )  # fmt: skip
    assert order.command == (
        "regard train 'my recipe.yaml' a.en a.de --valid v.en --valid v.de --set train.ema=null "
        "--set model.norm=pre --set 'data.x=[1]' --from other --out runs/x"
    )
    assert order.folder == Path("runs/x")
    assert dataclasses.replace(order, out=None).folder == Path("runs/my recipe")


@pytest.mark.parametrize("lost", ["final", "done", "final half written"])
def test_a_run_that_died_while_finishing_finishes(finished: Path, tmp_path: Path, lost: str) -> None:
    """Whatever of the end is missing is done again, and nothing twice."""
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    if lost != "done":
        shutil.rmtree(folder / "final")
    if lost == "final half written":
        (folder / ".final.partial").mkdir()
        (folder / ".final.partial" / "config.json").write_text("{")
    log = folder / "log.jsonl"
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines() if '"done"' not in line))
    execute(tiny(folder))
    assert traces(folder) == traces(finished)
    assert not (folder / ".final.partial").exists()


def test_a_final_model_that_was_deleted_is_made_again(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "final")
    execute(tiny(folder))
    assert traces(folder)["models"] == traces(finished)["models"]


# What is refused.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train__steps": 13}, "train.steps: 12 -> 13"),
        ({"model__dropout": 0.5}, "model.dropout: 0.0 -> 0.5"),
        ({"train__seed": 2}, "train.seed: 1 -> 2"),
        ({"decode__beam": 2}, "decode.beam: 1 -> 2"),
        ({"train__schedule": {"kind": "constant"}}, "train.schedule.kind: 'cosine' -> 'constant'; "),
        ({"data__generate__count": 61}, "data.generate.count: 60 -> 61; the corpus is not the one this run began with"),
        ({"train__threads": 2}, "train.threads: 1 -> 2; threads: 1 -> 2"),
        ({"train__precision": "bfloat16"}, "precision: float32 -> bfloat16"),
    ],
)
def test_a_changed_recipe_is_refused_with_the_difference(finished: Path, changes: dict[str, Any], message: str) -> None:
    before = traces(finished)
    with pytest.raises(SpecError) as caught:
        execute(tiny(finished, **changes))
    assert str(caught.value).startswith(f"{finished} was begun with another recipe or corpus: ")
    assert message in str(caught.value)
    assert str(caught.value).endswith("Take that back, choose another --out, or start over with --fresh")
    assert traces(finished) == before


def test_another_number_of_threads_on_the_machine_is_refused(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path, train__threads=None))
    torch.set_num_threads(2)
    with pytest.raises(SpecError, match=r"corpus: threads: 1 -> 2\. Take"):
        execute(order)
    torch.set_num_threads(1)
    execute(order)


def test_another_torch_is_refused(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path))
    facts = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(facts | {"torch": "1.0"}))
    with pytest.raises(SpecError, match=r"torch: 1\.0 -> "):
        execute(order)


def test_a_changed_corpus_is_refused_but_a_moved_one_is_not(tmp_path: Path, corpus: Path) -> None:
    order = stopped(on_files(tmp_path / "run", corpus))
    corpus.write_text("".join(ROWS[1:]))
    with pytest.raises(SpecError, match=r"another recipe or corpus: the corpus is not the one this run began with\. "):
        execute(order)
    corpus.write_text("".join(ROWS))
    execute(order)


def test_fresh_starts_over(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    stopped(tiny(folder, train__seed=5, train__average={"which": "last", "count": 2}, train__validate_every=1))
    (folder / "mine.txt").write_text("kept")
    (folder / ".best.previous").mkdir()
    execute(dataclasses.replace(tiny(folder), fresh=True))
    assert traces(folder) == traces(finished)
    assert {p.name for p in folder.iterdir()} - {p.name for p in finished.iterdir()} == {"mine.txt"}


def test_fresh_with_a_wrong_recipe_deletes_nothing(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path))
    wrong = tiny(tmp_path, data__metrics=["exakt"])
    with pytest.raises(SpecError, match="no metric 'exakt'; did you mean 'exact'"):
        execute(dataclasses.replace(wrong, fresh=True))
    assert Checkpoints(tmp_path / "checkpoints").steps() == [5]
    execute(order)


def test_a_run_that_saved_nothing_begins_anew_with_another_recipe(tmp_path: Path) -> None:
    """A mistake in a recipe that shows only when training starts can be mended without --fresh."""
    with pytest.raises(SpecError, match="schedule 'cosine' warms up for 50 steps, but there are only 12"):
        execute(tiny(tmp_path, train__schedule__warmup=50))
    assert (tmp_path / "run.json").exists()
    execute(tiny(tmp_path))
    assert parse_yaml((tmp_path / "recipe.yaml").read_text(), "x")["train"]["schedule"]["warmup"] == 3


@pytest.mark.parametrize("left", [b"", b'{"fingerprint": "0', None])
def test_killed_while_the_folder_was_begun(tmp_path: Path, left: bytes | None) -> None:
    """Facts come first, the recipe second; whatever is there of them, nothing else is."""
    if left is None:
        (tmp_path / ".run.json.partial").write_bytes(b"{")
    else:
        (tmp_path / "run.json").write_bytes(left)
    execute(tiny(tmp_path, train__steps=4))
    assert (tmp_path / "final").exists()


def test_a_recipe_of_the_users_own_is_not_written_over(tmp_path: Path) -> None:
    mine = tmp_path / "recipe.yaml"
    mine.write_text("# my comments\ntask: translate\n")
    with pytest.raises(SpecError, match="is not of a run of ours, and would be written over; choose another --out"):
        execute(tiny(tmp_path))
    with pytest.raises(SpecError, match="is not of a run of ours"):
        execute(dataclasses.replace(tiny(tmp_path), fresh=True))
    assert mine.read_text().startswith("# my comments")


def test_a_run_without_its_recipe(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path))
    (tmp_path / "recipe.yaml").unlink()
    with pytest.raises(CheckpointError, match=r"has no recipe\.yaml or run\.json any more; start over with --fresh"):
        execute(order)
    execute(dataclasses.replace(order, fresh=True))


def test_damaged_facts_are_told(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path))
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"run\.json is damaged: it is not JSON"):
        execute(order)


def test_a_second_trainer_is_refused(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path))
    with RunLock(tmp_path), pytest.raises(RegardError, match=r"is being written by process .*; wait until it ends"):
        execute(order)
    with RunLock(tmp_path), pytest.raises(RegardError, match="is being written by"):
        execute(dataclasses.replace(order, fresh=True))
    assert Checkpoints(tmp_path / "checkpoints").steps() == [5]
    execute(order)


def test_a_file_where_the_run_should_be(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(CheckpointError, match="a file stands where a folder should be"):
        execute(tiny(tmp_path / "x"))


def test_recipes_alike_in_all_but_their_writing_agree(tmp_path: Path) -> None:
    """Characters that YAML changes on the way are no difference."""
    facts: dict[str, Any] = {"fingerprint": "0", **dict.fromkeys(FIXED)}
    recipe = Recipe.parse({"task": "translate", "train": {"steps": 1}, "about": "a\x85b\u2028c", "data": {"x": "1e3"}})
    agree(tmp_path, recipe, facts, fresh=False)
    (tmp_path / "best").mkdir()
    agree(tmp_path, recipe, facts, fresh=False)
    with pytest.raises(SpecError, match=r"data\.x: '1e3' -> 1000\.0"):
        agree(tmp_path, dataclasses.replace(recipe, data={"x": 1000.0}), facts, fresh=False)


# What is asked for.


def test_defaults_then_advice_then_recipe_then_set(tmp_path: Path, corpus: Path) -> None:
    """Each layer only where the ones over it are silent."""
    text = "task: translate\nadvise: true\ndata: {metrics: [exact], tokenizer: chars}\n"
    text += "model: {width: 16, depth: 1, heads: 2}\ntrain: {epochs: 1, optimizer: {decay: 0.25}, log_every: 7}\n"
    recipe = tmp_path / "my.yaml"
    recipe.write_text(text)
    out = tmp_path / "run"
    changes = {"train.log_every": "3", "train.schedule.peak": "3e-3", "train.threads": 1, "model.hidden": 8}
    execute(Order(str(recipe), (str(corpus),), set=changes, out=str(out), quiet=True))
    kept = parse_yaml((out / "recipe.yaml").read_text(), "x")
    assert kept["train"]["keep"] == 2, "a default"
    advice = advise([read(Corpus(paths=(str(corpus),)))], {"epochs": 1}).recipe
    assert kept["train"]["tokens"] == advice["train"]["tokens"] != Train(steps=1).tokens, "advice"
    assert kept["model"]["dropout"] == advice["model"]["dropout"], "advice"
    assert kept["train"]["schedule"]["kind"] == advice["train"]["schedule"]["kind"], "advice, for the kind"
    assert kept["train"]["schedule"]["peak"] == 0.003 != advice["train"]["schedule"]["peak"], "--set, within it"
    assert kept["model"]["width"] == 16, "the recipe, over advice"
    assert kept["data"]["tokenizer"]["kind"] == "chars", "the recipe, over advice of another kind"
    assert kept["train"]["epochs"] == 1, "the recipe, over advice"
    assert kept["train"]["optimizer"]["kind"] == advice["train"]["optimizer"]["kind"] == "adamw"
    assert kept["train"]["optimizer"]["decay"] == 0.25, "the recipe, within the part that was advised"
    assert kept["train"]["log_every"] == 3, "--set, over the recipe"
    assert kept["model"]["hidden"] == 8, "--set, over advice"


def test_advice_can_be_declined(tmp_path: Path, corpus: Path) -> None:
    execute(dataclasses.replace(on_files(tmp_path / "run", corpus, advise="false"), quiet=True))
    assert parse_yaml((tmp_path / "run" / "recipe.yaml").read_text(), "x")["train"]["optimizer"]["kind"] == "adam"
    with pytest.raises(SpecError, match="advise should be true or false, got 'no'"):
        execute(on_files(tmp_path / "run", corpus, advise="no"))


def test_advice_does_not_keep_faults_back(tmp_path: Path) -> None:
    """What no advice can mend is told before the corpus is read."""
    order = on_files(tmp_path / "run", tmp_path / "nowhere.tsv", train__schedule={"peak": 1}, train__stepz=1)
    with pytest.raises(SpecError, match=r"^no key 'train\.stepz'; did you mean 'steps'\?$"):
        execute(order)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train__stepz": 1}, "no key 'train.stepz'; did you mean 'steps'"),
        ({"train__schedule": {"peak": 1}, "train__schedule__kind": None}, "no schedule None"),
        ({"data__generate__cuont": 1}, "no key 'cuont'; did you mean 'count'"),
        ({"data__tokenizer": "char"}, "no tokenizer 'char'; did you mean 'chars'"),
        ({"data__metric": "bleu"}, "no key 'metric'; did you mean 'metrics'"),
        ({"data__metrics": []}, "`metrics` should name at least one score"),
        ({"model__widht": 3}, "no key 'model.widht' in 'transformer'; did you mean 'width'"),
        ({"model__width": "wide"}, "model.width: "),
        ({"model__heads": 3}, "3"),
        ({"task": "translat"}, "no task 'translat'; did you mean 'translate'"),
        ({"task": None}, "task: input should be a valid string, got None"),
        ({"decode__n_best": 5}, "n_best=5 needs a beam of at least as many"),
        ({"modl": {}}, "no key 'modl'; did you mean 'model'"),
    ],
)
def test_what_cannot_be_is_told_at_once(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        execute(tiny(tmp_path, **changes))
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_recipe_without_a_task(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="task is missing"):
        execute(Order({"train": {"steps": 1}}, out=str(tmp_path)))


def test_files_and_a_generator_do_not_go_together(tmp_path: Path, corpus: Path) -> None:
    for given in ({"data": (str(corpus),)}, {"valid": (str(corpus),)}):
        with pytest.raises(SpecError, match="from `train` and `valid` corpora or from `generate`, not from both"):
            execute(dataclasses.replace(tiny(tmp_path / "run"), **given))  # type: ignore[arg-type]


def test_validation_files(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "v.src").write_text("aaa\nb1\n")
    (tmp_path / "v.trg").write_text("1a\n1b\n")
    order = on_files(tmp_path / "run", corpus)
    execute(dataclasses.replace(order, valid=(str(tmp_path / "v.src"), str(tmp_path / "v.trg"))))
    (done,) = events(tmp_path / "run", "done")
    assert [row["source"] for row in done["examples"]] == ["aaa", "b1"]
    capsys.readouterr()
    again = dataclasses.replace(order, valid=(str(corpus),), fresh=True, quiet=False)
    execute(again)
    assert "corpus.tsv: 40 of 40 pairs are also trained on: scores on them flatter" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cpu:1", "", "CUDA"])
def test_unknown_devices(name: str) -> None:
    with pytest.raises(UnknownName, match=f"no device '{name}'"):
        device_of(name)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert device_of("auto") == device_of("cpu") == "cpu"
    with pytest.raises(SpecError, match="torch finds no device 'cuda:1' on this machine; use --device auto"):
        device_of("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (device_of("auto"), device_of("cuda:1"), device_of("cpu")) == ("cuda", "cuda:1", "cpu")


# From another model.


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A corpus, and a run on it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "corpus.tsv").write_text("".join(ROWS))
    execute(on_files(folder / "run", folder / "corpus.tsv", data__tokenizer={"kind": "bpe", "vocab": 40}))
    return folder / "corpus.tsv", folder / "run"


def test_from_a_model_goes_on_with_its_weights_and_its_vocabulary(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """On another corpus, with another tokenizer and width in the recipe: the model keeps its own."""
    other = tmp_path / "other.tsv"
    other.write_text("".join(f"xyz{row}" for row in ROWS))
    changes = {"data__tokenizer": ..., "train__steps": 1, "train__schedule": {"kind": "constant", "peak": 1e-30}}
    order = on_files(tmp_path / "tuned", other, **changes)
    settings = {k: v for k, v in order.set.items() if v is not ... and not k.startswith("model.")}
    order = dataclasses.replace(order, start=str(trained[1]), set=settings)
    execute(order)
    old, new = read_folder(trained[1] / "final"), read_folder(tmp_path / "tuned" / "final")
    assert old["tokenizer.json"] == new["tokenizer.json"]
    assert old.json("config.json")["model"] == new.json("config.json")["model"]
    assert old.json("config.json")["settings"]["tokenizer"] == new.json("config.json")["settings"]["tokenizer"]
    for name, tensor in old.tensors().items():
        assert torch.equal(tensor, new.tensors()[name])
    assert execute(order) == tmp_path / "tuned" / "final", "the same command again"


def test_fine_tuning_learns_the_other_corpus(trained: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("aa1\tb\nbb2\tc\ncc3\td\ndd4\te\n" * 3)
    settings = {"train.steps": 60, "train.schedule": {"kind": "constant", "peak": 0.01}, "train.threads": 1}
    settings |= {"train.average": None, "train.validate_every": 20, "data.metrics": ["exact"], "train.log_every": 1}
    order = Order(
        "translate", (str(other),), (str(other),), settings, start=str(trained[1]), out=str(tmp_path / "tuned")
    )
    execute(dataclasses.replace(order, quiet=True))
    losses = [event["loss"] for event in events(tmp_path / "tuned", "valid")]
    assert losses[-1] < 0.5 * losses[0]
    assert regard.load(trained[1]).task.files() == regard.load(tmp_path / "tuned").task.files()


def test_what_fits_is_taken_and_the_rest_is_listed(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """A layer more in the encoder is new; a wider feed-forward layer begins anew, and the old one is left."""
    order = dataclasses.replace(on_files(tmp_path / "x", trained[0]), start=str(trained[1]))
    changes = {"model.encoder.depth": 2, "model.decoder.block.feed.width": 64}
    rate = {"train.steps": 1, "train.schedule": {"kind": "constant", "peak": 1e-30}}
    kept = {k: v for k, v in order.set.items() if not k.startswith("model.")}
    execute(dataclasses.replace(order, set=kept | changes | rate))
    old, new = (read_folder(path / "final").tensors() for path in (trained[1], tmp_path / "x"))
    weights = events(tmp_path / "x", "start")[0]["weights"]
    wide = [f"decoder.blocks.0.feed.{name}" for name in ("up.weight", "up.bias", "down.weight")]
    assert sorted(weights["left"]) == sorted(wide)
    assert sorted(weights["new"]) == sorted([*wide, *(name for name in new if name.startswith("encoder.blocks.1."))])
    assert sorted(weights["taken"]) == sorted(set(old) - set(wide))
    assert all(torch.equal(old[name], new[name]) for name in weights["taken"])


def test_a_model_of_which_nothing_fits_is_refused(trained: tuple[Path, Path], tmp_path: Path) -> None:
    order = dataclasses.replace(on_files(tmp_path / "x", trained[0]), start=str(trained[1]))
    kept = {k: v for k, v in order.set.items() if not k.startswith("model.")}
    with pytest.raises(SpecError) as caught:
        execute(dataclasses.replace(order, set=kept | {"model.width": 32}))
    said = str(caught.value)
    assert said.startswith(f"no layer of {trained[1]} fits the model asked for: ")
    assert "encoder.blocks.0.mix.q.weight should be (32, 32), got (16, 16)" in said


def test_a_resumed_run_starts_from_the_same_model(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """Not from one that took its place."""
    source = tmp_path / "source"
    shutil.copytree(trained[1] / "final", source)
    order = dataclasses.replace(on_files(tmp_path / "x", trained[0]), start=str(source))
    order = dataclasses.replace(order, set={k: v for k, v in order.set.items() if not k.startswith("model.")})
    stopped(order)
    folder = read_folder(source)
    changed = {name: tensor + 1 for name, tensor in folder.tensors().items()}
    write_folder(source, {**folder.files, "model.safetensors": pack(changed)})
    with pytest.raises(SpecError, match=r"start: .*source \([0-9a-f]{12}\) -> .*source \([0-9a-f]{12}\)"):
        execute(order)


def test_a_run_does_not_start_from_itself(finished: Path) -> None:
    for start in (finished, finished / "best"):
        with pytest.raises(SpecError, match=r"cannot start from a model in its own folder .*; choose another --out"):
            execute(dataclasses.replace(tiny(finished), start=str(start), fresh=True))
    assert (finished / "final").exists()


def test_a_damaged_model_is_told_before_anything_is_read(trained: tuple[Path, Path], tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(trained[1] / "final", source)
    (source / "model.safetensors").write_bytes(b"x")
    order = dataclasses.replace(on_files(tmp_path / "x", tmp_path / "nowhere.tsv"), start=str(source))
    with pytest.raises(CheckpointError, match=r"model\.safetensors should have"):
        execute(order)


# Which model of a run.


def test_the_model_of_a_run_is_final_else_best(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    assert model_folder(folder).path == folder / "final"
    assert model_folder(folder / "best").path == folder / "best"
    shutil.rmtree(folder / "final")
    assert model_folder(folder).path == folder / "best"
    (folder / "best").rename(folder / ".best.previous")
    assert model_folder(folder).path == folder / "best", "killed in the middle of replacing it"
    shutil.rmtree(folder / ".best.previous")
    with pytest.raises(CheckpointError, match="is a run that has not validated yet; let it train a little longer"):
        model_folder(folder)
    with pytest.raises(SpecError, match="there is no model folder"):
        model_folder(tmp_path / "nowhere")


def test_averages_end_in_the_final_model(tmp_path: Path) -> None:
    execute(tiny(tmp_path, train__average={"which": "last", "count": 3}, train__validate_every=2))
    snapshots = sorted((tmp_path / "snapshots").iterdir())[-3:]
    assert [p.name for p in snapshots] == ["step-00000008", "step-00000010", "step-00000012"]
    from regard.folder import read_tensors

    parts = [read_tensors(p / "weights.safetensors") for p in snapshots]
    for name, tensor in read_folder(tmp_path / "final").tensors().items():
        wanted = torch.stack([part[name].double() for part in parts]).mean(0).float()
        torch.testing.assert_close(tensor, wanted, rtol=1e-6, atol=1e-8)


def test_tensorboard_is_written_where_the_run_is(tmp_path: Path) -> None:
    order = dataclasses.replace(tiny(tmp_path), tensorboard=True)
    stopped(order)
    execute(order)
    assert list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))


def test_the_hard_run_leaves_no_rest(tmp_path: Path) -> None:
    """Nothing half written, no snapshot that nobody speaks of."""
    interrupted(hard(tmp_path), 3, 9)
    assert list(tmp_path.rglob(".*")) == []
