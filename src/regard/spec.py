"""Specs: small frozen values that say what to build, written as Python, JSON or YAML alike.

A spec holds plain values and other specs, so `spec == spec` means "the same model". Where a field is a *role* (a mixer, a
norm, a position ...), files tell the parts apart by `kind`, looked up in the role's registry and never imported by path:

    Full(heads=4)   <->   {"kind": "full", "heads": 4}   <->   mix: full   # where every other field has a default
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar, dataclass_transform

import pydantic
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from regard.errors import SpecError, list_available, offer
from regard.registry import Registry, kind_of

C = TypeVar("C", bound=type)

Count = Annotated[int, Field(ge=1, le=1 << 40)]
"""A whole number of at least one; the largest is beyond any use, and still a number to torch and numpy."""
Heads = Annotated[int, Field(ge=1, le=4096)]
"""Of attention: many times more than any model has, and few enough to go through one by one."""
Share = Annotated[float, Field(ge=0, lt=1)]
"""A probability or part of a whole, below one."""


class Spec:
    """Base of every spec. A class that sets `registry` is a role: its fields accept any part in that registry."""

    registry: ClassVar[Registry[Any] | None] = None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if "registry" in cls.__dict__:
            return core_schema.no_info_plain_validator_function(cls._member)
        return handler(source)

    @classmethod
    def _member(cls, value: Any, place: str = "") -> Spec:
        """Turn what a file says (a kind, or a mapping with one) into a part of this role."""
        if isinstance(value, cls):
            return value
        assert cls.registry is not None
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, Mapping):
            raise SpecError(f"should be a {cls.registry.what} or its kind, got {value!r}")
        if "kind" not in value:
            raise SpecError(f"should say which {cls.registry.what}: 'kind' is missing; {list_available(cls.registry)}")
        part = cls.registry[value["kind"]]
        return part.parse({k: v for k, v in value.items() if k != "kind"}, place)  # type: ignore[no-any-return]

    @classmethod
    def parse(cls, value: Any, place: str = "") -> Self:
        """This spec from plain data; every fault is in one error, at its place below `place`."""
        if "registry" in cls.__dict__:
            return cls._member(value, place)  # type: ignore[return-value]
        try:
            return TypeAdapter(cls).validate_python(value)
        except pydantic.ValidationError as error:
            raise SpecError(*_faults(cls, error, place)) from None

    def plain(self) -> dict[str, Any]:
        """This spec as plain data, ready for JSON; `parse` gives it back."""
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"kind": kind_of(type(self)), **fields} if self.registry is not None else fields

    def json(self) -> str:
        return json.dumps(self.plain(), indent=2, ensure_ascii=False)

    def walk(self, path: str = "") -> Iterator[tuple[str, Spec]]:
        """Every spec inside this one, with its dotted path; this one first."""
        yield path, self
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value, below = getattr(self, f.name), f"{path}.{f.name}" if path else f.name
            if isinstance(value, Spec):
                yield from value.walk(below)
            elif isinstance(value, tuple):
                for i, item in enumerate(value):
                    if isinstance(item, Spec):
                        yield from item.walk(f"{below}.{i}")

    def replace(self, path: str, value: Any) -> Self:
        """A copy with one field changed: `spec.replace("decoder.block.mix.heads", 4)`."""
        for key in reversed(path.split(".")):
            value = {key: value}
        return self.overlay(value)

    def overlay(self, changes: Mapping[str, Any]) -> Self:
        """A copy with nested changes laid over it. A changed `kind` keeps the fields both kinds have."""
        role = next(cls for cls in type(self).__mro__ if "registry" in cls.__dict__)
        owner = type(self) if role is Spec else role  # a part may become another kind of its role
        return owner.parse(_overlay(self, changes))  # type: ignore[attr-defined, no-any-return]


@dataclass_transform(frozen_default=True)
def spec(cls: C) -> C:
    """Make a class a frozen, validated spec whose constructor raises our errors."""
    made = pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(extra="forbid"))(cls)
    init: Callable[..., None] = made.__init__

    def __init__(self: Any, *args: Any, **values: Any) -> None:
        try:
            init(self, *args, **values)
        except pydantic.ValidationError as error:
            raise SpecError(*_faults(made, error)) from None

    __init__.__wrapped__ = init  # type: ignore[attr-defined]
    made.__init__ = __init__  # type: ignore[method-assign]
    return made  # type: ignore[return-value]


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.plain()
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _overlay(old: Any, new: Any) -> Any:
    """Plain data of `old` with `new` laid over it, level by level."""
    if isinstance(new, str) and isinstance(old, Spec) and old.registry is not None:
        new = {"kind": new}  # `mix=performer` is short for `mix.kind=performer`
    if not isinstance(new, Mapping) or not isinstance(old, (Spec, tuple)):
        return new
    if isinstance(old, tuple):  # blocks.0.mix: a numbered place in a tuple
        items = list(old)
        for key, value in new.items():
            if not key.isdigit() or int(key) >= len(items):
                raise SpecError(f"no place {key!r} among {len(items)} items")
            items[int(key)] = _overlay(items[int(key)], value)
        return items
    kind = new.get("kind")
    if old.registry is None or kind is None or kind == kind_of(type(old)):
        fields = {f.name: getattr(old, f.name) for f in dataclasses.fields(old)}  # type: ignore[arg-type]
    else:
        fields = _shared_fields(old, old.registry[kind])
    merged = {**fields, **{k: _overlay(fields.get(k), v) for k, v in new.items() if k != "kind"}}
    return {"kind": kind or kind_of(type(old)), **merged} if old.registry is not None else merged


def _shared_fields(old: Spec, part: type) -> dict[str, Any]:
    """Return what a part of another kind takes over: the fields both have that were set."""
    known = {f.name for f in dataclasses.fields(part)}
    values = {f.name: getattr(old, f.name) for f in dataclasses.fields(old) if f.name in known}  # type: ignore[arg-type]
    return {f.name: values[f.name] for f in dataclasses.fields(old) if values.get(f.name, f.default) != f.default}  # type: ignore[arg-type]


def _faults(cls: type, error: pydantic.ValidationError, under: str = "") -> list[str]:
    """All faults of a spec, each with its place and the nearest valid key."""
    lines = []
    for fault in error.errors(include_url=False)[:_FAULTS]:
        place = ".".join(filter(None, [under, _place(cls, fault["loc"])]))
        key = str(fault["loc"][-1]) if fault["loc"] else ""
        cause = fault.get("ctx", {}).get("error")
        if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            owner = _owner(cls, fault["loc"][:-1])
            lines.append(f"no key {place!r}" + offer(key, [f.name for f in dataclasses.fields(owner)]))
        elif fault["type"] in ("missing", "missing_argument"):
            lines.append(f"{place} is missing")
        elif isinstance(cause, SpecError):  # ours already: a part's own faults, or a check of the whole spec
            lines += [f"{place}: {said}" if place else said for said in cause.faults]
        else:
            said = fault["msg"].removeprefix("Value error, ")
            got = "" if isinstance(fault["input"], (Mapping, Spec)) else f", got {fault['input']!r}"
            text = f"{said[0].lower()}{said[1:]}{got}"
            lines.append(f"{place}: {text}" if place else text)
    more = error.error_count() - _FAULTS
    return [*lines, f"and {more} faults more"] if more > 0 else lines


_FAULTS = 50  # that are told; a file that somebody sent may have a million


def _place(cls: type, loc: tuple[int | str, ...]) -> str:
    """A fault's place as a dotted path; a positional argument goes by its field's name."""
    if loc and isinstance(loc[0], int):
        positional = [f.name for f in dataclasses.fields(cls) if not f.kw_only]
        loc = (positional[loc[0]] if loc[0] < len(positional) else f"argument {loc[0] + 1}", *loc[1:])
    return ".".join(str(p) for p in loc)


def _owner(cls: type, loc: tuple[int | str, ...]) -> type:
    """The spec class that a fault's place lies in, as far as annotations tell."""
    for key in loc:
        hint = typing.get_type_hints(cls).get(str(key))
        found = next((t for t in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(t)), None)
        if not isinstance(found, type):
            return cls
        cls = found
    return cls
