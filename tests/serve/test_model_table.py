"""Models within a budget, and a better one that takes over."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from regard.errors import UnknownName
from regard.serve.model_table import ModelTable
from regard.serve.served_model import LoadSettings
from regard.serve.ticket import ServerBusy

SETTINGS = LoadSettings(engine="torch")


def test_models_beyond_the_budget_are_loaded_when_they_are_needed(models: dict[str, Path]) -> None:
    paths = {name: models[name] for name in ("lm", "translate")}
    largest = max((path / "final" / "model.safetensors").stat().st_size for path in paths.values())
    table = ModelTable(paths, SETTINGS, budget=2 * largest + 100)
    assert [about["loaded"] for about in table.describe()].count(True) == 1
    for name in ("translate", "lm", "translate"):
        with table.use(name) as served:
            assert served.model.run("abc") is not None
            assert list(table.list_served()) == [name]
    assert {about["name"]: about["uses"][0] for about in table.describe()} == {
        "lm": "complete",
        "translate": "translate",
    }
    with table.use("translate"), pytest.raises(ServerBusy, match="take all the memory there is"), table.use("lm"):
        pass
    with pytest.raises(UnknownName, match="no model 'lmm'; did you mean 'lm'"), table.use("lmm"):
        pass


def test_an_engine_that_cannot_be_served_is_refused(models: dict[str, Path]) -> None:
    with pytest.raises(UnknownName, match="no engine 'ctranslate2'; available: auto, native, torch"):
        ModelTable({"a": models["translate"]}, LoadSettings(engine="ctranslate2"))


def test_a_better_model_takes_over_without_dropping_a_request(models: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(models["translate"] / "best", run / "best")
    shutil.copy(models["translate"] / "recipe.yaml", run)
    said: list[str] = []
    table = ModelTable({"a": run}, SETTINGS, tell=said.append)
    assert not table.refresh()
    with table.use("a") as old:
        before = old.model.run("abc")
        shutil.copytree(run / "best", tmp_path / "new")
        shutil.rmtree(run / "best")
        (tmp_path / "new").rename(run / "best")
        assert table.refresh()
        with table.use("a") as new:
            assert new is not old and new.model.run("abc") == before
        assert old.model.run("ab") is not None  # it is still used here
        assert old.scheduler._thread.is_alive()
    old.scheduler._thread.join(10)
    assert not old.scheduler._thread.is_alive() and "was replaced by the newer model" in said[-1]
    (run / "best" / "config.json").write_text("{}")
    (run / "best" / "manifest.json").touch()
    assert not table.refresh() and "the old one stays" in said[-1]
    assert not [t for t in threading.enumerate() if t.name == "scheduler" and t is old.scheduler._thread]
