"""Recipes as plain data: those that are shipped, or a user's file, read as YAML; and layers of them, one over another."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from regard.errors import DataError, SpecError, UnknownName

LEVELS, VALUES = 100, 100_000
"""Of a recipe: how deep it is at most, and how many values it has."""


def shipped() -> dict[str, str]:
    """The recipes that come with the package: name to text."""
    folder = resources.files("regard.recipes")
    found = {p.name[:-5]: p.read_text("utf-8") for p in folder.iterdir() if p.name.endswith(".yaml")}
    return dict(sorted(found.items()))


def read_recipe(name: str) -> dict[str, Any]:
    """A shipped recipe by name, or a YAML file by path, as plain data."""
    here = shipped()
    if name in here:
        return parse_yaml(here[name], name)
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        try:
            return parse_yaml(path.read_text("utf-8"), name)
        except OSError as error:
            raise DataError(f"cannot read the recipe {name}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{name} is not UTF-8 (byte {error.start}); a recipe is a YAML text") from None
    raise UnknownName("recipe", name, here)


def parse_yaml(text: str, name: str) -> dict[str, Any]:
    """A recipe's text as plain data."""
    value = _yaml(text, name)
    if not isinstance(value, dict):
        raise SpecError(f"{name} should be a mapping with task, data, model and train, got {type(value).__name__}")
    return value


def _yaml(text: str, name: str) -> Any:
    """YAML 1.2: `no` and `on` are words, `3e-3` is a number, and no tag names a class."""
    try:
        value = YAML(typ="safe", pure=True).load(text)
        count, levels = _measured(value, {})
    except YAMLError as error:
        raise SpecError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:  # or one that holds itself
        count, levels = 0, LEVELS + 1
    if levels > LEVELS or count > VALUES:
        raise SpecError(
            f"{name} has too many levels or values: no recipe has over {LEVELS} or {VALUES}, aliases written out"
        )
    return value


def _measured(value: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How many values and levels there are, each alias written out; what it names is looked at once."""
    if not isinstance(value, Mapping | list | tuple | set):
        return 1, 0
    if id(value) not in known:
        inside = [*value, *value.values()] if isinstance(value, Mapping) else value
        found = [_measured(one, known) for one in inside]
        known[id(value)] = 1 + sum(count for count, _ in found), 1 + max((levels for _, levels in found), default=0)
    return known[id(value)]


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers over earlier ones, level by level. A part of another `kind` replaces what was there."""
    out: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = out.get(key)
            if isinstance(value, Mapping) and isinstance(old, str):
                old = {"kind": old}  # `optimizer: adamw` is short for a mapping
            if isinstance(value, Mapping) and isinstance(old, dict):
                other = "kind" in value and old.get("kind") not in (None, value["kind"])
                out[key] = merged({} if other else old, value)
            else:
                out[key] = merged(value) if isinstance(value, Mapping) else value
    return out


def set_path(path: str, value: Any) -> dict[str, Any]:
    """`train.steps` and 100 as nested data; text values are read as YAML (`--set train.ema=null`)."""
    if not all(path.split(".")):
        raise SpecError(f"--set takes path=value, got the path {path!r}")
    if isinstance(value, str):
        value = _yaml(value, f"the value of --set {path}")
    for key in reversed(path.split(".")):
        value = {key: value}
    return value  # type: ignore[no-any-return]
