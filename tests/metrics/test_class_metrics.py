"""Scores of classes against their definitions, and against known figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics.class_metrics import (
    accuracy_items,
    count_classes,
    find_spans,
    macro_f1_items,
    span_f1_items,
    split_words,
)

LABELS = st.lists(st.sampled_from("abc"), min_size=1, max_size=30)


@given(LABELS, st.randoms())
def test_accuracy_and_f1_are_what_they_say(true: list[str], chance: object) -> None:
    said = [chance.choice("abc") for _ in true]  # type: ignore[attr-defined]
    assert accuracy_items()(said, true).score() == pytest.approx(
        100 * sum(a == b for a, b in zip(said, true, strict=True)) / len(true)
    )
    each = []
    for name in sorted({*said, *true}):
        hits = sum(a == b == name for a, b in zip(said, true, strict=True))
        precision, recall = hits / max(said.count(name), 1), hits / max(true.count(name), 1)
        each.append(200 * precision * recall / (precision + recall) if hits else 0.0)
    assert macro_f1_items()(said, true).score() == pytest.approx(sum(each) / len(each))
    found = count_classes(said, true)
    assert [(t.predicted, t.true) for t in found] == [(said.count(t.name), true.count(t.name)) for t in found]


def test_labels_in_a_row() -> None:
    assert accuracy_items(split_words)(["A B", "A"], ["A A", "A"]).score() == pytest.approx(200 / 3)
    assert accuracy_items(list)(["HHE", "L"], ["HEE", "L"]).score() == 75.0
    assert accuracy_items(split_words)(["A"], ["A A"]).score() == 50.0, "what is missing is wrong"
    assert accuracy_items(split_words)(["A A A"], ["A A"]).score() == 100.0
    assert count_classes(["A A A"], ["A A"], split_words)[0].precision == pytest.approx(200 / 3), (
        "what is too much costs precision"
    )


def test_spans_as_conll_has_them() -> None:
    assert find_spans(["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-PER"]) == [
        ("PER", 0, 2), ("LOC", 3, 4), ("LOC", 4, 5), ("PER", 5, 6),
    ]  # fmt: skip
    assert find_spans([]) == find_spans(["O"]) == []
    assert find_spans(["NOUN", "NOUN"]) == [("NOUN", 0, 1), ("NOUN", 1, 2)]
    true, said = ["B-PER I-PER O B-LOC"], ["B-PER I-PER O O"]
    assert span_f1_items(said, true).score() == pytest.approx(100 * 2 / 3)
    assert span_f1_items(["B-PER O O B-LOC"], true).score() == 50.0, "a span that is cut is wrong"
