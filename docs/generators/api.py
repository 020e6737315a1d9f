"""The Python API: every public function and class of the package, for mkdocstrings to describe."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
import typing
from collections.abc import Iterator

import regard


def names() -> list[str]:
    """Full names: the functions that `import regard` offers, `Model`, and the classes of what they return."""
    offered = [getattr(regard, name) for name in regard.__all__]
    functions = [thing for thing in offered if inspect.isfunction(thing)]
    methods = [
        value
        for name, value in vars(regard.Model).items()
        if inspect.isfunction(value) and name[0] != "_" and "options" not in name
    ]
    returned = [cls for function in (*functions, *methods) for cls in _classes(_returns(function))]
    classes = [thing for thing in offered if inspect.isclass(thing) and thing is not regard.Model]
    own = [cls for cls in (regard.Model, *returned) if dataclasses.is_dataclass(cls) or cls is regard.Model]
    return list(dict.fromkeys(f"{thing.__module__}.{thing.__qualname__}" for thing in (*functions, *own, *classes)))


def _returns(function: object) -> object:
    spaces = dict(vars(sys.modules[function.__module__]))  # type: ignore[attr-defined]
    with contextlib.suppress(NameError):
        return typing.get_type_hints(function, spaces).get("return")
    return None


def _classes(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("regard."):
        yield hint
    for part in typing.get_args(hint):
        yield from _classes(part)


def page() -> str:
    return "\n\n".join(f"::: {name}" for name in names())
