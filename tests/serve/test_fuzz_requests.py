"""Requests that are wrong in every way; `python -m tests.serve.fuzz 20000` takes half a minute of two cores."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx
import pytest

from tests.serve.running import Running

pytest.importorskip("schemathesis", reason="needs schemathesis; make test installs it")

from tests.serve.fuzz import fuzz, make_request, run_fuzz_http

COUNT = 3000


def test_no_request_is_answered_by_accident(models: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    found = asyncio.run(fuzz(COUNT, models, lambda text: None))
    assert found.total() == COUNT and found[200] > COUNT // 50 and found[400] > COUNT // 5
    assert "Traceback" not in capfd.readouterr().err


def test_nor_through_http(running: Running, http: httpx.Client) -> None:
    draw = random.Random(7)
    found = run_fuzz_http(http, (make_request(draw) for _ in range(150)))
    assert found[200] > 5 and found[400] > 30
    assert "Traceback" not in running.log.read_text()
