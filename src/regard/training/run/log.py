"""The log of a run: JSON lines, and TensorBoard."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import SpecError, name_extra
from regard.files.storage import DISK, explain_errors, write_file
from regard.spec import Plain

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class Log:
    """Appends events to `log.jsonl`. On resuming, events of steps that are repeated are dropped first."""

    def __init__(self, path: Path, *, tensorboard: Path | None = None) -> None:
        self.path, self._folder = path, tensorboard
        self._writer = None if tensorboard is None else _summary_writer()
        self._board: SummaryWriter | None = None
        self._purge: int | None = None

    def write(self, event: str, step: int, **values: object) -> None:
        """Append an event."""
        line = json.dumps(
            {"event": event, "step": step, **{key: _finite(value) for key, value in values.items()}},
            ensure_ascii=False,
            allow_nan=False,
        )
        data = f"{line}\n".encode(errors="backslashreplace")  # half a character becomes its JSON escape
        with explain_errors("write the log", self.path.parent, needed=len(data)), self.path.open("ab") as out:
            out.write(data)
        if self._writer is not None:
            self._board = self._board or self._writer(str(self._folder), purge_step=self._purge)
            for name, value in _numbers(values):
                self._board.add_scalar(f"{event}/{name}", value, step)

    def rewind(self, step: int) -> None:
        """Drop everything after `step`, and a line that a crash left incomplete."""
        self._keep(event for event in read_log(self.path) if event["step"] <= step)
        self.close()
        self._purge = step + 1

    def drop(self, kind: str, step: int) -> None:
        """Drop events of this kind and step."""
        self._keep(event for event in read_log(self.path) if (event["event"], event["step"]) != (kind, step))

    def _keep(self, events: Iterable[Plain]) -> None:
        write_file(self.path, "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events))

    def digest(self) -> Plain:
        """The size and SHA-256 of the log as it is now."""
        data = self.path.read_bytes() if self.path.exists() else b""
        return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def has_changed(self, digest: Plain) -> bool:
        """True if the log does not begin with what it was when this `digest` was taken."""
        data = self.path.read_bytes() if self.path.exists() else b""
        return hashlib.sha256(data[: digest["size"]]).hexdigest() != str(digest["sha256"])

    def sync(self) -> None:
        """Return when everything written would survive a power cut."""
        if self.path.exists():
            with explain_errors("write the log", self.path.parent, needed=self.path.stat().st_size):
                DISK.sync(self.path)

    def close(self) -> None:
        """Close TensorBoard's file, if there is one."""
        if self._board is not None:
            self._board.close()
            self._board = None


def read_log(path: Path) -> list[Plain]:
    """All complete events of a log, oldest first."""
    return parse_log(path.read_bytes()) if path.exists() else []


def parse_log(data: bytes) -> list[Plain]:
    """All complete events in the bytes of a log, or in some of its last ones."""
    out = []
    for line in data.decode("utf-8", errors="replace").split("\n"):
        try:
            event = json.loads(line)
            if "\\u" in line:  # may stand for half a character, which no file can hold
                event = json.loads(json.dumps(event, ensure_ascii=False).encode(errors="replace"))
        except (ValueError, RecursionError):
            continue  # the last line of a run that was killed, or a damaged one
        if isinstance(event, dict) and isinstance(event.get("event"), str) and isinstance(event.get("step"), int):
            out.append(event)
    return out


def _summary_writer() -> type[SummaryWriter]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SpecError(f"TensorBoard is not installed; {name_extra('tensorboard')}") from None
    return SummaryWriter


def _finite(value: object) -> object:
    """Return the value with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, float]]:
    out: list[tuple[str, float]] = []
    for key, value in values.items():
        if isinstance(value, (int, float)):
            out.append((prefix + key, float(value)))
        elif isinstance(value, Mapping):
            out += _numbers(value, f"{prefix}{key}/")
    return out
