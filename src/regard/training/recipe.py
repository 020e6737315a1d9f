"""The recipe: everything a run is made of, as one spec."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field
from ruamel.yaml import YAML

from regard.decode import Search
from regard.engine.choose_engine import EngineName
from regard.errors import SpecError
from regard.families.expand import expand_model, family_arguments, model_keys
from regard.model.model_spec import ModelSpec
from regard.spec import Count, Plain, Share, Spec, spec
from regard.training.finetune import FineTuning
from regard.training.optimizer import Adam, OptimizerSpec
from regard.training.optimizer import Muon as Muon  # registered for recipes
from regard.training.schedule import InverseSqrt, ScheduleSpec


@spec
class Averaging(Spec):
    """The final model is the mean of `count` snapshots taken at validations: the `last` ones or the `best` ones."""

    which: Literal["last", "best"] = "last"
    count: Count = 5


@spec
class Train(Spec):
    """Training: length, batches, optimizer, schedule, validation, checkpoints."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    epochs: Count | None = None
    steps: Count | None = None
    """Training ends after this many epochs or steps, whichever comes first."""
    batch_tokens: Count | Literal["auto"] = 4096
    """Maximum number of padded tokens per batch, on its longer side; `auto`: as many as fit into memory."""
    accumulate: Count = 1
    """Batches per optimizer step."""
    optimizer: OptimizerSpec = Adam()
    schedule: ScheduleSpec = InverseSqrt()
    label_smoothing: Share = 0.1
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    gradient_noise: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Standard deviation of noise added to clipped gradients at step 1; it falls with the fourth root of the step."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    ema: Share | None = None
    finetune: FineTuning | None = None
    """Weights that learn, and how fast; by default all of them alike."""
    average: Averaging | None = None
    validate_every: Count | None = None
    """Steps between validations; by default ten validations per run."""
    validation_engine: EngineName = "torch"
    """Engine that decodes at validation: `torch`, or `native` and `auto` as for `regard run`. The log says
    which engine it was."""
    save_every: Count | None = None
    """Steps between checkpoints; by default one at each validation."""
    log_every: Count = 50
    patience: Count | None = None
    """Stop after this many validations without a better score."""
    keep_checkpoints: Count = 2
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None

    def __post_init__(self) -> None:
        if self.epochs is None and self.steps is None:
            raise SpecError("train needs a length: set `steps` or `epochs`")


@spec
class Recipe(Spec):
    """A run: the task and its data, the model, the training, and how to decode."""

    task: str
    train: Train
    data: Plain = Field(default_factory=dict)
    model: Plain = Field(default_factory=dict)
    decode: Search = Search()
    about: str = ""
    purpose: str = ""
    """Purpose of people who use it: the heading under which `regard recipes` lists it."""

    def model_spec(self, facts: Mapping[str, object], notes: list[str] | None = None) -> ModelSpec:
        """Expand the `model` section, with the data's `facts` (vocabulary, length) as defaults."""
        return expand_model(self.model, facts, notes)

    def yaml(self) -> str:
        """The recipe as YAML, every key written out."""
        out = io.StringIO()
        YAML().dump(json.loads(self.json()), out)
        return out.getvalue()


def check_placement(requested: Mapping[str, object], settings: type[Spec]) -> None:
    """Refuse a top-level key that belongs into a section (`steps` for `train.steps`); `settings` are the task's."""
    model = requested.get("model", {})
    homes = {"train": field_names(Train), "model": model_keys(model) if isinstance(model, Mapping) else set()}
    homes |= {"data": field_names(settings), "decode": field_names(Search)}
    faults = []
    for key in (key for key in requested if key not in field_names(Recipe)):
        if places := [repr(f"{home}.{key}") for home, names in homes.items() if key in names]:
            faults.append(f"no key {key!r}; did you mean {' or '.join(places)}?")
    if faults:
        raise SpecError(*faults)


def field_names(part: type[Spec]) -> set[str]:
    """The keys of a spec."""
    return {field.name for field in dataclasses.fields(part)}  # type: ignore[arg-type]


def select_supported(suggested: Mapping[str, object], requested: Mapping[str, object]) -> Plain:
    """The suggested model settings that the chosen family knows."""
    if "spec" in requested:
        return {}
    known = family_arguments(str(requested.get("family", suggested.get("family", "transformer"))))
    return {key: value for key, value in suggested.items() if key in known or key == "family"}


def list_overrides(suggested: Mapping[str, object], requested: Mapping[str, object], path: str = "") -> list[str]:
    """Settings that differ from what was suggested, as `model.width 32`."""
    out = []
    for key, value in requested.items():
        other = suggested.get(key, value)
        if other == value:
            continue
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            out += list_overrides(other, value, f"{path}{key}.")
        else:
            out.append(f"{path}{key} {value}")
    return out
