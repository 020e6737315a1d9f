"""Recipes as plain data: read YAML and merge layers.

A run's recipe is several layers, later ones over earlier ones: defaults, what the data suggests, the recipe file, `--set`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

from regard.errors import DataError, SpecError, UnknownName
from regard.files.user_file import read_user_file

if TYPE_CHECKING:
    from regard.spec import Plain  # `regard recipes` never waits for pydantic

MAX_BYTES, MAX_LEVELS, MAX_VALUES = 10_000_000, 100, 10_000
"""Limits of one recipe: size of its file, nesting depth, and number of values."""
SMALL = 10_000
"""Characters of a recipe that is read at once; a longer one is measured first."""
PURPOSES = (
    "Translate text",
    "Summarize text",
    "Rewrite words and dates",
    "Write text",
    "Complete code",
    "Label texts and answer questions",
    "Recommend items",
    "Recognize pictures",
    "Make music",
    "Pre-train and fine-tune",
    "Learn algorithms from examples",
    "See every setting",
)
"""Purposes of people, in the order of `regard recipes`. Each recipe names one of them as its `purpose`."""


def list_recipes() -> dict[str, str]:
    """The recipes that come with the package: name to text."""
    folder = resources.files("regard.recipes")
    found = {p.name[:-5]: p.read_text("utf-8") for p in folder.iterdir() if p.name.endswith(".yaml")}
    return dict(sorted(found.items()))


def describe_recipes() -> dict[str, dict[str, str]]:
    """The purpose of each shipped recipe and the line about it, in the order of purposes."""
    read = {name: parse_yaml(text, name) for name, text in list_recipes().items()}
    found = {name: {key: str(recipe.get(key, "")) for key in ("purpose", "about")} for name, recipe in read.items()}
    order = [*PURPOSES, *(recipe["purpose"] for recipe in found.values())]
    return dict(sorted(found.items(), key=lambda item: order.index(item[1]["purpose"])))


def read_recipe(name: str) -> Plain:
    """Read a shipped recipe by name, or a YAML file by path."""
    here = list_recipes()
    if name in here:
        return parse_yaml(here[name], name)
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        try:
            return parse_yaml(read_user_file(path, MAX_BYTES, what="the recipe").decode(), name)
        except UnicodeDecodeError as error:
            raise DataError(f"{name} is not UTF-8 (byte {error.start}); a recipe is a YAML text") from None
    raise UnknownName("recipe", name, here)


def parse_yaml(text: str, name: str) -> Plain:
    """Parse the text of a recipe; `name` is what errors call it."""
    value = _load_yaml(text, name)
    if not isinstance(value, dict):
        raise SpecError(f"{name} should be a mapping with task, data, model and train, got {type(value).__name__}")
    return value


def merge(*layers: Mapping[str, object]) -> Plain:
    """Merge layers level by level; later ones win. A part of another `kind` replaces the earlier part entirely."""
    out: Plain = {}
    for layer in layers:
        for key, value in layer.items():
            old = out.get(key)
            if isinstance(value, Mapping) and isinstance(old, str):
                old = {"kind": old}  # `optimizer: adamw` is short for a mapping
            if isinstance(value, Mapping) and isinstance(old, dict):
                other = "kind" in value and old.get("kind") not in (None, value["kind"])
                out[key] = merge({} if other else old, value)
            else:
                out[key] = merge(value) if isinstance(value, Mapping) else value
    return out


def merge_settings(settings: Mapping[str, object]) -> Plain:
    """Merge settings by path, whatever their order: a part (`mix=performer`) comes before its settings (`mix.features=8`)."""
    return merge(*(nest(path, settings[path]) for path in sorted(settings, key=lambda path: path.count("."))))


def nest(path: str, value: object) -> Plain:
    """`nest("train.steps", 100)` is `{"train": {"steps": 100}}`; text values are parsed as YAML (`train.ema=null`)."""
    if not all(path.split(".")):
        raise SpecError(f"--set takes path=value, got the path {path!r}")
    if isinstance(value, str):
        value = _load_yaml(value, f"the value of --set {path}")
    *outer, last = path.split(".")
    out: Plain = {last: value}
    for key in reversed(outer):
        out = {key: out}
    return out


def _load_yaml(text: str, name: str) -> object:
    """YAML 1.2: `no` and `on` are words, `3e-3` is a number, and no tag can name a class."""
    try:
        count, levels = 0, 0 if _is_small(text) else _count_levels(text)
        if levels <= MAX_LEVELS:
            value: object = YAML(typ="safe", pure=True).load(text)
            count, levels = _measure(value, {})
    except YAMLError as error:
        raise SpecError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:  # a value that contains itself
        count, levels = 0, MAX_LEVELS + 1
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError, ArithmeticError) as error:
        # the parser's own conversions: a date with 25 hours, a number of 6,000 digits, a tag that does not fit
        raise SpecError(f"{name} has a value that YAML does not allow: {' '.join(str(error).split())[:200]}") from None
    if levels > MAX_LEVELS or count > MAX_VALUES:
        raise SpecError(
            f"{name} is too large: a recipe has at most {MAX_LEVELS} levels and {MAX_VALUES} values, with aliases expanded"
        )
    if "\\" in text:  # an escape may be half a character, which no file can hold
        _check_characters(value, name)
    return value


def _check_characters(value: object, name: str) -> None:
    """Refuse half characters (`"\\ud800"`) in keys and values."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise SpecError(f"{name} has half a character, U+{ord(value[error.start]):X}") from None
    elif isinstance(value, Mapping):
        for each in (*value, *value.values()):
            _check_characters(each, name)
    elif isinstance(value, Collection):
        for each in value:
            _check_characters(each, name)


def _is_small(text: str) -> bool:
    """True if a text can be read at once, in half a second whatever it holds: open brackets are what takes long."""
    return len(text) <= SMALL and text.count("[") + text.count("{") <= MAX_LEVELS


def _count_levels(text: str) -> int:
    """Return the nesting depth of a YAML text, or one too many as soon as it is too large: reading the rest takes time."""
    depth = deepest = 0
    for number, event in enumerate(YAML(typ="safe", pure=True).parse(text)):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        deepest = max(deepest, depth)
        if deepest > MAX_LEVELS or number > 3 * MAX_VALUES:
            return MAX_LEVELS + 1
    return deepest


def _measure(value: object, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Count values and levels with every alias expanded; an aliased part is visited once."""
    if not isinstance(value, Mapping | list | tuple | set):
        return 1, 0
    if id(value) not in known:
        inside = [*value, *value.values()] if isinstance(value, Mapping) else value
        found = [_measure(one, known) for one in inside]
        known[id(value)] = 1 + sum(count for count, _ in found), 1 + max((levels for _, levels in found), default=0)
    return known[id(value)]
