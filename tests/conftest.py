"""What every test gets: a fixed number of threads, a fixed seed, and the shared data where it is there.

Options that `python -m tests.machines` uses to stand for other machines:
--threads N       threads of torch (one otherwise)
--precision KIND  what `train.precision: auto` stands for, whatever the processor
--shuffle SEED    modules in random order, and the tests within each
"""

from __future__ import annotations

import os
import random
import signal
import sys
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when it is imported: tests without torch stay without it

settings.register_profile("regard", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("regard")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("machines", "stand for another machine")
    group.addoption("--threads", type=int, default=1, help="threads of torch")
    group.addoption("--precision", choices=("float32", "bfloat16"), help="what train.precision auto stands for")
    group.addoption("--shuffle", type=int, metavar="SEED", help="run modules, and tests within them, in random order")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: programs the tests start would
        signal.signal(signal.SIGINT, signal.default_int_handler)  # inherit it, and wait for ever to be interrupted
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # started by nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if forced := config.getoption("--precision"):
        import regard.machine  # before anything imports the function from it

        regard.machine.precision = lambda asked, device: forced if asked == "auto" else asked


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (seed := config.getoption("--shuffle")) is None:
        return
    rng = random.Random(seed)
    modules = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    rng.shuffle(modules)
    for tests in modules:
        rng.shuffle(tests)
    items[:] = [item for tests in modules for item in tests]


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(request.config.getoption("--threads"))
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data that lies beside the repository."""
    if not DATA.is_dir():
        pytest.skip("needs the shared data: a folder shared/data beside the repository")
    return DATA
