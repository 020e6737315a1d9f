"""One server for all tests that do not break it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serve.running import Running, make_models, start_server


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def running(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    options = ["--runs", str(next(iter(models.values())).parent), "--limit", "seconds=30", "--limit", "items=16"]
    with start_server(models, folder, options) as server:
        yield server


@pytest.fixture
def http(running: Running) -> Iterator[httpx.Client]:
    running.wait_ready()
    with running.client() as client:
        yield client
