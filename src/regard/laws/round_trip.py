"""Round trip: a part or model read from JSON is the same one."""

from __future__ import annotations

import json

import torch

from regard.laws.case import Case, require
from regard.model.model_spec import ModelSpec
from regard.registry import kind_of
from regard.spec import Spec


def check_part(part: Spec) -> None:
    """A part read back from its JSON equals it."""
    role = next(c for c in type(part).__mro__ if "registry" in c.__dict__)
    data = json.loads(part.json())
    require(data["kind"] == kind_of(type(part)), f"its JSON has the kind {data['kind']!r}")
    made = role.parse(data)  # type: ignore[attr-defined]
    require((made, type(made), hash(made)) == (part, type(part), hash(part)), f"read back from JSON it is {made!r}")


def check_model(case: Case) -> None:
    """A spec read back from JSON builds the same model."""
    mine, other = (spec.build(3) for spec in (case.spec, ModelSpec.parse(json.loads(case.spec.json()))))
    theirs = dict(other.named_parameters())
    require([n for n, _ in mine.named_parameters()] == list(theirs), "the model read back has other parameters")
    same = all(torch.equal(p, theirs[n]) for n, p in mine.named_parameters())
    require(
        same, "the same seed gives other weights the second time; draw random numbers from torch's default generator"
    )
