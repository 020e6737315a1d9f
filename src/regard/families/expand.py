"""Turn the `model` section of a recipe into a spec."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping

import pydantic

from regard import families
from regard.errors import SpecError, offer
from regard.model.changes import change_model
from regard.model.model_spec import ModelSpec
from regard.model.mup import parametrize
from regard.nn.blocks.body import MAX_LAYERS
from regard.spec import describe_faults

DEFAULT = "transformer"


def expand_model(model: Mapping[str, object], facts: Mapping[str, object], notes: list[str] | None = None) -> ModelSpec:
    """Build the spec of `{family: gpt, width: 128, decoder: {block: …}}`.

    Keys that the family function takes are its arguments, with the data's `facts` as defaults; the others are overlaid on
    the result. `{spec: …}` is a complete model, and everything else an overlay. What
    the changes imply without saying so is added to `notes`.
    """
    check_model_keys(model)
    if "spec" in model:
        base, known = ModelSpec.parse(model["spec"]), set[str]()
    else:
        name = str(model.get("family", DEFAULT))
        family, known = families.find(name), family_arguments(name)
        for key in ("width", "heads"):  # families divide by these before any spec is made
            if isinstance(size := model.get(key), int | float) and not size >= 1:
                raise SpecError(f"model.{key} should be at least 1, got {size}")
        for key, size in model.items():  # families make their layers before any spec counts them
            if key.endswith("depth") and isinstance(size, int | float) and size > MAX_LAYERS:
                raise SpecError(f"model.{key} is {size:,}; a stack may have at most {MAX_LAYERS} layers")
        try:
            base = pydantic.validate_call(family)(**{k: v for k, v in {**facts, **model}.items() if k in known})
        except pydantic.ValidationError as error:
            raise SpecError(describe_faults(error, "model")) from None
    overlay = {k: v for k, v in model.items() if k not in known and k not in ("family", "spec", "mup_base")}
    spec, implied = change_model(base, overlay) if overlay else (base, [])
    if (width := model.get("mup_base")) is not None:  # last: it depends on all of the model's parts
        spec = parametrize(spec, ModelSpec.parse(spec.plain() | {"mup_base": width}).mup_base or spec.width)
    if notes is not None:
        notes += implied
    return spec


def switch_family(model: Mapping[str, object], changes: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    """Return the settings of a recipe's `model` that stay when `changes` name another family: those it has too.

    What is left out is added to `notes`.
    """
    other = str(changes.get("family", DEFAULT))
    if "family" not in changes or "spec" in model or other == str(model.get("family", DEFAULT)):
        return dict(model)
    known = family_arguments(other) - {"size"}
    if lost := [key for key in model if key not in known and key != "family"]:
        notes.append(f"left out of the recipe's model, because {other!r} does not have them: {', '.join(lost)}")
    return {key: value for key, value in model.items() if key in known}


def check_model_keys(model: Mapping[str, object]) -> None:
    """Refuse an unknown family, and keys that it does not have."""
    known = model_keys(model)
    for key in model:
        if key not in known:
            name = "spec" if "spec" in model else str(model.get("family", DEFAULT))
            raise SpecError(f"no key 'model.{key}' in {name!r}" + offer(key, sorted(known)))


def model_keys(model: Mapping[str, object]) -> set[str]:
    """Return every key that this `model` section may have: the family's arguments, and the parts that all models have."""
    own = set() if "spec" in model else family_arguments(str(model.get("family", DEFAULT)))
    return {"family", "spec"} | {field.name for field in dataclasses.fields(ModelSpec)} | own


def family_arguments(family: str) -> set[str]:
    """Return the names of a family function's arguments."""
    return set(inspect.signature(families.find(family)).parameters)
