"""Ordered tables from names to parts: the only place where a name in a file becomes a class of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Generic, TypeVar

from regard.errors import SpecError, UnknownName

T = TypeVar("T")


def kind_of(cls: type) -> str:
    """The word a part goes by in files: its own `kind`, or its class name in snake case."""
    own = cls.__dict__.get("kind")
    return own if isinstance(own, str) else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()


class Table(Generic[T]):
    """An ordered table of parts. Looking up an unknown name says which names are near."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._rows: dict[str, T] = {}

    def add(self, *parts: T, name: str | None = None) -> T:
        """Add parts under their `kind` (or one part under `name`); returns the last, so it can decorate a class."""
        for part in parts:
            key = name or kind_of(part)  # type: ignore[arg-type]
            if key in self._rows and self._rows[key] is not part:
                raise SpecError(f"there already is a {self.what} {key!r}; choose another name")
            self._rows[key] = part
        return parts[-1]

    def __getitem__(self, name: str) -> T:
        if not isinstance(name, str) or name not in self._rows:  # files may say anything
            raise UnknownName(self.what, name, self._rows)
        return self._rows[name]

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def items(self) -> Iterator[tuple[str, T]]:
        return iter(self._rows.items())
