"""A run that was stopped and resumed is the run that was never stopped: every loss, weight and random bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.training.run.checkpoint import Checkpoints
from regard.training.train import run_training
from tests.training.small import events, hard, interrupted, stopping_after, tiny, traces

pytestmark = pytest.mark.numeric

PAIRS = [("ein haus", "a house"), ("das haus", "the house"), ("ein baum", "a tree"), ("der baum", "the tree")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run with everything that moves, uninterrupted."""
    folder = tmp_path_factory.mktemp("whole")
    run_training(hard(folder))
    return traces(folder)


def boundary(log: list[dict[str, Any]]) -> int:
    """The last step of the first epoch."""
    return max(event["step"] for event in log if event["event"] == "train" and event["epoch"] == 0)


def test_the_run_has_what_the_stops_are_about(whole: dict[str, Any]) -> None:
    train = [event for event in whole["log"] if event["event"] == "train"]
    assert [event["step"] for event in train] == list(range(1, 13))
    assert train[-1]["epoch"] >= 2
    assert boundary(whole["log"]) % 4 and boundary(whole["log"]) % 5, "the epoch's end is no step that is saved anyway"
    assert {"weights", "optimizer", "average", "random"} == {name.split("/")[0] for name in whole["bits"]}
    assert len(whole["facts"]["snapshots"]) == 2


@pytest.mark.parametrize(
    "stops",
    [(1,), (4,), (5,), (11,), (12,), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)],
    ids=["first", "validation", "save", "before last", "last", "every step"],
)
def test_stopped_and_resumed_is_never_stopped(whole: dict[str, Any], tmp_path: Path, stops: tuple[int, ...]) -> None:
    interrupted(hard(tmp_path), *stops)
    assert traces(tmp_path) == whole


def test_stopped_at_the_end_of_an_epoch(whole: dict[str, Any], tmp_path: Path) -> None:
    end = boundary(whole["log"])
    interrupted(hard(tmp_path), end, end + 1)
    assert traces(tmp_path) == whole


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout": {"model__dropout": 0.3},
    "accumulation": {"train__accumulate": 3, "train__batch_tokens": 32},
    "a part of a group at the end of an epoch": {"train__accumulate": 2, "train__batch_tokens": 40},
    "rows on two threads": {
        "train__threads": 2,
        "train__batch_tokens": 1024,
        "model__dropout": 0.3,
        "train__accumulate": 2,
    },
    "muon": {"train__optimizer": {"kind": "muon"}, "model__dropout": 0.1},
    "bf16": {"train__precision": "bfloat16", "model__dropout": 0.1},
    "ema": {"train__ema": 0.5},
    "last": {"train__average": {"which": "last", "count": 3}, "train__validate_every": 2},
    "best": {"train__average": {"which": "best", "count": 2}, "train__validate_every": 2, "train__ema": 0.9},
    "adam": {"train__optimizer": "adam", "train__schedule": {"kind": "paper", "warmup": 5}},
    "no clip": {"train__clip_norm": None, "train__log_every": 5},
    "epochs": {"train__steps": None, "train__epochs": 3},
    "subword sampling, word dropout": {
        "data__tokenizer": {"kind": "bpe", "vocab": 60},
        "data__subword_sampling": 0.3,
        "data__word_dropout": 0.2,
    },
    "patience": {"train__patience": 1, "train__validate_every": 1, "train__schedule__lr": 1e-9},
}


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
def test_whatever_the_settings(tmp_path: Path, changes: dict[str, Any]) -> None:
    run_training(tiny(tmp_path / "whole", **changes))
    stops = (2, 3) if "train__patience" not in changes else (1,)
    interrupted(tiny(tmp_path / "parts", **changes), *stops)
    assert traces(tmp_path / "parts") == traces(tmp_path / "whole")


def test_weighted_corpora(tmp_path: Path) -> None:
    """Groups take turns by their weight, and a resumed run goes on in the same turn."""
    recipe = {"task": "translate", "data": {"train": [], "metrics": ["chrf", "exact"], "tokenizer": "chars"}}
    for lang, weight, scale in (("en", 3.0, 1), ("de", 1.0, 2)):
        file = tmp_path / f"{lang}.tsv"
        rows = [(s, t) if lang == "en" else (t, s) for s, t in PAIRS] * scale
        file.write_text("".join(f"{s} {i}\t{t} {i}\n" for i, (s, t) in enumerate(rows * 3)))
        recipe["data"]["train"].append({"paths": [str(file)], "target_lang": lang, "weight": weight})  # type: ignore[index]
    run_training(tiny(tmp_path / "whole", recipe, model__dropout=0.2))
    interrupted(tiny(tmp_path / "parts", recipe, model__dropout=0.2), 3, 7)
    assert traces(tmp_path / "parts") == traces(tmp_path / "whole")
    assert {e["event"] for e in events(tmp_path / "whole")} == {"start", "train", "valid", "done"}


def test_resumes_from_an_older_checkpoint_when_the_newest_is_damaged(whole: dict[str, Any], tmp_path: Path) -> None:
    """Also the snapshots that the older one speaks of are still there."""
    order = hard(tmp_path)
    with stopping_after(11), pytest.raises(Exception, match="stopped at step 11"):
        run_training(order)
    assert Checkpoints(tmp_path / "checkpoints").steps() == [11, 10]
    weights = tmp_path / "checkpoints" / "step-00000011" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    run_training(order)
    assert (tmp_path / "checkpoints" / "step-00000011.corrupt").exists()
    assert traces(tmp_path) == whole


def test_a_run_that_died_before_its_first_checkpoint_begins_again(whole: dict[str, Any], tmp_path: Path) -> None:
    order = hard(tmp_path)

    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.training.trainer.Trainer.save", crash)
        with pytest.raises(Crash):
            run_training(order)
    assert events(tmp_path, "train"), "it had logged something"
    run_training(order)
    assert traces(tmp_path) == whole
