"""NaN or infinity anywhere in a run, at any step, never reaches the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from regard.training import trainer
from regard.training.run import artifacts
from tests.training.poison import poison_often

pytestmark = pytest.mark.numeric

DOSES = int(os.environ.get("REGARD_DOSES", "40"))


@pytest.mark.slow
def test_nothing_poisonous_is_ever_on_disk(tmp_path: Path) -> None:
    assert "doses, none on disk" in poison_often(DOSES, tmp_path)


def test_the_poisoner_finds_what_nobody_looks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: without the last look before writing, some file soon holds a number that is none."""

    def careless(*_: Any) -> None:
        return None

    monkeypatch.setattr(trainer, "check_finite", careless)
    monkeypatch.setattr(artifacts, "check_finite", careless)
    with pytest.raises(AssertionError, match="holds a bad"):
        poison_often(60, tmp_path)
