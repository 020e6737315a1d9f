"""The README is true: its commands run, its snippet gives what its comments say, its made parts are up to date."""

from __future__ import annotations

import ast
import io
import re
import runpy
import shlex
import sys
import tokenize
from pathlib import Path
from typing import Any

import pytest
from bench import readme

import regard
from tests.verbs.calling import ROOT, call
from tests.verbs.conftest import settings

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "regard"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.S | re.M)


def test_what_is_made_is_up_to_date() -> None:
    assert readme.written(TEXT) == TEXT, "run make readme"


def test_the_tree_names_every_file() -> None:
    named, folder = set(), ""
    for line in readme.tree().splitlines()[1:-1]:
        name = line.split()[0]
        if not line.startswith(" "):
            folder = ""
        if name.endswith("/"):
            folder = name
            files = (f"{n}.yaml" for n in line.split(maxsplit=1)[1].split(", ")) if name == "recipes/" else ()
            named |= {f"{name}{file}" for file in files}
        else:
            assert len(line.split()) > 3, f"{line!r} says nothing"
            named.add(f"{folder}{name}.py")
    there = {p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".yaml") and p.name != "__init__.py"}
    assert named == {str(p.relative_to(PACKAGE)) for p in there}


@pytest.mark.slow
def test_the_python_snippet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line runs; where a comment gives a value, that is the value."""
    monkeypatch.chdir(tmp_path)
    (snippet,) = blocks("python")
    comments = {
        token.start[0]: token.string.removeprefix("# ")
        for token in tokenize.generate_tokens(io.StringIO(snippet).readline)
        if token.type == tokenize.COMMENT
    }
    names: dict[str, Any] = {}
    checked = []
    for statement in ast.parse(snippet).body:
        comment = comments.get(statement.lineno, "")
        if not isinstance(statement, ast.Expr):
            exec(ast.unparse(statement), names)
            continue
        value = eval(ast.unparse(statement), names)
        if comment.startswith("["):
            assert value == ast.literal_eval(comment)
            checked.append(value)
        elif "torch.Size" in comment:
            assert repr(value) in comment
            checked.append(value)
    assert len(checked) == 2
    assert names["net"].spec == names["spec"]
    assert names["spec"].replace("decoder.block.mix.heads", 8).decoder.block.mix.heads == 8
    assert all(p < 0 for p in names["model"].score(["abc"], ["abc"]))
    assert (tmp_path / "runs" / "copy" / "final" / "model.safetensors").exists()


def test_the_commands_on_data_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    english = [f"{a} {b} {c} ." for a in ("A", "The") for b in ("dog", "cat", "bird") for c in ("runs", "sleeps")]
    german = [
        f"{a} {b} {c} ." for a in ("Ein", "Der") for b in ("Hund", "Kater", "Vogel") for c in ("rennt", "schläft")
    ]
    for name, lines in (("en", english), ("de", german)):
        for part in ("train", "test"):
            Path(f"{part}.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    commands = next(block for block in blocks("sh") if "train.en" in block)
    ran = []
    for line in commands.splitlines():
        words = shlex.split(line, comments=True)
        given = b""
        if "|" in words:
            assert words[0] == "echo"
            given, words = f"{words[1]}\n".encode(), words[words.index("|") + 1 :]
        assert words[0] == "regard"
        said = call(*words[1:], stdin=given)
        assert said.code == 0, said.err
        ran.append(words[1])
        if words[1] == "run":
            assert len(said.lines) == 1
        if words[1] == "eval":
            assert "bleu: BLEU|" in said.out
    assert ran == ["train", "run", "eval"]
    assert {p.name for p in Path("runs/translate/final").iterdir()} == {
        "README.md", "config.json", "manifest.json", "model.safetensors", "tokenizer.json",
    }  # fmt: skip


def test_the_table_of_commands_is_whole() -> None:
    rows = re.findall(r"^\| `regard (\w+)[^|]*(?:\\\|[^|]*)*\| (.*) \|$", TEXT, flags=re.M)
    verbs = [line.split()[0] for line in call("--help").out.partition("Commands:")[2].splitlines() if line.strip()]
    assert [verb for verb, _ in rows] == verbs
    for verb, said in rows:
        known = call(verb, "--help").out
        for option in re.findall(r"--[\w-]+", said):
            assert option in known, f"{verb} {option}"


def test_the_two_commands_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {line.split()[1] for block in blocks("sh") for line in block.splitlines() if line.startswith("make ")}
    assert named == {"demo", "test"}
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.M)
    assert "regard train dates\n" in makefile
    assert "examples/dates.py runs/dates\n" in makefile


def test_what_the_demo_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a model of two steps, so that it is quick; the rows the README quotes are among those it prints."""
    monkeypatch.chdir(tmp_path)
    few = ["train.steps=2", "train.validate_every=1", "train.schedule.warmup=0", "data.generate.count=3000"]
    said = call("train", "dates", "--quiet", *settings(*few, "data.generate.valid=10"))
    assert said.code == 0, said.err
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["dates.py", "runs/dates"])
    runpy.run_path(str(ROOT / "examples" / "dates.py"), run_name="__main__")
    printed = capsys.readouterr().out
    quoted = re.findall(r"^│ (\w+) +│ (.+?) +│", TEXT, flags=re.M)
    assert len(quoted) == 3
    for language, written in quoted:
        assert re.search(rf"│ {language} +│ {re.escape(written)} +│", printed)
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
