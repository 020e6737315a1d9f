"""Matching: every family within 1 % of a target, or refused with the nearest size."""

from __future__ import annotations

import pytest

from regard import families
from regard.errors import SpecError
from regard.families.expand import family_arguments
from regard.model.model_spec import ModelSpec
from regard.studies.match import TOLERANCE, Dial, Quantity, match_size, measure
from regard.training.recipe import Recipe

SMALL = {
    "width": 48,
    "depth": 2,
    "heads": 4,
    "hidden": 96,
    "vocab": 120,
    "length": 64,
    "embedding": 40,
    "image": 16,
    "patch": 4,
    "memory_length": 8,
}
LENGTH = 16
COARSE = {"bytenet", "neural_gpu", "extended_neural_gpu"}
"""Families with one dial and large steps: some sizes are refused, with the nearest."""


def recipe_of(family: str, **changes: object) -> Recipe:
    known = family_arguments(family)
    model = {"family": family} | {key: value for key, value in {**SMALL, **changes}.items() if key in known}
    return Recipe.parse({"task": "lm", "train": {"steps": 1}, "model": model})


def build(recipe: Recipe) -> ModelSpec:
    return recipe.model_spec({})


@pytest.mark.parametrize("quantity", ["parameters", "flops"])
@pytest.mark.parametrize("family", families.names())
def test_every_family_is_matched(family: str, quantity: Quantity) -> None:
    """Half and three times the size: within 1 %, built and measured again from the recipe."""
    recipe = recipe_of(family)
    own = measure(build(recipe), LENGTH, quantity)
    for factor in (0.5, 3.1):
        try:
            found = match_size(recipe, build, factor * own, quantity=quantity, length=LENGTH)
        except SpecError as error:
            assert family in COARSE and "the nearest is" in str(error)
            continue
        assert abs(measure(build(found.recipe), LENGTH, quantity) / (factor * own) - 1) <= TOLERANCE
        assert found.after.width % 2 == 0
        assert f"{found.before.width} → " in found.before.changes(found.after)


@pytest.mark.parametrize("dial", ["width", "depth"])
def test_a_variant_is_matched_to_its_baseline(dial: Dial) -> None:
    base, other = recipe_of("gpt", depth=4), recipe_of("llama", depth=4)
    target = measure(build(base), LENGTH, "parameters")
    found = match_size(other, build, target, quantity="parameters", length=LENGTH, dial=dial)
    assert abs(found.error) <= TOLERANCE


def test_a_whole_spec_is_resized_by_its_parts() -> None:
    spec = build(recipe_of("gpt"))
    recipe = Recipe.parse({"task": "lm", "train": {"steps": 1}, "model": {"spec": spec.plain()}})
    own = measure(spec, LENGTH, "parameters")
    for dial in ("width", "depth"):
        found = match_size(recipe, build, 2 * own, quantity="parameters", length=LENGTH, dial=dial)  # type: ignore[arg-type]
        assert abs(measure(build(found.recipe), LENGTH, "parameters") / (2 * own) - 1) <= TOLERANCE


def test_what_fits_stays() -> None:
    recipe = recipe_of("gpt")
    own = measure(build(recipe), LENGTH, "parameters")
    assert match_size(recipe, build, own * 1.005, quantity="parameters", length=LENGTH).recipe is recipe


def test_what_cannot_be_matched_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        SpecError, match=r"within 1% of 200 parameters: the nearest is width 48 → 8, .* use --resize depth"
    ):
        match_size(recipe_of("gpt"), build, 200, quantity="parameters", length=LENGTH)
