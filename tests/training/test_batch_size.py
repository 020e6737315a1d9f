"""The batch that fits into memory: bytes counted in closed form, and a run that asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.training import prepare
from regard.training.step.batch_size import LEAST, MOST, fit_batch_tokens
from regard.training.train import run_training
from tests.training.small import events, interrupted, tiny, traces


class Layer(nn.Module):
    """Keeps 64 bytes a token: its input for the weight's gradient, and its output for that of the square."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(8, 8, bias=False)

    def loss(self, size: int) -> Tensor:
        return self.map(torch.zeros(size, 8)).square().sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize("tokens", [512, 1024, 4096])
def test_in_closed_form(tokens: int) -> None:
    layer = Layer()
    free = int((tokens * 64 * 1.5 + 4 * 256) / 0.6) + 64
    assert fit_batch_tokens(layer, layer.loss, free, corpus=1 << 30) == tokens
    assert fit_batch_tokens(layer, layer.loss, free - 512, corpus=1 << 30) == tokens // 2


def test_its_bounds() -> None:
    layer = Layer()
    assert fit_batch_tokens(layer, layer.loss, 1 << 50, corpus=1 << 40) == MOST
    assert fit_batch_tokens(layer, layer.loss, 1, corpus=1 << 40) == LEAST
    assert fit_batch_tokens(layer, layer.loss, 1 << 50, corpus=50 * 2048) == 2048


def test_a_run_finds_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it goes on in less memory, and with the same numbers as if it had been written down."""
    whole = run_training(tiny(tmp_path / "whole", train__batch_tokens="auto", model__dropout=0.2))
    plain = run_training(tiny(tmp_path / "plain", train__batch_tokens=256, model__dropout=0.2))
    assert (whole / "model.safetensors").read_bytes() == (plain / "model.safetensors").read_bytes()
    order = tiny(tmp_path / "stopped", train__batch_tokens="auto", model__dropout=0.2)
    interrupted(order, 3)
    monkeypatch.setattr(prepare, "free_memory", lambda: 1)
    assert traces(tmp_path / "stopped") == traces(tmp_path / "whole")
    assert events(tmp_path / "whole", "train")
