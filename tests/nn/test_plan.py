"""Which plan runs when, read off its reason. Coordinates lie on the meta device: reading one would raise."""

from __future__ import annotations

import pytest
import torch

from regard.nn.attention.plan import SHORT_BF16, Needs, Plan, plan
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Causal, Everything, Rule, Window

SPAN, RIGHT, LEFT = Coords.span(5), Coords.lengths([5, 3]), Coords.lengths([5, 3], left=True)
EMPTY, PACKED = Coords.lengths([5, 0]), Coords.documents([[2, 3], [4]])
NEW, GROWN = Coords.span(1, 5), Coords.span(6)
ROW = Coords(torch.arange(5).unsqueeze(0), torch.tensor([[0, 0, 1, 1, 1]]), first=0)
"""Two documents whose positions go on: without gaps, and yet no triangle."""
RAGGED = RIGHT.extend(Coords(torch.tensor([[5], [3]])))


def planned(rule: Rule, q: Coords, k: Coords, needs: Needs | None = None) -> Plan:
    return plan(rule, q.to("meta"), k.to("meta"), needs or Needs())


@pytest.mark.parametrize(
    ("rule", "q", "k", "reason", "causal", "masked", "empty"),
    [
        (Everything(), SPAN, SPAN, "no mask", False, False, False),
        (Everything(), RIGHT, SPAN, "no mask", False, False, False),
        (Everything(), SPAN, RIGHT, "mask of coordinates", False, True, False),
        (Everything(), SPAN, LEFT, "mask of coordinates", False, True, True),
        (Everything(), SPAN, EMPTY, "mask of coordinates", False, True, True),
        (Everything(), PACKED, PACKED, "mask of coordinates", False, True, True),
        (Everything(), PACKED, SPAN, "no mask", False, False, False),
        (Causal(), SPAN, SPAN, "causal triangle", True, False, False),
        (Causal(), RIGHT, RIGHT, "causal triangle", True, False, False),
        (Causal(), LEFT, LEFT, "mask of coordinates", False, True, True),
        (Causal(), EMPTY, EMPTY, "mask of coordinates", False, True, True),
        (Causal(), PACKED, PACKED, "mask of coordinates", False, True, True),
        (Causal(), NEW, GROWN, "the newest token sees all", False, False, False),
        (Causal(), Coords.span(2, 4), GROWN, "mask of coordinates", False, True, True),
        (Causal(), RAGGED.last(1), RAGGED, "mask of coordinates", False, True, True),
        (Causal(), Coords.span(1, 4), RIGHT, "mask of coordinates", False, True, True),
        (Causal(), ROW, ROW, "mask of coordinates", False, True, True),
        (Window(2), SPAN, SPAN, "mask of coordinates", False, True, True),
        (Causal() & Window(2), NEW, GROWN, "mask of coordinates", False, True, True),
    ],
)
def test_the_plan_for_each_mask(
    rule: Rule, q: Coords, k: Coords, reason: str, causal: bool, masked: bool, empty: bool
) -> None:
    made = planned(rule, q, k)
    assert made.reason == f"fused; {reason}"
    assert (made.fused, made.causal, made.keep is not None, made.empty) == (True, causal, masked, empty)
    if made.keep is not None:
        assert made.keep.ndim == 4
        assert (made.keep.shape[1], made.keep.shape[3]) == (1, k.n)


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        (Needs(weights=True), "plain: the weights are recorded"),
        (Needs(content=True), "plain: positions enter the scores"),
        (Needs(bias_grad=True), "plain: the bias is being trained"),
        (Needs(dropout=True), "plain: attention dropout"),
        (Needs(dtype=torch.bfloat16), "plain: short rows in bfloat16"),
        (Needs(dtype=torch.float64), "fused"),
        (Needs(), "fused"),
    ],
)
def test_the_plan_for_each_need(needs: Needs, why: str) -> None:
    made = planned(Causal(), SPAN, SPAN, needs)
    assert made.reason == f"{why}; causal triangle"
    assert made.fused == (why == "fused")
    assert made.causal != (made.keep is not None)  # the fused kernel has a triangle of its own


def test_long_rows_in_bfloat16_are_fused() -> None:
    at = Coords.span(SHORT_BF16)
    assert planned(Everything(), at, at, Needs(dtype=torch.bfloat16)).reason == "fused; no mask"


def test_the_plain_triangle_is_one() -> None:
    keep = plan(Causal(), Coords.span(3), Coords.span(3), Needs(weights=True)).keep
    assert keep is not None
    assert keep[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_a_plan_reads_no_tensor() -> None:
    with pytest.raises(RuntimeError, match="meta"):
        bool(SPAN.to("meta").pos.max() > 3)  # what reading one would do


def test_the_mask_as_numbers_is_made_once() -> None:
    made = plan(Window(1), Coords.span(3), Coords.span(3), Needs())
    added = made.additive_mask(torch.float64)
    assert added is not None
    assert added is made.additive_mask(torch.float64)
    assert added is not made.additive_mask(torch.float32)
    assert ((added == 0) == made.keep).all()
    assert planned(Everything(), Coords.span(3), Coords.span(3)).additive_mask(torch.float32) is None
