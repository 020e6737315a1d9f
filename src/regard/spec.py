"""Specs: frozen values that describe what to build.

A spec can be written in Python, JSON or YAML. It contains plain values and other specs, so `spec == spec` means "the same
model". A field may be a *role* (a mixer, a norm, a position ...): then files choose the part by its `kind`, which is looked up
in the registry of the role and never imported by path:

    Full(heads=4)   <->   {"kind": "full", "heads": 4}   <->   mix: full   # if all other fields have defaults
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


def _check_number(value: object) -> object:
    """Refuse what would be taken for a number: `true` as 1, and text in quotes."""
    if isinstance(value, bool | str):
        raise ValueError("should be a whole number")
    return value


Count = Annotated[int, pydantic.BeforeValidator(_check_number), Field(ge=1, le=1 << 40)]
"""An integer of at least 1; the maximum is beyond any use, but still valid for torch and NumPy."""
Heads = Annotated[int, Field(ge=1, le=4096)]
"""A number of attention heads; the maximum is far more than any model has, and few enough to iterate over."""
VocabSize = Annotated[int, Field(ge=1, le=10_000_000)]
"""A number of tokens to learn; a library allocates memory for as many at once."""
Share = Annotated[float, Field(ge=0, lt=1)]
"""A probability or share, below 1."""
Plain = dict[str, Any]
"""An object of JSON or YAML: a recipe, a configuration, an event of a log, or a part of one."""


class Spec:
    """Base of every spec. A class that sets `registry` is a role: fields of its type accept any part in that registry."""

    registry: ClassVar[Registry[Any] | None] = None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        if "registry" in cls.__dict__:
            return core_schema.no_info_plain_validator_function(cls._member)
        return handler(source)

    @classmethod
    def _member(cls, value: object, place: str = "") -> Spec:
        """Build a part of this role from plain data: a kind, or a mapping with a kind."""
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
    def parse(cls, value: object, place: str = "") -> Self:
        """Build this spec from plain data. One error lists all faults with their paths, below `place`."""
        if "registry" in cls.__dict__:
            return cls._member(value, place)  # type: ignore[return-value]
        try:
            return TypeAdapter(cls).validate_python(value)
        except pydantic.ValidationError as error:
            raise SpecError(*_faults(cls, error, place)) from None

    def plain(self) -> Plain:
        """Return this spec as plain data for JSON; `parse` restores it."""
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"kind": kind_of(type(self)), **fields} if self.registry is not None else fields

    def json(self) -> str:
        return json.dumps(self.plain(), indent=2, ensure_ascii=False)

    def walk(self, path: str = "") -> Iterator[tuple[str, Spec]]:
        """Yield this spec and every spec inside it, with their dotted paths."""
        yield path, self
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value, below = getattr(self, f.name), f"{path}.{f.name}" if path else f.name
            if isinstance(value, Spec):
                yield from value.walk(below)
            elif isinstance(value, tuple):
                for i, item in enumerate(value):
                    if isinstance(item, Spec):
                        yield from item.walk(f"{below}.{i}")

    def replace(self, path: str, value: object) -> Self:
        """Return a copy with one field changed: `spec.replace("decoder.block.mix.heads", 4)`."""
        *above, last = path.split(".")
        changes = {last: value}
        for key in reversed(above):
            changes = {key: changes}
        return self.overlay(changes)

    def overlay(self, changes: Mapping[str, object]) -> Self:
        """Return a copy with nested changes. If a `kind` changes, fields that both kinds declare alike are kept."""
        role = next(cls for cls in type(self).__mro__ if "registry" in cls.__dict__)
        owner = type(self) if role is Spec else role  # a part may become another kind of its role
        return owner.parse(_overlay(self, changes))  # type: ignore[attr-defined, no-any-return]


@dataclass_transform(frozen_default=True)
def spec(cls: C) -> C:
    """Turn a class into a frozen, validated spec whose constructor raises `SpecError`."""
    made = pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))(cls)
    init: Callable[..., None] = made.__init__

    def __init__(self: object, *args: object, **values: object) -> None:
        try:
            init(self, *args, **values)
        except pydantic.ValidationError as error:
            raise SpecError(*_faults(made, error)) from None

    __init__.__wrapped__ = init  # type: ignore[attr-defined]
    made.__init__ = __init__  # type: ignore[method-assign]
    return made  # type: ignore[return-value]


def _plain(value: object) -> object:
    if isinstance(value, Spec):
        return value.plain()
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _overlay(old: object, new: object) -> object:
    """Return plain data of `old`, overlaid by `new` level by level."""
    if isinstance(new, str) and isinstance(old, Spec) and old.registry is not None:
        new = {"kind": new}  # `mix=performer` is short for `mix.kind=performer`
    if not isinstance(new, Mapping) or not isinstance(old, (Spec, tuple)):
        return new
    if isinstance(old, tuple):  # blocks.0.mix: an index into a tuple
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


def _shared_fields(old: Spec, part: type) -> dict[str, object]:
    """Return what a part of another kind takes over: the fields that were set and mean the same in both."""
    theirs = {f.name: f for f in dataclasses.fields(part)}
    own = [f for f in dataclasses.fields(old) if f.name in theirs and mean_the_same(f, theirs[f.name])]  # type: ignore[arg-type]
    return {f.name: value for f in own if (value := getattr(old, f.name)) != f.default}


def mean_the_same(a: dataclasses.Field[Any], b: dataclasses.Field[Any]) -> bool:
    """True if fields of one name in two kinds mean the same: their default is, or one needs a value and their type is."""
    return a.default == b.default or (dataclasses.MISSING in (a.default, b.default) and a.type == b.type)


def _faults(cls: type, error: pydantic.ValidationError, under: str = "") -> list[str]:
    """Return all faults of a spec, each with its path; for unknown keys, with a near name."""
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
        elif isinstance(cause, SpecError):  # the faults of a nested part, or of a check of the whole spec
            lines += [f"{place}: {said}" if place else said for said in cause.faults]
        else:
            said = fault["msg"].removeprefix("Value error, ")
            got = "" if isinstance(fault["input"], (Mapping, Spec)) else f", got {fault['input']!r}"
            text = f"{said[0].lower()}{said[1:]}{got}"
            lines.append(f"{place}: {text}" if place else text)
    more = error.error_count() - _FAULTS
    return [*lines, f"and {more} more faults"] if more > 0 else lines


def describe_faults(error: pydantic.ValidationError, under: str = "") -> str:
    """Describe the faults of something other than a spec, in one line; each fault with its path below `under`."""
    faults = error.errors(include_url=False)[:_FAULTS]
    places = [".".join(str(part) for part in (*filter(None, [under]), *fault["loc"])) for fault in faults]
    said = [f"{fault['msg'][0].lower()}{fault['msg'][1:]}, got {repr(fault['input'])[:200]}" for fault in faults]
    return "; ".join(f"{place}: {text}" if place else text for place, text in zip(places, said, strict=True))


_FAULTS = 50  # maximum number of listed faults; an untrusted file may have a million


def _place(cls: type, loc: tuple[int | str, ...]) -> str:
    """Return the location of a fault as a dotted path; a positional argument has the name of its field."""
    if loc and isinstance(loc[0], int):
        positional = [f.name for f in dataclasses.fields(cls) if not f.kw_only]
        loc = (positional[loc[0]] if loc[0] < len(positional) else f"argument {loc[0] + 1}", *loc[1:])
    return ".".join(str(p) for p in loc)


def _owner(cls: type, loc: tuple[int | str, ...]) -> type:
    """Return the spec class that contains the location of a fault, as far as annotations tell."""
    for key in loc:
        hint = typing.get_type_hints(cls).get(str(key))
        found = next((t for t in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(t)), None)
        if not isinstance(found, type):
            return cls
        cls = found
    return cls
