"""The Python API: every public function and class of the package, for mkdocstrings to describe."""

from __future__ import annotations

import dataclasses
import inspect

import regard
from regard import api


def names() -> list[str]:
    """Full names: what `import regard` offers, then the values that its methods return."""
    offered = [getattr(regard, name) for name in regard.__all__]
    returned = [thing for thing in vars(api).values() if inspect.isclass(thing) and dataclasses.is_dataclass(thing)]
    found = [thing for thing in (*offered, *returned) if inspect.isclass(thing) or inspect.isfunction(thing)]
    own = [thing for thing in found if thing.__module__.startswith("regard.") and not hasattr(thing, "parse")]
    functions = [thing for thing in own if inspect.isfunction(thing)]
    classes = [thing for thing in own if inspect.isclass(thing)]
    return list(dict.fromkeys(f"{thing.__module__}.{thing.__qualname__}" for thing in (*functions, *classes)))


def page() -> str:
    return "\n\n".join(f"::: {name}" for name in names())
