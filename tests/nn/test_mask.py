"""Masks drawn as small 0/1 matrices: a row for each query, a column for each key."""

from __future__ import annotations

from textwrap import dedent

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import SpecError
from regard.nn.core.coords import Coords
from regard.nn.core.mask import AllOf, AnyOf, Causal, Everything, Fixed, Rule, Strided, Tagged, Window, visible


def drawn(rule: Rule, q: Coords, k: Coords | None = None, row: int = 0) -> str:
    k = k or q
    keep = visible(rule, q, k)
    keep = torch.ones(1, q.n, k.n, dtype=torch.bool) if keep is None else keep.expand(-1, q.n, -1)
    return "\n".join(" ".join("1" if x else "." for x in line) for line in keep[row].tolist())


def picture(text: str) -> str:
    return dedent(text).strip()


FOUR = Coords.span(4)


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (Everything(), "1 1 1 1\n1 1 1 1\n1 1 1 1\n1 1 1 1"),
        (Causal(), "1 . . .\n1 1 . .\n1 1 1 .\n1 1 1 1"),
        (Window(1), "1 1 . .\n1 1 1 .\n. 1 1 1\n. . 1 1"),
        (Causal() & Window(1), "1 . . .\n1 1 . .\n. 1 1 .\n. . 1 1"),
        (Causal() | Window(1), "1 1 . .\n1 1 1 .\n1 1 1 1\n1 1 1 1"),
        (Everything() & Causal(), "1 . . .\n1 1 . .\n1 1 1 .\n1 1 1 1"),
        (Everything() | Causal(), "1 1 1 1\n1 1 1 1\n1 1 1 1\n1 1 1 1"),
        (Tagged(), ". . . .\n. . . .\n. . . .\n. . . ."),
    ],
)
def test_rules_on_four_tokens(rule: Rule, wanted: str) -> None:
    assert drawn(rule, FOUR) == wanted


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (
            Window(1, dilation=2),
            "1 . 1 . . .\n. 1 . 1 . .\n1 . 1 . 1 .\n. 1 . 1 . 1\n. . 1 . 1 .\n. . . 1 . 1",
        ),
        (
            Causal() & Strided(2),
            "1 . . . . .\n1 1 . . . .\n1 1 1 . . .\n. 1 1 1 . .\n1 . 1 1 1 .\n. 1 . 1 1 1",
        ),
        (
            Strided(3),
            "1 1 1 1 . .\n1 1 1 1 1 .\n1 1 1 1 1 1\n1 1 1 1 1 1\n. 1 1 1 1 1\n. . 1 1 1 1",
        ),
        (
            Causal() & Fixed(2),
            "1 . . . . .\n1 1 . . . .\n. 1 1 . . .\n. 1 1 1 . .\n. 1 . 1 1 .\n. 1 . 1 1 1",
        ),
        (
            Fixed(4, summary=2),
            "1 1 1 1 . .\n1 1 1 1 . .\n1 1 1 1 . .\n1 1 1 1 . .\n. . 1 1 1 1\n. . 1 1 1 1",
        ),
    ],
)
def test_rules_on_six_tokens(rule: Rule, wanted: str) -> None:
    assert drawn(rule, Coords.span(6)) == wanted


def test_a_summary_is_part_of_its_block() -> None:
    with pytest.raises(SpecError, match=r"^summary should be at most the stride 3, got 4$"):
        Fixed(3, summary=4)


def test_a_tagged_token_sees_all_and_is_seen_by_all() -> None:
    at = Coords(torch.arange(4).unsqueeze(0), tag=torch.tensor([[0, 1, 0, 0]]))
    assert drawn(Tagged() | Window(1), at) == picture("""
        1 1 . .
        1 1 1 1
        . 1 1 1
        . 1 1 1
    """)


def test_a_new_token_sees_what_is_remembered() -> None:
    assert drawn(Causal(), Coords.span(2, 3), Coords.span(5)) == picture("""
        1 1 1 1 .
        1 1 1 1 1
    """)


def test_padding_at_the_left_is_never_seen() -> None:
    at = Coords.lengths([4, 2], left=True)
    assert drawn(Causal(), at, row=1) == picture("""
        . . . .
        . . . .
        . . 1 .
        . . 1 1
    """)


def test_padding_at_the_right_is_never_seen() -> None:
    at = Coords.lengths([2, 4])
    assert drawn(Everything(), at) == picture("""
        1 1 . .
        1 1 . .
        1 1 . .
        1 1 . .
    """)


def test_prompts_of_different_lengths_then_one_token_more() -> None:
    prompts, new = Coords.lengths([1, 3]), Coords(torch.tensor([[1], [3]]))
    at = prompts.extend(new)
    assert drawn(Causal(), new, at, row=0) == "1 . . 1"
    assert drawn(Causal(), new, at, row=1) == "1 1 1 1"
    assert drawn(Causal() & Window(1), new, at, row=1) == ". . 1 1"


def test_documents_do_not_see_one_another() -> None:
    at = Coords.documents([[2, 3], [5]])
    assert drawn(Everything(), at) == picture("""
        1 1 . . .
        1 1 . . .
        . . 1 1 1
        . . 1 1 1
        . . 1 1 1
    """)
    assert drawn(Causal(), at) == picture("""
        1 . . . .
        1 1 . . .
        . . 1 . .
        . . 1 1 .
        . . 1 1 1
    """)


rules = st.recursive(
    st.sampled_from([Everything(), Causal(), Window(1), Window(2, dilation=2), Strided(2), Fixed(3, 2), Tagged()]),
    lambda below: st.builds(AllOf, st.tuples(below, below)) | st.builds(AnyOf, st.tuples(below, below)),
    max_leaves=5,
)


def says(rule: Rule, q: int, k: int, tag: set[int]) -> bool:
    """The rules once more, for one pair at a time."""
    match rule:
        case Everything():
            return True
        case Causal():
            return k <= q
        case Window(reach, dilation):
            return abs(q - k) <= reach * dilation and (q - k) % dilation == 0
        case Strided(stride):
            return abs(q - k) <= stride or (q - k) % stride == 0
        case Fixed(stride, summary):
            return q // stride == k // stride or k % stride >= stride - summary
        case Tagged():
            return q in tag or k in tag
        case AllOf(parts):
            return all(says(r, q, k, tag) for r in parts)
        case AnyOf(parts):
            return any(says(r, q, k, tag) for r in parts)
    raise AssertionError(rule)


@given(rules, st.sets(st.integers(0, 5)))
def test_joined_rules_mean_what_their_parts_mean(rule: Rule, tag: set[int]) -> None:
    at = Coords(torch.arange(6).unsqueeze(0), tag=torch.tensor([[int(i in tag) for i in range(6)]]))
    wanted = "\n".join(" ".join("1" if says(rule, q, k, tag) else "." for k in range(6)) for q in range(6))
    assert drawn(rule, at) == wanted


def test_any_of_no_rules_is_refused() -> None:
    with pytest.raises(SpecError, match="a mask of kind 'any' needs at least one rule"):
        AnyOf(())
