"""What a spec class says about itself: its keys with type, default and meaning."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs.generators.glossary import GLOSSARY
from regard.registry import Registry, kind_of
from regard.spec import Spec

WORDS = {int: "integer", float: "number", str: "text", bool: "true or false", dict: "mapping", Any: "anything"}
HUGE = 1 << 20
"""Bounds beyond this only keep nonsense out and are not worth a reader's time."""


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of a spec."""

    name: str
    type: str
    default: str
    meaning: str


def is_role(cls: object) -> bool:
    """Whether fields of this class accept any part of a registry."""
    return isinstance(cls, type) and issubclass(cls, Spec) and isinstance(cls.__dict__.get("registry"), Registry)


def anchor(cls: type) -> str:
    """The name of a spec's heading on its page."""
    role = next((base for base in cls.__mro__ if is_role(base)), None)
    if role is None:
        return cls.__name__.lower()
    what = re.sub(r"\W+", "-", role.registry.what)  # type: ignore[attr-defined]
    return what if role is cls else f"{what}-{kind_of(cls)}"


def summary(thing: object) -> str:
    """The docstring as one paragraph of Markdown, without tables and drawings."""
    doc = inspect.getdoc(thing) or ""
    text = " ".join(doc.split("\n\n")[0].split())
    return f"{text[:-1]}." if text.endswith(":") else text


def keys(cls: type, links: Mapping[type, str]) -> list[Key]:
    """The keys of a spec class in order; `links` says where other specs are described."""
    meanings, hints = field_docs(cls), type_hints(cls)
    return [
        Key(f.name, describe(hints[f.name], links), _default(f), meanings.get(f.name) or _shared(cls, f.name))
        for f in dataclasses.fields(cls)
    ]


def _shared(cls: type, name: str) -> str:
    return GLOSSARY.get(f"{cls.__name__}.{name}") or GLOSSARY.get(name, "")


def type_hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


def field_docs(cls: type) -> dict[str, str]:
    """The text below each field, or its row in the table of the class docstring."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not (isinstance(base, type) and issubclass(base, Spec)) or base is Spec:
            continue
        node = class_node(base)
        found |= _rows(ast.get_docstring(node) or "") | attribute_docs(node)
    return found


def class_node(cls: type) -> ast.ClassDef:
    """The source of a class as a syntax tree."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(node, ast.ClassDef)
    return node


def attribute_docs(node: ast.ClassDef) -> dict[str, str]:
    """The text below each annotated attribute of a class."""
    return {
        ast.unparse(field.target): " ".join(str(after.value.value).split())
        for field, after in itertools.pairwise(node.body)
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }


def _rows(doc: str) -> dict[str, str]:
    """`name    what it means`, perhaps over several lines: rows that some class docstrings have."""
    rows, name = {}, ""
    for line in doc.split("\n\n", 1)[-1].splitlines() if "\n\n" in doc else ():
        if start := re.match(r"([a-z_]+) {2,}(\S.*)", line):
            name = start[1]
            rows[name] = start[2]
        elif name and line.startswith("  "):
            rows[name] += f" {line.strip()}"
        else:
            name = ""
    return rows


def describe(hint: Any, links: Mapping[type, str]) -> str:
    """A type in words, with links to the specs it names."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        bounds = [bound for item in args[1:] for bound in _bounds(item)]
        inner = describe(args[0], links)
        if len(bounds) == 2 and bounds[0][0] in ">≥":  # a range
            sign = "<" if bounds[0][0] == ">" else "≤"
            return f"{inner}, {bounds[0][2:]} {sign} x {bounds[1]}"
        return f"{inner} {', '.join(bounds)}" if bounds else inner
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" if isinstance(value, str) else str(value).lower() for value in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(arg, links) for arg in args if arg is not type(None))
    if origin in (tuple, list):
        items = [arg for arg in args if arg is not Ellipsis]
        if origin is tuple and Ellipsis not in args and len(items) > 1:
            return f"list of {len(items)}: {'; '.join(dict.fromkeys(describe(item, links) for item in items))}"
        return f"list of {describe(items[0], links)}" if items else "list"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return "mapping"
    if isinstance(hint, type) and issubclass(hint, Spec | BaseModel):
        name = hint.registry.what.replace("_", " ") if is_role(hint) else "settings"  # type: ignore[attr-defined]
        return f"[{name}]({links[hint]})" if hint in links else name
    return WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def _bounds(item: object) -> Iterator[str]:
    if isinstance(item, FieldInfo):
        for one in item.metadata:
            yield from _bounds(one)
        return
    for name, sign in (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤")):
        value = getattr(item, name, None)
        if value is not None and abs(value) < HUGE:
            yield f"{sign} {value:g}"


def specs_in(hint: Any) -> Iterator[type]:
    """Every spec class that a type names."""
    if isinstance(hint, type) and issubclass(hint, Spec):
        yield hint
    for arg in typing.get_args(hint):
        yield from specs_in(arg)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "*required*"
    value = field.default if field.default is not dataclasses.MISSING else field.default_factory()  # type: ignore[misc]
    if isinstance(value, FieldInfo):
        value = value.default_factory() if value.default_factory else value.default  # type: ignore[call-arg]
    return f"`{as_yaml(value)}`" if value not in ("", None) else "none" if value is None else "empty"


def as_yaml(value: Any) -> str:
    """A value as one would write it in a recipe, on one line."""
    if isinstance(value, Spec):
        changed = {
            f.name: getattr(value, f.name)
            for f in dataclasses.fields(value)  # type: ignore[arg-type]
            if f.default is dataclasses.MISSING or getattr(value, f.name) != f.default
        }
        kind = kind_of(type(value)) if value.registry is not None else ""
        if not changed:
            return kind or "{}"
        return as_yaml({"kind": kind, **changed} if kind else changed)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {as_yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list | set | frozenset):
        return "[" + ", ".join(as_yaml(v) for v in value) + "]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def table(rows: list[Key]) -> list[str]:
    """Keys as a Markdown table."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for row in rows:
        cells = (f"`{row.name}`", row.type, row.default, row.meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return doc.split("\n")[0].strip().removesuffix(".")
