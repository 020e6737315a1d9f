"""What a run prints: samples, how outputs were decoded, what to do next; and what a refused run leaves."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from regard.errors import SpecError
from regard.serialization.model_folder import identify_folder
from regard.training.step.validate import MAX_SHOWN, render_sample, render_scores, shorten
from regard.training.train import run_training
from tests.training.small import events, tiny


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run with a beam, and what it said."""
    folder = tmp_path_factory.mktemp("runs") / "a run"
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("regard.training.run.progress_bar.Progress.say", lambda _, text: said.append(text))
        run_training(dataclasses.replace(tiny(folder, decode__beam=3), quiet=False))
    return folder, "\n".join(said)


def test_greedy_while_training_and_a_beam_at_the_end(printed: tuple[Path, str]) -> None:
    folder, said = printed
    lines = said.splitlines()
    assert all("  (greedy)" in line for line in lines if line.startswith("step "))
    (done,) = (line for line in lines if line.startswith("done: "))
    assert "  (beam 3)  in " in done
    assert {event["decoding"] for event in events(folder, "valid")} == {"greedy"}
    assert events(folder, "done")[0]["decoding"] == "beam 3"
    report = (folder / "report.html").read_text()
    assert "beam 3" in report and "greedy" in report


def test_scores_without_outputs_say_nothing_of_decoding(tmp_path: Path) -> None:
    run_training(tiny(tmp_path, train__steps=2, train__schedule="constant", data__metrics=["loss"]))
    assert all("decoding" not in event and "samples" not in event for event in events(tmp_path))


def test_samples_at_each_validation(printed: tuple[Path, str]) -> None:
    folder, said = printed
    valid = events(folder, "valid")
    assert all(len(event["samples"]) == 3 for event in valid)
    sources = [[sample["source"] for sample in event["samples"]] for event in valid]
    assert sources[0] == sources[-1], "always the same ones"
    assert said.count(" → ") == 3 * len(valid)
    assert "Samples" in (folder / "report.html").read_text()


def test_a_sample_is_one_line_of_bounded_length() -> None:
    assert shorten("a\n b\t c") == "a b c"
    assert len(shorten("x" * 1000)) == MAX_SHOWN
    wrong = {"source": "abc", "output": "ab", "reference": "cba"}
    assert render_sample(wrong) == "  abc → ab  (reference: cba)"
    assert render_sample(wrong | {"output": "cba"}) == "  abc → cba  ✓"
    long = dict.fromkeys(("source", "output", "reference"), "y\n" * 10_000)
    assert len(render_sample(long)) < 4 * MAX_SHOWN and "\n" not in render_sample(long)


def test_scores_on_one_line() -> None:
    assert render_scores({"loss": 2.1, "bleu": 6.0634}, "beam 5") == "loss 2.1  bleu 6.063  (beam 5)"
    assert render_scores({"loss": 2.1}) == "loss 2.1"


def test_what_to_do_next(printed: tuple[Path, str]) -> None:
    folder, said = printed
    assert said.splitlines()[-3:] == [
        f"use it:    regard run '{folder}' \"INPUT\"",
        f"score it:  regard eval '{folder}' DATA",
        f"see it:    open '{folder / 'report.html'}' in a browser",
    ]


@pytest.mark.parametrize(
    "wrong", [{"model__heads": 3}, {"train__schedule": {"kind": "cosine", "warmup": 500}}], ids=["model", "schedule"]
)
def test_a_refused_run_leaves_no_folder(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        run_training(tiny(tmp_path / "runs" / "run", **wrong))
    assert not (tmp_path / "runs" / "run").exists()


def test_a_refused_run_leaves_what_was_there(tmp_path: Path) -> None:
    run_training(tiny(tmp_path / "run", train__steps=4))
    before = {path.name for path in (tmp_path / "run").iterdir()}
    with pytest.raises(SpecError):
        run_training(dataclasses.replace(tiny(tmp_path / "run", model__heads=3), fresh=True))
    assert {path.name for path in (tmp_path / "run").iterdir()} == before
    assert identify_folder(tmp_path / "run") == "run"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(SpecError):
        run_training(tiny(tmp_path / "mine", model__heads=3))
    assert [path.name for path in (tmp_path / "mine").iterdir() if path.name != "run.lock"] == ["notes.txt"]
