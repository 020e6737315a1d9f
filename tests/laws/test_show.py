"""Every part can be shown: `regard show` runs a model that has shapes and no numbers."""

from __future__ import annotations

import pytest
import torch

from regard.model.tree import summary, tree
from tests.laws.examples import BOTH, DECODERS, ENCODERS, IMAGES, STORIES, Case, name_of


@pytest.mark.parametrize("case", [*[*DECODERS, *ENCODERS, *BOTH][::3], *IMAGES, *STORIES], ids=name_of)
def test_a_model_without_numbers_is_shown(case: Case) -> None:
    with torch.device("meta"):
        net = case.spec.build()
    assert "parameters" in tree(net, 8)
    assert summary(net, 8)["parameters"] == sum(p.numel() for p in net.parameters())
