"""The reference: every key of a recipe, every task's data, every family and part, taken from the specs themselves."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import typing
from collections.abc import Iterable, Iterator, Mapping

from docs.generators import spec_docs
from docs.generators.glossary import GLOSSARY
from docs.generators.spec_docs import anchor, describe, is_role, keys, specs_in, summary, table, type_hints
from regard import families, tasks
from regard.metrics import METRICS
from regard.model.model_spec import ModelSpec
from regard.nn.mixers import MIXERS
from regard.registry import kind_of
from regard.spec import Spec
from regard.training.recipe import Recipe

RECIPE, DATA, MODELS = "reference/recipe.md", "reference/data.md", "reference/models.md"


def reachable(roots: Mapping[type, str]) -> Iterator[tuple[type, str]]:
    """Every spec that a recipe can name below these and the key it is first found at, parts of each role after the role."""
    waiting, seen = list(roots.items()), set[type]()
    while waiting:
        cls, path = waiting.pop(0)
        if cls in seen:
            continue
        seen.add(cls)
        yield cls, path
        if is_role(cls):
            waiting = [*((part, path) for _, part in cls.registry.items()), *waiting]  # type: ignore[attr-defined]
            continue
        hints, below = type_hints(cls), f"{path}." if path else ""
        names = [f.name for f in dataclasses.fields(cls)]
        waiting = [*((spec, f"{below}{name}") for name in names for spec in specs_in(hints[name])), *waiting]


class Site:
    """Which specs each page describes, and how to link to them."""

    def __init__(self) -> None:
        self.tasks = {name: tasks.find(name).Settings for name in tasks.names()}
        roots = {RECIPE: {Recipe: ""}, DATA: dict.fromkeys(self.tasks.values(), "data"), MODELS: {ModelSpec: "model"}}
        self.pages: dict[str, dict[type, str]] = {}
        taken: set[type] = set()
        for page, classes in roots.items():
            self.pages[page] = {cls: path for cls, path in reachable(classes) if cls not in taken}
            taken |= set(self.pages[page])

    def links(self, page: str) -> dict[type, str]:
        """Where each spec is described, seen from a page beside it."""
        return {
            cls: f"#{anchor(cls)}" if home == page else f"{home.rpartition('/')[2]}#{anchor(cls)}"
            for home, classes in self.pages.items()
            for cls in classes
        }

    def all_keys(self) -> Iterator[tuple[str, spec_docs.Key]]:
        """Every key of every spec, with the class that has it."""
        for classes in self.pages.values():
            for cls in classes:
                if not is_role(cls):
                    yield from ((cls.__name__, key) for key in keys(cls, {}))


def recipe() -> str:
    """Every key of a recipe but those of `data` and `model`."""
    site = Site()
    lines = [
        "# Recipe reference",
        "",
        "Generated from the specs in the source. A part with a `kind` can be written as the kind alone "
        "(`optimizer: adamw`) or as a mapping (`optimizer: {kind: adamw, weight_decay: 0.1}`). "
        "[Recipes](../recipes.md) explains how a recipe is read.",
        "",
        "`data` takes the [settings of the task](data.md), `model` the [arguments of a family](models.md) "
        "and any part of the model.",
        "",
    ]
    return "\n".join([*lines, *_sections(site, RECIPE)])


def data() -> str:
    """The `data` part of a recipe for each task."""
    site = Site()
    lines = ["# Data reference", "", "Generated from the specs in the source: what `data:` may say for each task.", ""]
    links = site.links(DATA)
    for name, settings in site.tasks.items():
        lines += [f"## Task `{name}` {{#{anchor(settings)}}}", "", summary(tasks.find(name)), ""]
        lines += table(keys(settings, links))
    lines += _sections(site, DATA, skip=set(site.tasks.values()))
    lines += ["## Metrics {#metrics}", "", "For `data.metrics` and `regard eval --metric`.", ""]
    lines += ["| name | better is |", "|---|---|"]
    lines += [f"| `{name}` | {'higher' if metric.higher else 'lower'} |" for name, metric in METRICS.items()]
    return "\n".join(lines)


def models() -> str:
    """The families with their sizes and arguments, then every part."""
    site = Site()
    lines = [
        "# Models and parts: reference",
        "",
        "Generated from the source. [Models and parts](../models.md) explains how they fit together.",
        "",
        "## Families {#families}",
        "",
        "`model: {family: gpt, width: 128}` calls the family with these arguments. `regard show SIZE` prints a "
        "published size.",
        "",
    ]
    for name in families.names():
        module = importlib.import_module(f"regard.families.{name}")
        lines += [f"### {name} {{#family-{name}}}", "", summary(module), "", summary(module.spec), ""]
        if module.SIZES:
            lines += [f"Sizes: {', '.join(f'`{size}`' for size in module.SIZES)}.", ""]
        lines += _signature(module.spec)
    lines += ["## What each mixer can do {#abilities}", "", *_abilities()]
    return "\n".join([*lines, *_sections(site, MODELS)])


def _sections(site: Site, page: str, skip: Iterable[type] = ()) -> list[str]:
    lines, links, left = [], site.links(page), set(skip)
    for cls, path in site.pages[page].items():
        if cls in left:
            continue
        left.add(cls)
        place = f"`{path}`" if path else "A recipe"
        if is_role(cls):
            what = cls.registry.what.replace("_", " ")  # type: ignore[attr-defined]
            lines += [f"## {what[0].upper()}{what[1:]} {{#{anchor(cls)}}}", "", f"{summary(cls)} Such as {place}.", ""]
            for name, part in cls.registry.items():  # type: ignore[attr-defined]
                left.add(part)
                lines += [f"### {what} `{name}` {{#{anchor(part)}}}", "", summary(part), ""]
                lines += table(rows) if (rows := keys(part, links)) else []
        else:
            lines += [f"## {place} {{#{anchor(cls)}}}", "", summary(cls), "", *table(keys(cls, links))]
    return lines


def _signature(function: typing.Callable[..., object]) -> list[str]:
    hints, rows = typing.get_type_hints(function), []
    for name, parameter in inspect.signature(function).parameters.items():
        given = parameter.default
        default = "*required*" if given is parameter.empty else "by size" if given is None else f"`{_word(given)}`"
        rows.append(spec_docs.Key(name, describe(hints[name], {}), default, GLOSSARY.get(name, "")))
    return table(rows)


def _word(value: object) -> str:
    return kind_of(type(value)) if isinstance(value, Spec) else spec_docs.as_yaml(value)


def _abilities() -> list[str]:
    """The `Can` of every mixer as one table."""
    first = next(part for _, part in MIXERS.items()).can
    flags = [f.name for f in dataclasses.fields(first) if isinstance(getattr(first, f.name), bool)]
    lines = [f"| mixer | {' | '.join(flags)} |", "|---|" + ":-:|" * len(flags)]
    for name, part in MIXERS.items():
        marks = ("yes" if getattr(part.can, flag) else "–" for flag in flags)
        lines.append(f"| [`{name}`](#{anchor(part)}) | {' | '.join(marks)} |")
    docs = spec_docs.attribute_docs(spec_docs.class_node(type(first)))
    told = [f"- `{flag}`: {docs[flag]}" for flag in flags if flag in docs]
    return [*lines, "", *told, ""]
