"""Folders of runs that may hold anything: each run for itself."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from regard.serve.app import build_app
from regard.serve.run_routes import MAX_EVENTS, MAX_REPORT
from regard.serve.server_settings import ServerSettings
from tests.serve.in_process import FuzzRequest, LocalServer

GOOD = b'{"event": "train", "step": 1, "loss": 2.5}\n'


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "good").mkdir()
    (tmp_path / "good/recipe.yaml").write_text("task: lm\n")
    (tmp_path / "good/log.jsonl").write_bytes(GOOD)
    yield tmp_path


def ask(runs: Path, path: str, query: bytes = b"") -> tuple[int, bytes]:
    server = LocalServer(build_app(ServerSettings({}, runs=str(runs))))

    async def limited() -> tuple[int, bytes]:
        return await asyncio.wait_for(server.send(FuzzRequest("GET", path, query=query)), 60)

    return asyncio.run(limited())


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "nan": (
        lambda log: log.write_bytes(GOOD + b'{"event": "valid", "step": 2, "loss": NaN}\n'),
        "an event that is no JSON",
    ),
    "huge": (
        lambda log: log.write_bytes(b'{"event": "train", "step": 2, "loss": 1e999}\n'),
        "an event that is no JSON",
    ),
    "folder": (Path.mkdir, "log.jsonl cannot be read: Not a regular file"),
    "pipe": (os.mkfifo, "log.jsonl cannot be read: Not a regular file"),
    "socket": (make_socket, "log.jsonl cannot be read: Not a regular file"),
    "link": (lambda log: log.symlink_to("/dev/zero"), "log.jsonl cannot be read: "),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_log_is_said_of_its_run_and_the_others_are_shown(runs: Path, name: str) -> None:
    (runs / "bad").mkdir()
    (runs / "bad/recipe.yaml").write_text("task: lm\n")
    make, words = BAD[name]
    make(runs / "bad/log.jsonl")
    status, body = ask(runs, "/runs")
    bad, good = json.loads(body)
    assert status == 200 and good["name"] == "good" and good["train"]["loss"] == 2.5 and good["fault"] is None
    assert bad["name"] == "bad" and words in bad["fault"] and bad["train"] is None
    status, body = ask(runs, "/runs/bad")
    assert status == 200 and words in json.loads(body)["fault"] and json.loads(body)["events"] == []


def test_deep_lists_in_a_log_break_nothing(runs: Path) -> None:
    (runs / "deep").mkdir()
    (runs / "deep/recipe.yaml").write_text("")
    for depth in (900, 960, 990, 5000):
        nested = b"[" * depth + b"]" * depth
        (runs / "deep/log.jsonl").write_bytes(b'{"event": "train", "step": 2, "loss": ' + nested + b"}\n")
        for path in ("/runs", "/runs/deep"):
            status, body = ask(runs, path)
            assert status == 200 and (b'"deep"' in body)


def test_of_very_many_events_the_last_are_shown(runs: Path) -> None:
    with (runs / "good/log.jsonl").open("wb") as out:
        out.writelines(b'{"event": "train", "step": %d}\n' % step for step in range(25_000))
    status, body = ask(runs, "/runs/good")
    events = json.loads(body)["events"]
    assert status == 200 and len(events) == MAX_EVENTS and events[-1]["step"] == 24_999
    assert json.loads(ask(runs, "/runs")[1])[0]["step"] == 24_999
    assert len(json.loads(ask(runs, "/runs/good", b"after=24997")[1])["events"]) == 2


def test_a_report_that_is_too_large_or_no_file_is_refused(runs: Path) -> None:
    report = runs / "good/report.html"
    with report.open("wb") as out:
        out.truncate(3 << 30)
    assert ask(runs, "/runs/good/report") == (
        404, f'{{"error":"the report has more than {MAX_REPORT:,} bytes; open its file"}}'.encode()
    )  # fmt: skip
    report.unlink()
    assert ask(runs, "/runs/good/report")[1] == b'{"error":"this run has no report yet"}'
    os.mkfifo(report)
    assert ask(runs, "/runs/good/report") == (404, b'{"error":"the report cannot be read: Not a regular file"}')


def test_a_folder_of_runs_that_is_gone_is_told(tmp_path: Path) -> None:
    status, body = ask(tmp_path / "nowhere", "/runs")
    assert (status, body) == (404, b'{"error":"the folder of runs cannot be read: No such file or directory"}')
