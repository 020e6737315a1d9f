from __future__ import annotations

import inspect
import math
from contextlib import suppress

import pytest
import torch

from regard import families
from regard.errors import RegardError, SpecError, UnknownName
from regard.families.expand import expand_model
from regard.families.named_sizes import resolve_size
from regard.model.model_spec import ModelSpec
from regard.model.tree import summary
from regard.nn.mixers.full import FullMixer
from regard.recipes.merge import list_recipes


def test_a_family_is_found_by_its_files_name() -> None:
    assert {"gpt", "transformer"} <= set(families.names())
    for name in families.names():
        assert families.find(name) is getattr(families, name).spec
        assert isinstance(families.find(name)(), ModelSpec)


def test_an_unknown_family() -> None:
    with pytest.raises(UnknownName, match=r"^no family 'transfromer'; did you mean 'transformer'\?$"):
        families.find("transfromer")
    with pytest.raises(AttributeError, match=r"^module 'regard.families' has no attribute 'rnnn'; there is .*gpt"):
        _ = families.rnnn


def test_no_size_has_the_name_of_a_recipe() -> None:
    """`regard show NAME` takes either."""
    assert not families.sizes().keys() & list_recipes().keys()


@pytest.mark.parametrize("name", families.names())
def test_every_size_builds(name: str) -> None:
    family = getattr(families, name)
    assert families.sizes().items() >= dict.fromkeys(family.SIZES, name).items()
    with torch.device("meta"):
        counts = [sum(p.numel() for p in family.spec(size).build().parameters()) for size in family.SIZES]
    assert counts == sorted(counts)


@pytest.mark.parametrize("name", families.names())
def test_the_smallest_size_can_be_drawn(name: str) -> None:
    """It runs, too: how attention goes in training is learned by running it."""
    family = getattr(families, name)
    with torch.device("meta"):
        net = family.spec(next(iter(family.SIZES))).build()
        facts = summary(net)
    assert facts["parameters"] == sum(p.numel() for p in net.parameters())
    assert set(facts["plans"]) >= {n for n, part in net.named_modules() if isinstance(part, FullMixer)}


def test_numbers_given_replace_those_of_the_size() -> None:
    sizes = {"small": {"width": 8, "hidden": 32, "heads": 2}}
    assert resolve_size(sizes, "small", width=None, heads=4) == {"width": 8, "hidden": 32, "heads": 4}
    assert resolve_size(sizes, "small", width=16) == {"width": 16, "hidden": 64, "heads": 2}
    assert resolve_size(sizes, "small", width=16, hidden=20)["hidden"] == 20


def test_an_unknown_size_lists_all() -> None:
    with pytest.raises(UnknownName, match=r"^no size 'huge'; available: small$"):
        resolve_size({"small": {}}, "huge")


@pytest.mark.parametrize("family", families.names())
def test_no_size_is_too_much_to_refuse(family: str) -> None:
    """Families make layers and divide by widths before a spec checks them."""
    for argument in inspect.signature(families.find(family)).parameters:
        for size in (2**70, 10**9, 0, -1, 0.0, math.inf, math.nan, [2**70], "x"):
            with suppress(RegardError):
                expand_model({"family": family, argument: size}, {"vocab": 20, "length": 16})
    if "depth" in inspect.signature(families.find(family)).parameters:
        with pytest.raises(SpecError, match=r"model.depth is 1,000,000,000; a stack may have at most 500 layers"):
            expand_model({"family": family, "depth": 10**9}, {"vocab": 20, "length": 16})
