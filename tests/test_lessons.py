"""Lessons are true: their code runs top to bottom, what they claim holds, and notebooks and figures are up to date."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import pytest
import torch
from docs import notebooks

from tests.code_blocks import Block, Runner
from tests.verbs.calling import ROOT

PAGES = notebooks.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_is_that_of_its_page(page: Path) -> None:
    made = notebooks.NOTEBOOKS / f"{page.stem}.ipynb"
    assert made.read_text(encoding="utf-8") == notebooks.render_notebook(page), "run python docs/notebooks.py"


@pytest.mark.filterwarnings("ignore:__array:DeprecationWarning")  # torch's tensors in numpy's hands
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_runs_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands behind an expression as a comment is its value; every figure of the page is drawn."""
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    notebook = json.loads((notebooks.NOTEBOOKS / f"{page.stem}.ipynb").read_text(encoding="utf-8"))
    runner, rng, grad = Runner(), torch.random.get_rng_state(), torch.is_grad_enabled()
    try:
        with notebooks.drawing(page.stem, tmp_path) as made:
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    runner.run(Block(f"{page.stem}.ipynb", "python", "".join(cell["source"]), None))
    finally:
        torch.random.set_rng_state(rng)
        torch.set_grad_enabled(grad)
    assert runner.checked >= 2, "a lesson says what its code gives"
    shown = [name for _, name in notebooks.PICTURE.findall(page.read_text(encoding="utf-8"))]
    assert [path.name for path in made] == shown
    for name in shown:
        assert 1_000 < (notebooks.IMAGES / name).stat().st_size < 400_000


def test_the_site_and_the_contents_have_every_lesson() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    contents = (notebooks.LESSONS / "index.md").read_text(encoding="utf-8")
    assert len(PAGES) == 10
    for page in PAGES:
        assert f"lessons/{page.name}" in nav
        assert f"]({page.name})" in contents
        assert len(notebooks.PICTURE.findall(page.read_text(encoding="utf-8"))) >= 1
    assert len(list(notebooks.NOTEBOOKS.iterdir())) == len(PAGES)
    assert len(list(notebooks.IMAGES.iterdir())) == sum(
        len(notebooks.PICTURE.findall(page.read_text(encoding="utf-8"))) for page in PAGES
    )
