"""A few hundred requests that are wrong in every way; `python -m tests.serve.fuzz N` sends more."""

from __future__ import annotations

import httpx

from tests.serve.fuzz import run_fuzz
from tests.serve.running import Running


def test_no_request_is_answered_by_accident(running: Running, http: httpx.Client) -> None:
    found = run_fuzz(http, 600, seed=7)
    assert found[200] > 30 and found[400] > 100
    assert "Traceback" not in running.log.read_text()
