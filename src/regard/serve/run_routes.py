"""Runs of a folder, and how they go.

Read-only. A run is named as its folder; only names that are in the listing are looked up. What is in a folder may be anything:
regular files alone are opened, the end of a log is read, and what is wrong with one run is said of it, beside the others.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from pathlib import Path

from starlette.responses import HTMLResponse, Response

from regard.errors import make_printable
from regard.files.user_file import open_regular
from regard.serialization.model_folder import LOG, REPORT, identify_folder
from regard.serve.api_error import ApiError
from regard.serve.call import Call, Route
from regard.spec import Plain
from regard.training.run.log import parse_log

MAX_SUMMARY, MAX_LOG = 1 << 20, 16 << 20
"""Bytes at the end of a log that are read: for its last figures, and for its events."""
MAX_EVENTS = 20_000
"""Events in an answer, the last ones."""
MAX_REPORT = 64 << 20
"""Bytes of a report."""
ALIVE_SECONDS = 120.0
"""A run whose log has not grown for so long is not shown as running."""
STEP = re.compile(r"-?[0-9]{1,18}")
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"


def find_runs(folder: str | None) -> dict[str, Path]:
    """The runs of a folder by name. Links are not followed."""
    if folder is None:
        raise ApiError(404, "this server shows no runs; start it with --runs FOLDER")
    try:
        found = sorted(Path(folder).iterdir())
    except OSError as error:
        raise ApiError(404, f"the folder of runs cannot be read: {error.strerror}") from None
    return {path.name: path for path in found if _is_run(path)}


def _is_run(path: Path) -> bool:
    try:
        return not path.is_symlink() and identify_folder(path) == "run"
    except OSError:  # it may not be entered
        return False


def summarize_run(name: str, path: Path) -> Plain:
    """A run in a few figures: its last step, loss and scores; or its `fault`."""
    try:
        events, changed = read_events(path, MAX_SUMMARY)
        steps = [event for event in events if event["event"] == "train"]
        validations = [event for event in events if event["event"] == "valid"]
        done = any(event["event"] == "done" for event in events)
        summary = {
            "name": name,
            "step": max((event["step"] for event in events), default=0),
            "train": steps[-1] if steps else None,
            "valid": validations[-1] if validations else None,
            "done": done,
            "running": not done and time.time() - changed < ALIVE_SECONDS,
            "changed": changed,
            "report": (path / REPORT).is_file(),
            "fault": None,
        }
        write_json(summary)
    except (OSError, ValueError, RecursionError) as error:
        return {
            "name": name, "step": 0, "train": None, "valid": None, "done": False, "running": False, "changed": 0.0,
            "report": False, "fault": describe_fault(error),
        }  # fmt: skip
    return summary


def describe_fault(error: Exception) -> str:
    """Describe the fault of a run."""
    if isinstance(error, OSError):
        return make_printable(f"{LOG} cannot be read: {error.strerror}")
    return f"{LOG} has an event that is no JSON: NaN, a number without a limit, or a thousand nested lists"


def read_events(path: Path, most: int) -> tuple[list[Plain], float]:
    """The events in the last bytes of a run's log, and when it was written to; none if there is no log yet."""
    log = path / LOG
    if not os.path.lexists(log):
        return [], 0.0
    with open_regular(log, follow=False) as file:
        status = os.fstat(file.fileno())
        file.seek(max(status.st_size - most, 0))
        return parse_log(file.read(most)), status.st_mtime


def write_json(value: object) -> bytes:
    """A value as JSON; a ValueError or RecursionError if it is none."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


async def list_runs(call: Call, body: None) -> object:
    def read() -> bytes:
        found = find_runs(call.server.settings.runs)
        return b"[" + b",".join(write_json(summarize_run(name, path)) for name, path in found.items()) + b"]"

    return Response(await asyncio.to_thread(read), media_type="application/json")


async def show_run(call: Call, body: None) -> object:
    """The events of a run's log, the last ones of very many; with `?after=N`, those of later steps."""
    after = call.request.query_params.get("after", "-1")
    if not STEP.fullmatch(after):
        raise ApiError(400, "after should be the number of a step", param="after")

    def read() -> bytes:
        name, path = _find_run(call)
        summary = summarize_run(name, path)
        if summary["fault"] is not None:
            return write_json(summary | {"events": []})
        try:
            events = [event for event in read_events(path, MAX_LOG)[0] if event["step"] > int(after)]
            return write_json(summary | {"events": events[-MAX_EVENTS:]})
        except (OSError, ValueError, RecursionError) as error:
            return write_json(summary | {"events": [], "fault": describe_fault(error)})

    return Response(await asyncio.to_thread(read), media_type="application/json")


async def show_report(call: Call, body: None) -> object:
    def read() -> str:
        _, path = _find_run(call)
        if not os.path.lexists(path / REPORT):
            raise ApiError(404, "this run has no report yet")
        try:
            with open_regular(path / REPORT, follow=False) as file:
                data = file.read(MAX_REPORT + 1)
        except OSError as error:
            raise ApiError(404, f"the report cannot be read: {error.strerror}") from None
        if len(data) > MAX_REPORT:
            raise ApiError(404, f"the report has more than {MAX_REPORT:,} bytes; open its file")
        return data.decode("utf-8", "replace")

    return HTMLResponse(await asyncio.to_thread(read), headers={"Content-Security-Policy": REPORT_POLICY})


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
