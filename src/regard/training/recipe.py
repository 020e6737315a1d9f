"""Recipes: everything a run is made of, in one YAML file. Defaults < advice from the data < recipe < `--set`."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from ruamel.yaml import YAML

from regard.decode import Search
from regard.errors import SpecError
from regard.families.expand import expand_model, family_arguments, model_keys
from regard.model.model_spec import ModelSpec
from regard.spec import Count, Share, Spec, spec
from regard.training.finetune import FineTuning
from regard.training.optimizer import Adam, OptimizerSpec
from regard.training.optimizer import Muon as Muon  # one of the optimisers a recipe may name
from regard.training.schedule import InverseSqrt, ScheduleSpec


@spec
class Averaging(Spec):
    """The final model is the mean of `count` snapshots, the `last` or the `best` ones, taken at each validation."""

    which: Literal["last", "best"] = "last"
    count: Count = 5


@spec
class Train(Spec):
    """How long, how fast and how carefully to train."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    epochs: Count | None = None
    steps: Count | None = None
    """Training ends after so many passes or steps, whichever comes first."""
    batch_tokens: Count | Literal["auto"] = 4096
    """Padded tokens a batch holds at most, on its longer side; `auto`: as many as fit into memory."""
    accumulate: Count = 1
    """Batches an update is made of."""
    optimizer: OptimizerSpec = Adam()
    schedule: ScheduleSpec = InverseSqrt()
    label_smoothing: Share = 0.1
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    ema: Share | None = None
    finetune: FineTuning | None = None
    """What of the model learns, and how fast; without it, all of it alike."""
    average: Averaging | None = None
    validate_every: Count | None = None
    """Steps between validations; without it, ten times in all."""
    save_every: Count | None = None
    """Steps between checkpoints; without it, at each validation."""
    log_every: Count = 50
    patience: Count | None = None
    """Stop after so many validations without a better score."""
    keep_checkpoints: Count = 2
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None

    def __post_init__(self) -> None:
        if self.epochs is None and self.steps is None:
            raise SpecError("say how long to train: `epochs` or `steps`")


@spec
class Recipe(Spec):
    """A run: the task and its data, the model, the training, and how to decode."""

    task: str
    train: Train
    data: dict[str, Any] = Field(default_factory=dict)
    model: dict[str, Any] = Field(default_factory=dict)
    decode: Search = Search()
    about: str = ""

    def model_spec(self, facts: Mapping[str, Any], notes: list[str] | None = None) -> ModelSpec:
        """The model: the family called with its arguments and the data's facts, then everything else laid over it."""
        return expand_model(self.model, facts, notes)

    def yaml(self) -> str:
        out = io.StringIO()
        YAML().dump(json.loads(self.json()), out)
        return out.getvalue()


def check_placement(asked: Mapping[str, Any], settings: type[Spec]) -> None:
    """Refuse a key whose place is further down (`steps`, for `train.steps`), and say where; `settings` are the task's."""
    model = asked.get("model", {})
    homes = {"train": field_names(Train), "model": model_keys(model) if isinstance(model, Mapping) else set()}
    homes |= {"data": field_names(settings), "decode": field_names(Search)}
    faults = []
    for key in (key for key in asked if key not in field_names(Recipe)):
        if places := [repr(f"{home}.{key}") for home, names in homes.items() if key in names]:
            faults.append(f"no key {key!r}; did you mean {' or '.join(places)}?")
    if faults:
        raise SpecError(*faults)


def field_names(part: type[Spec]) -> set[str]:
    return {field.name for field in dataclasses.fields(part)}  # type: ignore[arg-type]


def select_supported(advised: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What of the advice a model can be told that was asked for; another family has other words."""
    if "spec" in asked:
        return {}
    known = family_arguments(str(asked.get("family", advised.get("family", "transformer"))))
    return {key: value for key, value in advised.items() if key in known or key == "family"}


def list_overrides(advised: Mapping[str, Any], asked: Mapping[str, Any], path: str = "") -> list[str]:
    """What was asked for otherwise than advised, as `model.width 32`."""
    out = []
    for key, value in asked.items():
        if key not in advised or advised[key] == value:
            continue
        if isinstance(value, Mapping) and isinstance(advised[key], Mapping):
            out += list_overrides(advised[key], value, f"{path}{key}.")
        else:
            out.append(f"{path}{key} {value}")
    return out
