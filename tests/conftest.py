"""What every test gets: one thread, a fixed seed, and the shared data where it is there."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when it is imported: tests without torch stay without it

settings.register_profile("regard", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("regard")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data that lies beside the repository."""
    if not DATA.is_dir():
        pytest.skip("needs the shared data: a folder shared/data beside the repository")
    return DATA
