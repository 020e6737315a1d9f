"""Published sizes: a name for several settings.

Each of them can be overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.errors import UnknownName

Settings = dict[str, Any]
"""Arguments of a family's `spec` function by name; the function itself gives them their types."""


def resolve_size(sizes: Mapping[str, Settings], size: str, **given: float | str | None) -> Settings:
    """Return the settings of a named size, overridden by those given; `hidden` scales with a changed width."""
    if size not in sizes:
        raise UnknownName("size", size, sizes)
    shape = dict(sizes[size])
    if given.get("width") is not None and given.get("hidden") is None and "hidden" in shape:
        given["hidden"] = shape["hidden"] * given["width"] // shape["width"]
    return shape | {k: v for k, v in given.items() if v is not None}
