"""Change a model spec, with notes on what that implies.

A part of another kind keeps the settings that both kinds declare alike (name and default), and the notes say which. A position
code in a stack or mixer (rotary, ALiBi ...) replaces the absolute positions of the embedding, unless that position is set
as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from regard.errors import SpecError
from regard.model.model_spec import ModelSpec
from regard.model.tree import words
from regard.nn.blocks.body import BodySpec
from regard.nn.positions.position import PositionSpec
from regard.registry import kind_of
from regard.spec import Spec, mean_the_same


def change_model(base: ModelSpec, changes: Mapping[str, object]) -> tuple[ModelSpec, list[str]]:
    """Apply nested changes to a model; return it with one note for each consequence that was not asked for."""
    spec = base.overlay(changes)
    notes = list(_compare_kinds(base, spec, changes))
    for name, sides in _readers(spec).items():
        position = getattr(getattr(spec, name), "position", None)
        own = changes.get(name)
        if not isinstance(position, PositionSpec) or "embed" not in position.acts:
            continue
        if own is not None and not (isinstance(own, Mapping) and "position" not in own):
            continue  # chosen together: both are wanted
        new = {side: _attention_position(getattr(spec, side)) for side in sides}
        gained = [side for side in sides if new[side] and not _attention_position(getattr(base, side))]
        if not gained:
            continue
        words = f"{gained[0]} position {new[gained[0]]!r}"
        if without := [side for side in sides if not new[side]]:
            raise SpecError(
                f"{words} would replace {name}.position={kind_of(type(position))!r}, which the {without[0]} needs too; "
                f"set model.{without[0]}.position as well, or model.{name}.position to keep both"
            )
        spec = spec.replace(f"{name}.position", None)
        notes.append(
            f"{words} replaces {name}.position={kind_of(type(position))!r}; set model.{name}.position to keep both"
        )
    return spec, notes


def _readers(spec: ModelSpec) -> dict[str, list[str]]:
    """The bodies that read each embedding."""
    both = spec.encoder is not None and spec.decoder is not None
    if spec.source is not None:
        return {"embed": ["decoder"], "source": ["encoder"]}
    return {"embed": ["encoder", "decoder"] if both else ["decoder" if spec.encoder is None else "encoder"]}


def _attention_position(body: BodySpec | None) -> str | None:
    """The kind of the position code that acts in the attention of every layer, if there is one."""
    if body is None:
        return None
    own = getattr(body, "position", None)
    found = [getattr(block.mix, "position", None) or own for block in body.layers() if block.mix is not None]
    acting = [p for p in found if isinstance(p, PositionSpec) and p.acts - {"embed"}]
    return kind_of(type(acting[0])) if acting and len(acting) == len(found) else None


def _compare_kinds(base: ModelSpec, spec: ModelSpec, changes: Mapping[str, object]) -> Iterator[str]:
    """Say for every part of another kind which settings it keeps, and which it does not: it lacks them, or has its own."""
    now, other = dict(spec.walk()), list[str]()
    for path, old in base.walk():
        new = now.get(path)
        if new is None or type(new) is type(old) or any(path.startswith(f"{each}.") for each in other):
            continue  # what is inside a part of another kind is said of that
        other.append(path)
        was, kind = kind_of(type(old)), kind_of(type(new))
        theirs, asked = {f.name: f for f in _fields(new)}, _find_asked(changes, path)
        kept, own, lost = list[str](), list[str](), list[str]()
        for f in _fields(old):
            value, there = getattr(old, f.name), theirs.get(f.name)
            if f.name in asked or f.default in (dataclasses.MISSING, value):
                continue
            if there is None:
                lost.append(f"{f.name}={value!r}")
            elif not mean_the_same(f, there):
                own.append(f"{f.name}={_say(value)} (it is {_say(getattr(new, f.name))} now)")
            elif there.default is not dataclasses.MISSING:
                kept.append(f"{f.name}={_say(value)} (the default of {kind!r} is {_say(there.default)})")
        if kept:
            yield f"{path}: kept from {was!r}: {', '.join(kept)}"
        if own:
            yield f"{path}: not kept from {was!r}, because {kind!r} means something else by it: {', '.join(own)}"
        if lost:
            yield f"{path}: {kind!r} does not have {', '.join(lost)} of {was!r}; dropped"


def _find_asked(changes: object, path: str) -> set[str]:
    """Return the settings of the part at a path that the changes give."""
    for key in path.split("."):
        changes = changes.get(key) if isinstance(changes, Mapping) else None
    return set(changes) if isinstance(changes, Mapping) else set()


def _say(value: object) -> str:
    return words(value) if isinstance(value, Spec) else repr(value)


def _fields(part: Spec) -> tuple[dataclasses.Field[object], ...]:
    return dataclasses.fields(part)  # type: ignore[arg-type]
