"""Registries: where a name in a file becomes a part.

Each role has one registry (`MIXERS`, `TASKS`, `SCHEDULES` ...), and there is one way to fill it: a part is added where it is
defined, and the package that owns the registry imports the modules that define parts.

    @MIXERS.add(also=("favor",))
    @spec
    class Performer(MixerSpec): ...

    METRICS.add(Metric("exact", exact))     # a value instead of a class

Names that papers and other tools have for a part are listed in `also`. They appear in error messages ("no mixer 'favor'; did
you mean 'performer'?") and are never accepted in place of the name. Names from files are looked up here and never imported.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import traceback
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, overload

from regard.errors import SpecError, UnknownName

T = TypeVar("T")
P = TypeVar("P")
PACKAGE = f"{Path(__file__).parent}{os.sep}"


def kind_of(part: object) -> str:
    """Return the name of a part in files: its own `kind`, or its class name in snake case."""
    own = vars(part).get("kind")  # of this class itself: a subclass is another kind
    if isinstance(own, str):
        return own
    cls = part if isinstance(part, type) else type(part)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()


class Registry(Generic[T]):
    """An ordered mapping from names to the parts of one role, which `what` names in messages."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._parts: dict[str, T] = {}
        self._synonyms: dict[str, str] = {}
        self._homes: dict[str, Path] = {}
        _REGISTRIES.add(self)

    @overload
    def add(self, part: P, /, *, also: Sequence[str] = ()) -> P: ...
    @overload
    def add(self, /, *, also: Sequence[str] = ()) -> Callable[[P], P]: ...
    def add(self, part: P | None = None, /, *, also: Sequence[str] = ()) -> P | Callable[[P], P]:
        """Add a part under its kind and return it, so that this decorates a class, with or without arguments."""
        if part is None:
            return lambda decorated: self.add(decorated, also=also)
        name = kind_of(part)
        if self._parts.get(name, part) is not part:
            raise SpecError(f"there already is a {self.what} {name!r}; choose another name")
        self._parts[name] = cast(T, part)
        self._synonyms |= dict.fromkeys(also, name)
        if (home := _find_caller()) is not None:
            self._homes[name] = home
        return part

    def __getitem__(self, name: str) -> T:
        if not isinstance(name, str) or name not in self._parts:  # a file may hold anything
            raise UnknownName(self.what, name, self._parts, self._synonyms)
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def items(self) -> Iterator[tuple[str, T]]:
        return iter(self._parts.items())

    def homes(self, names: Collection[str]) -> Iterator[Path]:
        """Yield the file of every part of these names that is not Regard's own."""
        return (home for name, home in self._homes.items() if name in names and name in self._parts)


_REGISTRIES: weakref.WeakSet[Registry[Any]] = weakref.WeakSet()


def find_homes(names: Collection[str]) -> list[Path]:
    """Return the files, outside Regard, that added parts of these names to any registry."""
    return sorted({home for registry in _REGISTRIES for home in registry.homes(names)})


def _find_caller() -> Path | None:
    """Return the file that adds a part, if it is none of Regard's; a notebook has no file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    name = frame.f_code.co_filename
    return None if name.startswith(PACKAGE) or not Path(name).is_file() else Path(name).resolve()


def load_plugins(files: Sequence[Path]) -> None:
    """Run Python files of the user, which add their parts to registries."""
    from regard.digests import note_code  # here: nothing but a plugin needs it

    for file in files:
        spec = importlib.util.spec_from_file_location(f"regard_plugin_{file.stem}", file)
        if spec is None or spec.loader is None or not file.is_file():
            raise SpecError(f"no plugin {file}: it should be a Python file, such as mine.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        note_code(file)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # the user's own code: say where it failed
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
            where = f", line {frames[-1].lineno}" if frames else ""
            raise SpecError(f"the plugin {file}{where} failed with {type(error).__name__}: {error}") from error
