"""Differences between a run as it was started and now."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

CORPUS, PLUGINS = "corpus", "plugins"
"""The paths of changes that are none of a recipe."""


@dataclasses.dataclass(frozen=True)
class Change:
    """One difference: the path of a setting or fact, and its values; `shown` as they are, or as Python writes them."""

    path: str
    old: object
    new: object
    plain: bool = False

    def under(self, *paths: str) -> bool:
        """Return whether this is a change of one of these settings, or of something inside of it."""
        return any(self.path == path or self.path.startswith(f"{path}.") for path in paths)

    def __str__(self) -> str:
        if self.path == CORPUS:
            return "the corpus is not the one this run started with"
        if self.under(PLUGINS):
            return describe_plugin(self.path.removeprefix(f"{PLUGINS}."), self.old, self.new)
        return f"{self.path}: {self.old} -> {self.new}" if self.plain else f"{self.path}: {self.old!r} -> {self.new!r}"


def list_changes(old: object, new: object, path: str = "", *, plain: bool = False) -> list[Change]:
    """Return where two recipes or facts differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        out = []
        for key in dict.fromkeys([*old, *new]):
            out += list_changes(old.get(key), new.get(key), f"{path}.{key}" if path else key, plain=plain)
        return out
    return [] if old == new else [Change(path, old, new, plain)]


def list_plugin_changes(was: Mapping[str, object], now: Mapping[str, object]) -> list[Change]:
    """Return which plugins differ between the facts of two runs; an old run may say nothing about its plugins."""
    return list_changes(was.get(PLUGINS) or {}, now.get(PLUGINS) or {}, PLUGINS)


def list_words(value: object) -> set[str]:
    """Return every text inside a recipe: the names of its parts are among them."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return {word for each in value for word in list_words(each)}
    return {value} if isinstance(value, str) else set()


def describe_plugin(name: str, old: object, new: object) -> str:
    """Say how the code of a plugin differs, by its digests."""
    if old is None:
        return f"plugin {name}: its code was not recorded or not used before, and is {new} now"
    if new is None:
        return f"plugin {name}: its code was {old} and is not used now"
    return f"plugin {name}: its code was {old} and is {new} now"
