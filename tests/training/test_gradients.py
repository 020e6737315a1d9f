"""Norms by layer are those of the gradients and of the change of the weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import regard
from regard.families import transformer
from regard.nn.core.coords import Coords
from regard.training.step.gradients import LayerNorms

pytestmark = pytest.mark.numeric


def test_norms_of_one_step() -> None:
    net = transformer.spec(width=8, depth=2, heads=2, hidden=8, vocab=7, dropout=0.0).build(seed=1)
    at, ids = Coords.span(3), torch.tensor([[1, 2, 3]])
    net.logits(net(ids, at, (ids, at))).square().sum().backward()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    norms = LayerNorms(net)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    optimizer.step()
    found = norms.finish()
    assert list(found["gradients"]) == ["embed", *(f"{s}.blocks.{i}" for s in ("encoder", "decoder") for i in range(2))]
    own = {name: p for name, p in net.named_parameters() if name.startswith("encoder.blocks.1.")}
    gradient = sum(float(p.grad.double().square().sum()) for p in own.values() if p.grad is not None) ** 0.5
    size = sum(float(before[name].double().square().sum()) for name in own) ** 0.5
    assert found["gradients"]["encoder.blocks.1"] == pytest.approx(gradient, rel=1e-3)
    assert found["updates"]["encoder.blocks.1"] == pytest.approx(0.5 * gradient / size, rel=1e-3)


def test_a_run_logs_layers_and_maps_at_each_validation_and_reports_them(tmp_path: Path) -> None:
    settings = {
        "train.steps": 4, "train.validate_every": 2, "train.schedule": {"kind": "constant", "lr": 1e-3},
        "train.batch_tokens": 512, "data.generate.count": 200, "data.generate.valid": 6, "model.width": 16, "model.hidden": 16,
        "train.precision": "float32", "train.threads": 1,
    }  # fmt: skip
    regard.train("copy", out=tmp_path / "run", set=settings, quiet=True)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    valid = [event for event in log if event["event"] == "valid"]
    assert len(valid) == 2
    for event in valid:
        assert {"encoder.blocks.0", "decoder.blocks.1"} <= set(event["layers"]["gradients"])
        assert all(value > 0 for value in event["layers"]["updates"].values())
        assert len(event["attention"]) == 2
        for found in event["attention"]:
            assert found["layer"].endswith(".cross")
            assert len(found["percent"]) == len(found["rows"])
            assert all(abs(sum(row) - 100) <= len(row) for row in found["percent"])
    assert [each["source"] for each in valid[0]["attention"]] == [each["source"] for each in valid[1]["attention"]]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Attention during training" in page
    assert "Gradient norm by layer" in page
