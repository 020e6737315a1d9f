"""A spec is what its JSON says, and every change to it is a change to one place."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from itertools import product

import pytest

from regard import families
from regard.errors import SpecError
from regard.laws.case import Case, describe
from regard.laws.round_trip import check_model, check_part
from regard.nn.blocks.wiring import Bare, PostNorm, PreNorm, WiringSpec
from regard.nn.layers.norm import RMSNorm
from regard.registry import kind_of
from regard.spec import Spec, mean_the_same
from tests.laws.examples import BOTH, DECODERS, ENCODERS, EXAMPLES, IMAGES, STORIES, name_of

PARTS = [part for _, examples in EXAMPLES.values() for row in examples.values() for part in row]
FAMILIES = [families.find(family)(size) for size, family in families.sizes().items()]


def back(spec: Spec) -> Spec:
    return type(spec).parse(json.loads(spec.json()))


@pytest.mark.parametrize("part", PARTS, ids=describe)
def test_a_part_through_json(part: Spec) -> None:
    check_part(part)


def test_models_through_json() -> None:
    for spec in [c.spec for c in ENCODERS + DECODERS + BOTH + IMAGES + STORIES] + FAMILIES:
        assert back(spec) == spec
        assert hash(back(spec)) == hash(spec)


def test_specs_are_equal_only_if_they_are_the_same_model() -> None:
    specs = [c.spec for c in ENCODERS + DECODERS + BOTH + IMAGES + STORIES] + FAMILIES
    assert len({spec.json() for spec in specs}) == len(set(specs))


@pytest.mark.parametrize("case", DECODERS[::7] + BOTH[::7] + IMAGES + STORIES, ids=name_of)
@pytest.mark.numeric
def test_the_spec_read_back_builds_the_same_model(case: Case) -> None:
    check_model(case)


@pytest.mark.parametrize("case", DECODERS[::9] + BOTH[::9] + IMAGES + STORIES, ids=name_of)
def test_replacing_any_part_by_itself_changes_nothing(case: Case) -> None:
    for path, part in case.spec.walk():
        if path:
            assert case.spec.replace(path, part) == case.spec
            assert case.spec.replace(path, part.plain()) == case.spec


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("decoder.position", "position"),
        ("decoder.wiring", "wiring"),
        ("decoder.wiring.norm", "norm"),
        ("decoder.block.mix.mask", "rule"),
        ("decoder.block.feed", "feed"),
    ],
)
def test_one_word_changes_the_kind_of_a_part(path: str, role: str) -> None:
    """From every example to every kind: what means the same in both is kept, the rest takes the new kind's default."""
    _, examples = EXAMPLES[role]
    for part, kind in product([p for row in examples.values() for p in row], examples):
        spec = DECODERS[0].spec.replace(path, part)
        try:
            changed = dict(spec.replace(f"{path}.kind", kind).walk())[path]
        except SpecError as error:
            assert re.search("is missing|should be", str(error))
            continue
        assert kind_of(type(changed)) == kind
        own = {f.name: f for f in fields(part)}  # type: ignore[arg-type]
        for field in fields(changed):  # type: ignore[arg-type]
            said = getattr(part, field.name, None)
            chosen = field.name in own and said != own[field.name].default and mean_the_same(own[field.name], field)
            assert getattr(changed, field.name) == (said if chosen else field.default)


@pytest.mark.parametrize(
    ("start", "kind"), [(PreNorm(), "bare"), (Bare(), "post_norm"), (PostNorm(RMSNorm()), "parallel")]
)
def test_every_wiring_is_one_word_away(start: WiringSpec, kind: str) -> None:
    spec = DECODERS[0].spec.replace("decoder.wiring.kind", kind_of(type(start))).replace("decoder.wiring", start)
    assert kind_of(type(spec.replace("decoder.wiring.kind", kind).decoder.wiring)) == kind  # type: ignore[union-attr]
