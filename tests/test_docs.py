"""The documentation is true: its code runs, its recipes are valid, and what is generated is complete."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
from importlib import import_module
from pathlib import Path

import pytest
from docs.generators import api, reference, results, trace, tree
from docs.generators.glossary import GLOSSARY
from docs.generators.spec_docs import is_role
from ruamel.yaml import YAML

import regard
from regard import families, tasks
from regard.families import names
from regard.training.recipe import Recipe
from tests.code_blocks import OUTPUT, Block, Runner, blocks, run_folder, shell_lines
from tests.made_files import write_files
from tests.test_layers import FREE, reach, row_of
from tests.verbs.calling import ROOT, call

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("applications/*.md"))]
BLOCKS = [block for page in PAGES for block in blocks(page)]
NOT_RUN = 11
"""Blocks that cannot be executed here, each with its reason."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders that pages refer to: two translators of three steps, and a language model."""
    here = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        write_files()
        small = ["train.steps=3", "train.schedule={kind: constant, lr: 1.0e-3}", "model.width=32", "model.hidden=32"]
        small += ["train.validate_every=3", "train.precision=float32", "train.threads=1"]
        sets = [word for one in small for word in ("--set", one)]
        for name, seed in (("translate", 1), ("translate-2", 2)):
            done = call(
                "train",
                "translate",
                "train.en",
                "train.de",
                *sets,
                "--set",
                f"train.seed={seed}",
                "--out",
                f"runs/{name}",
            )
            assert done.code == 0, done.err
        done = call("train", "gpt", "book.txt", *sets)
        assert done.code == 0, done.err
    return here


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.reason is None and block.language != OUTPUT]


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = runnable(page)
    monkeypatch.chdir(tmp_path)
    write_files()
    trained = {run_folder(line) for block in own if block.language == "sh" for line in shell_lines(block.text)}
    for run in (models / "runs").iterdir():
        if f"runs/{run.name}" not in trained:
            shutil.copytree(run, tmp_path / "runs" / run.name)
    runner = Runner()
    for block in own:
        runner.run(block)


def test_every_block_has_a_known_language_and_few_are_not_run() -> None:
    assert {block.language for block in BLOCKS} <= {"python", "sh", "yaml", OUTPUT}
    assert sum(block.reason is not None for block in BLOCKS) == NOT_RUN
    assert all(len(block.reason.split()) > 1 for block in BLOCKS if block.reason is not None)


def test_every_key_has_a_meaning() -> None:
    site = reference.Site()
    assert [f"{name}.{key.name}" for name, key in site.all_keys() if not key.meaning] == []
    for name in names():
        for argument in inspect.signature(families.find(name)).parameters:
            assert argument in GLOSSARY, f"{name}: {argument}"


def test_the_glossary_names_only_keys_that_there_are() -> None:
    site = reference.Site()
    known = {argument for name in names() for argument in inspect.signature(families.find(name)).parameters}
    for name, key in site.all_keys():
        known |= {key.name, f"{name}.{key.name}"}
    assert sorted(set(GLOSSARY) - known) == []


def test_the_reference_names_every_task_family_and_mixer() -> None:
    from regard.nn.mixers import MIXERS

    data, models = reference.data(), reference.models()
    assert all(f"## Task `{name}`" in data for name in tasks.names())
    assert all(f"### {name} " in models for name in names())
    assert all(f"### mixer `{name}`" in models for name in MIXERS)
    assert "| `batch_tokens` | integer ≥ 1 or `auto` | `4096` |" in reference.recipe()


def test_results_are_formatted_for_people() -> None:
    page = results.page()
    for line in page.splitlines():
        if line.lstrip().startswith("|"):
            assert not any(mark in line for mark in ("[", "{", "}", "None", "True")), line
    assert "1,011,712" in page


def test_a_program_is_shown_as_it_is() -> None:
    lines = results.tables({"right": 0.5, "a program": "def f():\n    return [1]\n"})
    assert lines[-6:] == ["**A program**", "", "```text", "def f():", "    return [1]", "```", ""][-6:]
    assert any("| Right | 0.5 |" in line for line in lines)


def test_curves_are_drawn_and_not_printed() -> None:
    curves = {"gru": {"bleu": 20.0, "BLEU by minute": [[1.5, 10.0], [3.0, 20.0]]}, "lstm": {"bleu": "not run"}}
    assert results.without_curves(curves) == {"gru": {"bleu": 20.0}, "lstm": {"bleu": "not run"}}
    (chart, _) = results.charts(curves)
    assert chart.startswith("<iframe") and "BLEU against minute: " in chart and "10" in chart
    assert results.charts(results.without_curves(curves)) == []


def test_numbers_have_separators_and_units() -> None:
    assert results.number(1011712, "parameters") == "1,011,712"
    assert results.number(1.39, "regard is faster by") == "1.39×"
    assert results.number(0.47, "share of 320 GFLOPS") == "47 %"
    assert results.number([54.21, 52.93], "each") == "54.21, 52.93"
    assert results.number([-1.04, 2.29], "seeds") == "-1.04 to 2.29"


def module_of(file: str) -> str:
    return ".".join(("regard", *Path(file).with_suffix("").parts)).removesuffix(".__init__")


def test_each_file_that_a_pair_passes_is_called_from_above() -> None:
    hops = trace.hops()
    assert len(hops) > 40
    for file, caller in hops:
        assert (tree.PACKAGE / file).exists()
        if caller and module_of(caller) not in FREE:
            row, above = row_of(module_of(file)), row_of(module_of(caller))
            assert above is not None
            assert row in reach(above), f"{caller} calls {file}"
    passed = [file for file, _ in hops]
    for first, second in (("text_files", "full"), ("full", "loss"), ("loss", "model_folder")):
        places = [next(i for i, file in enumerate(passed) if Path(file).stem == name) for name in (first, second)]
        assert places == sorted(places)


def test_the_tree_names_every_file() -> None:
    listed = [name for _, name, _ in tree.lines() if not name.endswith("/")]
    there = [path.name for path in tree.PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    assert sorted(listed) == sorted(there)


def test_the_api_page_names_what_can_be_imported() -> None:
    named = {name.rpartition(".")[2] for name in api.names()}
    assert {name for name in regard.__all__ if name not in ("__version__", "families")} <= named
    assert "Attention" in named


def test_the_site_has_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f": {page.relative_to(ROOT / 'docs').as_posix()}" in nav
    assert import_module("docs.generators").__doc__


def test_one_shipped_recipe_names_and_explains_every_key() -> None:
    """`everything.yaml`: of the recipe, the data of its task, its family, and the parts it names."""
    text = (tree.PACKAGE / "recipes" / "everything.yaml").read_text(encoding="utf-8")
    whole = YAML(typ="safe", pure=True).load(text)
    parsed = Recipe.parse({key: value for key, value in whole.items() if key != "auto"})
    settings = tasks.find(parsed.task).Settings.parse(parsed.data)
    train, data = parsed.train, (spec for _, spec in settings.walk())
    kinds = {type(part) for part in (train.optimizer, train.schedule, *data)}
    below = [cls for cls, _ in reference.reachable({Recipe: "", type(settings): "data"}) if not is_role(cls)]
    for spec in (cls for cls in below if cls.registry is None or cls in kinds):
        for field in dataclasses.fields(spec):
            assert re.search(rf"\b{field.name}:", text), f"{spec.__name__}.{field.name}"
    for argument in inspect.signature(families.find(whole["model"]["family"])).parameters:
        assert re.search(rf"\b{argument}\b", text), argument
    for line in text.splitlines():
        if re.match(r" +\w+: [^\[]", line):
            assert "#" in line, line
    assert "auto:" in text


def test_the_line_of_every_file_fits_the_tree() -> None:
    for _, name, line in tree.lines():
        if not name.endswith("/"):
            assert 0 < len(line) <= tree.WIDTH, f"{name}: {line!r}"
