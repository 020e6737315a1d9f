"""Runs of a folder, and how they go.

Read-only. A run is named as its folder; only names that are in the listing are looked up.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

from starlette.responses import HTMLResponse

from regard.serve.api_error import ApiError
from regard.serve.call import Call, Route
from regard.spec import Plain
from regard.training.run.log import read_log

RECIPE, LOG, REPORT = "recipe.yaml", "log.jsonl", "report.html"
MAX_LOG = 64 << 20
"""Bytes of a log that is read."""
ALIVE_SECONDS = 120.0
"""A run whose log has not grown for so long is not shown as running."""
STEP = re.compile(r"-?[0-9]{1,18}")
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"


def find_runs(folder: str | None) -> dict[str, Path]:
    """The runs of a folder by name. Links are not followed."""
    if folder is None:
        raise ApiError(404, "this server shows no runs; start it with --runs FOLDER")
    found = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
    return {path.name: path for path in found if not path.is_symlink() and (path / RECIPE).is_file()}


def summarize_run(name: str, path: Path) -> Plain:
    """A run in a few figures: its last step, loss and scores."""
    events = read_events(path)
    steps = [event for event in events if event["event"] == "train"]
    validations = [event for event in events if event["event"] == "valid"]
    changed = (path / LOG).stat().st_mtime if (path / LOG).exists() else 0.0
    done = any(event["event"] == "done" for event in events)
    return {
        "name": name,
        "step": max((event["step"] for event in events), default=0),
        "train": steps[-1] if steps else None,
        "valid": validations[-1] if validations else None,
        "done": done,
        "running": not done and time.time() - changed < ALIVE_SECONDS,
        "changed": changed,
        "report": (path / REPORT).is_file(),
    }


def read_events(path: Path) -> list[Plain]:
    log = path / LOG
    if log.is_symlink() or (log.exists() and log.stat().st_size > MAX_LOG):
        return []
    return read_log(log)


async def list_runs(call: Call, body: None) -> object:
    def read() -> list[Plain]:
        return [summarize_run(name, path) for name, path in find_runs(call.server.settings.runs).items()]

    return await asyncio.to_thread(read)


async def show_run(call: Call, body: None) -> object:
    """All events of a run's log; with `?after=N`, those of later steps."""
    after = call.request.query_params.get("after", "-1")
    if not STEP.fullmatch(after):
        raise ApiError(400, "after should be the number of a step", param="after")
    name, path = _find_run(call)

    def read() -> Plain:
        events = [event for event in read_events(path) if event["step"] > int(after)]
        return summarize_run(name, path) | {"events": json.loads(json.dumps(events))}

    return await asyncio.to_thread(read)


async def show_report(call: Call, body: None) -> object:
    _, path = _find_run(call)
    report = path / REPORT
    if report.is_symlink() or not report.is_file():
        raise ApiError(404, "this run has no report yet")
    text = await asyncio.to_thread(report.read_text, "utf-8", "replace")
    return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})


def _find_run(call: Call) -> tuple[str, Path]:
    runs, name = find_runs(call.server.settings.runs), call.request.path_params["name"]
    if name not in runs:
        raise ApiError(404, f"there is no run {name!r}")
    return name, runs[name]


ROUTES = [
    Route("GET", "/runs", list_runs),
    Route("GET", "/runs/{name}", show_run),
    Route("GET", "/runs/{name}/report", show_report),
]
