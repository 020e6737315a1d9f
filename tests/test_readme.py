"""The README is true: short, up to date, its links lead somewhere, its lists name what there is."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest
from bench import headlines, readme

import regard
from regard import families, tasks
from regard.nn.mixers import MIXERS
from tests.code_blocks import blocks
from tests.verbs.calling import ROOT, call
from tests.verbs.conftest import settings

PAGE = ROOT / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "regard"


def test_what_is_generated_is_up_to_date() -> None:
    assert readme.rendered(TEXT) == TEXT, "run make readme"


def test_it_is_short() -> None:
    assert len(TEXT.encode()) <= 12_000


def test_links_and_pictures_are_there_and_pictures_are_small() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", TEXT) if "://" not in link]
    assert len(links) > 10
    for link in links:
        assert (ROOT / link).exists(), link
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", TEXT)
    assert len(pictures) == 3
    assert all((ROOT / picture).stat().st_size < 200_000 for picture in pictures)


def row(name: str) -> set[str]:
    """The names in one row of the table of what there is."""
    (found,) = re.findall(rf"^\| {name} \| (.*) \|$", TEXT, flags=re.M)
    return set(re.findall(r"`(\w+)`", found))


def test_the_table_of_what_there_is_names_all() -> None:
    verbs = [line.split()[0] for line in call("--help").out.partition("Commands:")[2].splitlines() if line.strip()]
    assert row("commands") == set(verbs)
    assert row("tasks") == set(tasks.names())
    assert row("families") == set(families.names())
    assert row("attention") == set(MIXERS)


def test_the_snippet_trains_a_model_that_copies() -> None:
    """Its values are checked where all code of the pages is run; here, that there are some."""
    (snippet,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    assert '# ["abcabc"]' in snippet
    assert "# torch.Size([4, 4, 4])" in snippet


def test_the_two_commands_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [line for block in blocks(PAGE) if block.language == "sh" for line in block.text.splitlines()]
    assert {line.split()[1] for line in lines if line.startswith("make ")} == {"demo", "test"}
    assert "regard train dates\n" in makefile
    assert "examples/dates.py runs/dates\n" in makefile


def test_lists_of_figures_are_written_with_commas() -> None:
    assert headlines.Figures().format("BLEU {f[each]} after {f[n]:,}", f={"each": [1.5, 2.0], "n": [5358, 12]}) == (
        "BLEU 1.5, 2.0 after 5,358, 12"
    )


def test_a_result_without_a_line_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "new.json").write_text("{}")
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"headlines\.py has no line for new"):
        readme.stored()


def test_what_the_demo_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a model of two steps, so that it is quick; the rows of the picture are among those it prints."""
    monkeypatch.chdir(tmp_path)
    few = ["train.steps=2", "train.validate_every=1", "train.schedule.warmup=0", "data.generate.count=3000"]
    done = call("train", "dates", "--quiet", *settings(*few, "data.generate.valid=10"))
    assert done.code == 0, done.err
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["dates.py", "runs/dates"])
    runpy.run_path(str(ROOT / "examples" / "dates.py"), run_name="__main__")
    printed = capsys.readouterr().out
    picture = (ROOT / "docs" / "images" / "terminal.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    for language in ("German", "Greek", "Hindi"):
        written = re.search(rf"│ {language} +│ (.+?) +│", printed)
        assert written is not None
        assert written[1] in picture
    assert "│Sunday, November 15, 2026│" in printed
    assert "runs/dates/report.html" in printed
    assert Path("runs/dates/report.html").exists()


def test_what_can_be_imported_is_what_is_listed() -> None:
    assert sorted(regard.__all__) == regard.__all__
    for name in regard.__all__:
        assert getattr(regard, name) is not None
    (checking,) = [n for n in ast.parse(Path(regard.__file__).read_text()).body if isinstance(n, ast.If)]
    typed = {alias.name for n in checking.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    assert {*typed, "__version__"} == set(regard.__all__)
    public = {
        name for name, value in vars(regard).items() if not name.startswith("_") and not hasattr(value, "__path__")
    }
    modules = {p.stem for p in PACKAGE.iterdir()}
    assert public - modules <= {*regard.__all__, "annotations", "importlib", "TYPE_CHECKING", "Any"}
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'loda'"):
        _ = regard.loda


def test_nothing_sends_people_to_a_package_index_for_regard() -> None:
    """The name is not registered: whoever registers it could run anything on the machines of those who follow."""
    sends = re.compile(
        r"pip install[^\n`]*['\" ]regard\b|uv (?:add|pip)[^\n`]*\bregard\b|pypi\.org/project/regard", re.I
    )
    kinds = {".py", ".md", ".yaml", ".yml", ".toml", ".ts", ".html", ".ipynb", ".service", ""}
    paths = [p for name in ("src", "docs", "page/src", "examples", "bench") for p in (ROOT / name).rglob("*")]
    paths += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    texts = {p: p.read_text(encoding="utf-8") for p in paths if p.is_file() and p.suffix in kinds}
    assert len(texts) > 400
    assert not {str(p.relative_to(ROOT)): found for p, text in texts.items() if (found := sends.findall(text))}
    assert sends.search("pip install 'regard[serve]'")
    assert sends.search("pip install regard")
