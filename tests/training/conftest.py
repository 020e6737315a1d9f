"""What tests of runs share: a small corpus, and a run that is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.training.train import run_training
from tests.training.small import ROWS, tiny


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.tsv"
    path.write_text("".join(ROWS))
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "copy"
    run_training(tiny(folder))
    return folder
