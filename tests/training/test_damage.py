"""No flipped bit and no lost end of a checkpoint goes unseen, and the run goes on from the one before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.training.damage import damage_often

pytestmark = pytest.mark.numeric

TIMES = int(os.environ.get("REGARD_DAMAGES", "220"))


@pytest.mark.slow
def test_all_damage_is_found(tmp_path: Path) -> None:
    said = damage_often(TIMES, TIMES // 10, tmp_path, seed=1)
    assert said.startswith(f"{TIMES} flips and {TIMES // 10} cuts, all of them found")
    assert "manifest.json" in said
