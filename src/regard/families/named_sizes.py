"""Published sizes: a name for several settings.

Each of them can be overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.errors import UnknownName


def sized(sizes: Mapping[str, Mapping[str, Any]], size: str, **given: Any) -> dict[str, Any]:
    """The numbers of a named size, with those given by hand in their place; `hidden` follows a changed width."""
    if size not in sizes:
        raise UnknownName("size", size, sizes)
    shape = dict(sizes[size])
    if given.get("width") is not None and given.get("hidden") is None and "hidden" in shape:
        given["hidden"] = shape["hidden"] * given["width"] // shape["width"]
    return shape | {k: v for k, v in given.items() if v is not None}
