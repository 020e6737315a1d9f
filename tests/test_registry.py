from __future__ import annotations

import subprocess
import sys

import pytest

from regard.errors import SpecError, UnknownName
from regard.nn.mixers import MIXERS
from regard.registry import Registry, kind_of


class PreNorm: ...


class ALiBi:
    kind = "alibi"


class Steeper(ALiBi): ...


class Metric:
    def __init__(self, kind: str) -> None:
        self.kind = kind


@pytest.fixture
def parts() -> Registry[type]:
    parts: Registry[type] = Registry("part")
    parts.add(PreNorm, also=("pre-ln",))
    parts.add(ALiBi)
    return parts


def test_kind_is_the_class_name_in_snake_case_or_its_own_word() -> None:
    assert [kind_of(c) for c in (PreNorm, ALiBi)] == ["pre_norm", "alibi"]


def test_a_child_does_not_inherit_its_parents_kind() -> None:
    assert kind_of(Steeper) == "steeper"


def test_parts_keep_their_order(parts: Registry[type]) -> None:
    assert list(parts) == ["pre_norm", "alibi"]
    assert list(parts.items()) == [("pre_norm", PreNorm), ("alibi", ALiBi)]
    assert len(parts) == 2
    assert "alibi" in parts
    assert "rotary" not in parts


def test_add_decorates_a_class(parts: Registry[type]) -> None:
    @parts.add
    class Rotary: ...

    @parts.add(also=("shaw",))
    class Relative: ...

    assert parts["rotary"] is Rotary
    assert parts["relative"] is Relative


def test_a_value_goes_by_its_own_kind() -> None:
    metrics: Registry[Metric] = Registry("metric")
    exact = metrics.add(Metric("exact"))
    assert metrics["exact"] is exact


def test_the_same_part_twice_is_added_once(parts: Registry[type]) -> None:
    parts.add(PreNorm)
    assert len(parts) == 2


def test_another_part_of_the_same_name_is_refused(parts: Registry[type]) -> None:
    with pytest.raises(SpecError, match=r"^there already is a part 'pre_norm'; choose another name$"):
        parts.add(type("PreNorm", (), {}))


@pytest.mark.parametrize("name", ["prenorm", "pre_ln", "Pre-LN"])
def test_an_unknown_name_gets_a_near_name_or_the_name_of_a_synonym(parts: Registry[type], name: str) -> None:
    with pytest.raises(UnknownName, match=rf"^no part '{name}'; did you mean 'pre_norm'\?$"):
        parts[name]
    assert name not in parts


@pytest.mark.parametrize(
    ("name", "meant"),
    [("favor+", "performer"), ("transformer-xl", "xl_memory"), ("longformer", "local"), ("reformer", "lsh")],
)
def test_papers_names_of_mixers(name: str, meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        MIXERS[name]
    assert str(caught.value) == f"no mixer {name!r}; did you mean {meant!r}?"


def test_a_task_brings_every_part_that_its_recipe_may_name() -> None:
    """In a new process: no registry is completed by a module that something else happens to import."""
    code = """
import gc, importlib, pkgutil, warnings
warnings.simplefilter("ignore")
import regard.training.train
from regard import metrics, tasks
from regard.registry import Registry

def names():
    return {each.what: {*each} for each in gc.get_objects() if isinstance(each, Registry)}

for name in tasks.names():
    tasks.find(name)
before = names()
for module in pkgutil.walk_packages(regard.__path__, "regard."):
    if not module.name.endswith(("__main__", "libregard_engine")):
        importlib.import_module(module.name)
late = {what: sorted(found - before.get(what, set())) for what, found in names().items()}
print({what: found for what, found in late.items() if found})
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (said.stdout.strip(), said.returncode) == ("{}", 0), said.stderr
