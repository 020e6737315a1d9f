"""Make the pictures of the README from a finished demo: `python docs/pictures.py runs/dates`.

The terminal is the output of `examples/dates.py` as an SVG; the report is a screenshot, for which chromium is needed.
"""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from rich import console

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
COLUMNS = 86


def terminal(run: str) -> None:
    """What the demo prints after training."""
    record = console.Console(record=True, width=COLUMNS, file=sys.stderr, markup=False, highlight=False)
    with mock.patch.object(console, "Console", lambda **_: record), mock.patch.object(sys, "argv", ["dates.py", run]):
        runpy.run_path(str(ROOT / "examples" / "dates.py"), run_name="__main__")
    svg = record.export_svg(title="make demo", font_aspect_ratio=0.61)
    fonts = re.compile(r"@font-face\s*{[^}]*}\s*")  # which would be fetched from elsewhere
    (IMAGES / "terminal.svg").write_text(fonts.sub("", svg), encoding="utf-8")


def report(run: str) -> None:
    """The top of the run's report."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("the picture of the report needs chromium")
    with tempfile.TemporaryDirectory() as profile:
        command = [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
            "--force-device-scale-factor=1", "--window-size=1000,900", f"--screenshot={IMAGES / 'report.png'}",
            (Path(run) / "report.html").resolve().as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    terminal(sys.argv[1])
    report(sys.argv[1])
