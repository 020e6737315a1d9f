"""Small texts that are whole or not there: written beside their place, synced, and put there at once."""

from __future__ import annotations

from pathlib import Path

from regard.files.storage import DISK, explained


def write_text(path: Path, text: str) -> None:
    """Replace a file: whoever reads it, also after a crash, finds the old text or the new one."""
    aside = path.with_name(f".{path.name}.partial")
    data = text.encode()
    with explained(f"write {path.name}", path.parent, needed=len(data)):
        aside.write_bytes(data)
        DISK.sync(aside)
        aside.replace(path)
