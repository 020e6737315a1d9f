"""Change a model spec, with notes on what that implies.

A part of another kind keeps the settings that both kinds have. A position code in a stack or mixer (rotary, ALiBi ...)
replaces the absolute positions of the embedding, unless the embedding's position is set as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from regard.errors import SpecError
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.body import BodySpec
from regard.nn.positions.position import PositionSpec
from regard.registry import kind_of
from regard.spec import Spec


def change_model(base: ModelSpec, changes: Mapping[str, object]) -> tuple[ModelSpec, list[str]]:
    """Apply nested changes to a model; return it with one note for each consequence that was not asked for."""
    spec = base.overlay(changes)
    notes = list(_find_dropped(base, spec))
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


def _find_dropped(base: ModelSpec, spec: ModelSpec) -> Iterator[str]:
    """Say which settings were dropped because the new kind of a part does not have them."""
    now = dict(spec.walk())
    for path, old in base.walk():
        new = now.get(path)
        if new is None or type(new) is type(old):
            continue
        known = {f.name for f in _fields(new)}
        lost = [
            f"{f.name}={getattr(old, f.name)!r}" for f in _fields(old)
            if f.name not in known and f.default is not dataclasses.MISSING and getattr(old, f.name) != f.default
        ]  # fmt: skip
        if lost:
            yield f"{path}: {kind_of(type(new))!r} does not have {', '.join(lost)} of {kind_of(type(old))!r}; dropped"


def _fields(part: Spec) -> tuple[dataclasses.Field[object], ...]:
    return dataclasses.fields(part)  # type: ignore[arg-type]
