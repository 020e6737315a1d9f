"""Calibration as a metric of `eval`, and the study with and without label smoothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import regard
from regard.metrics.calibration import bin_predictions, calibration_error
from regard.studies.calibration_study import run as calibrate
from regard.studies.grid import Grid
from regard.studies.study_options import StudyOptions
from regard.tasks.common.losses import count_losses, observing_predictions
from tests.training.small import COPY, TINY

pytestmark = pytest.mark.numeric
SMALL = {**COPY, **TINY, "train.steps": 4, "train.validate_every": 4, "train.log_every": 2}


def test_both_metrics_are_those_of_the_predictions(tmp_path: Path) -> None:
    """ECE and Brier of `count_losses` equal those computed from the logits at once; eval gives them with intervals."""
    table = tmp_path / "reviews.tsv"
    rows = [f"{'good' if i % 3 else 'bad'} text {i}\t{'yes' if i % 3 else 'no'}\n" for i in range(40)]
    table.write_text("".join(rows))
    small = {
        "model.width": 16,
        "model.depth": 1,
        "model.heads": 2,
        "model.hidden": 16,
        "train.steps": 2,
        "train.threads": 1,
    }
    small |= {"data.tokenizer": {"kind": "chars"}, "train.precision": "float32", "train.schedule": {"kind": "constant"}}
    model = regard.train("classify", [table], set=small, out=tmp_path / "run", quiet=True)
    examples = model.task.encode(model.task.read_test(model.task.settings, [str(table)]))
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    with observing_predictions(lambda row, logits, targets: seen.append((logits, targets))):
        counts = count_losses(model.task, model.net, examples, metrics=["ece", "brier"])
    p = torch.cat([logits for logits, _ in seen]).double().softmax(-1)
    targets = torch.cat([targets for _, targets in seen])
    wanted = bin_predictions(p.max(-1).values.numpy(), (p.argmax(-1) == targets).numpy())
    assert len(p) == 40
    assert counts.scores()["ece"] == pytest.approx(calibration_error(wanted))
    brier = (p - torch.nn.functional.one_hot(targets, 2)).square().sum(-1).mean()
    assert counts.scores()["brier"] == pytest.approx(float(brier))
    assert "ece" not in count_losses(model.task, model.net, examples).names
    found = regard.evaluate(model, table, metrics=["ece", "brier"], samples=20)
    assert found.models[0].scores["ece"].score == pytest.approx(counts.scores()["ece"])
    assert found.models[0].scores["ece"].low <= found.models[0].scores["ece"].high


def test_the_study_from_end_to_end(tmp_path: Path) -> None:
    found = calibrate(Grid(tmp_path), ["copy"], StudyOptions(set=SMALL, seeds=2))
    plain = found.plain()
    assert plain["metric"] == "ece"
    assert [each.name for each in found.compared.samples] == ["smoothing 0", "smoothing 0.1"]
    probe = found.probes("smoothing 0")[0]
    assert 0.25 <= probe["temperature"] <= 4
    assert sum(count for *_, count in probe["before"]["reliability"]) == sum(
        count for *_, count in probe["after"]["reliability"]
    )
    assert "temperature" in found.render()
    assert "ideal" in found.page()
    assert found.draw(tmp_path)
