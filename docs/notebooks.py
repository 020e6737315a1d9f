"""Draw the figures of the lessons and write the lessons as notebooks: `python docs/notebooks.py [LESSON …]`.

A lesson is a Markdown page in `docs/lessons`. Its Python blocks run one after another; each `plt.show()` is a figure,
`images/LESSON-1.svg` and so on. A notebook has the same text and code, without the figures, which it draws itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

LESSONS = Path(__file__).resolve().parent / "lessons"
IMAGES, NOTEBOOKS = LESSONS / "images", LESSONS / "notebooks"
CODE = re.compile(r"^```python\n(.*?)^```$\n?", re.S | re.M)
PICTURE = re.compile(r"^!\[([^\]]+)\]\(images/([\w.-]+)\)\n?", re.M)
LINK = re.compile(r"\]\((\.\./)?([\w-]+)\.md(#[\w-]+)?\)")
STYLE = {
    "svg.hashsalt": "lessons", "svg.fonttype": "path", "font.size": 10,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11, "legend.frameon": False,
    "axes.prop_cycle": matplotlib.cycler(color=["#2563c9", "#d9660b", "#1f8a5b", "#8a4fc4", "#b8336a", "#6b7280"]),
}  # fmt: skip


def pages() -> list[Path]:
    """All lessons."""
    return [path for path in sorted(LESSONS.glob("*.md")) if path.stem != "index"]


def cells(page: Path) -> list[tuple[str, str]]:
    """The text and code of a lesson, in order: ("markdown" or "code", source)."""
    out, end, text = [], 0, page.read_text(encoding="utf-8")
    for match in CODE.finditer(text):
        out += [("markdown", text[end : match.start()]), ("code", match[1])]
        end = match.end()
    out.append(("markdown", text[end:]))
    plain = [(kind, PICTURE.sub("", source) if kind == "markdown" else source) for kind, source in out]
    plain = [(kind, LINK.sub(_link, source) if kind == "markdown" else source) for kind, source in plain]
    return [(kind, source.strip("\n")) for kind, source in plain if source.strip()]


def render_notebook(page: Path) -> str:
    """The lesson as a notebook, without outputs."""
    body = {
        "cells": [
            {"id": f"{page.stem}-{i}", "cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}
            | ({"execution_count": None, "outputs": []} if kind == "code" else {})
            for i, (kind, source) in enumerate(cells(page))
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


@contextlib.contextmanager
def drawing(stem: str, folder: Path) -> Iterator[list[Path]]:
    """Inside, `plt.show()` writes a figure of a lesson into a folder; gives the list of figures so far."""
    made: list[Path] = []

    def show() -> None:
        made.append(folder / f"{stem}-{len(made) + 1}.svg")
        plt.gcf().savefig(made[-1], metadata={"Date": None}, bbox_inches="tight")
        plt.close("all")

    before, plt.show = plt.show, show
    try:
        with matplotlib.rc_context(STYLE):
            yield made
    finally:
        plt.show = before


def draw(page: Path) -> list[Path]:
    """Run a lesson and write its figures."""
    IMAGES.mkdir(exist_ok=True)
    names: dict[str, object] = {}
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch, drawing(page.stem, IMAGES) as made:
        os.chdir(scratch)
        try:
            for kind, source in cells(page):
                if kind == "code":
                    exec(compile(source, page.name, "exec"), names)
        finally:
            os.chdir(home)
    return made


def _link(match: re.Match[str]) -> str:
    """A link to another page, from a notebook in a folder of its own."""
    above, name, anchor = match.groups()
    return f"](../../{name}.md{anchor or ''})" if above else f"]({name}.ipynb)"


if __name__ == "__main__":
    matplotlib.use("Agg")
    NOTEBOOKS.mkdir(exist_ok=True)
    for lesson in pages():
        if not sys.argv[1:] or lesson.stem in sys.argv[1:]:
            (NOTEBOOKS / f"{lesson.stem}.ipynb").write_text(render_notebook(lesson), encoding="utf-8")
            print(lesson.stem, *(path.name for path in draw(lesson)))
