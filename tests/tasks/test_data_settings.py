"""What the `data` settings of tasks share."""

from __future__ import annotations

import pytest

from regard.errors import DataError, SpecError, UnknownName
from regard.tasks import find, names
from regard.tasks.common.data_settings import check_metrics, configure_files, hold_out_items


def test_metrics_are_known_and_at_least_one() -> None:
    check_metrics(["bleu"])
    with pytest.raises(UnknownName, match="no metric 'blue'; did you mean 'bleu'"):
        check_metrics(["blue"])
    with pytest.raises(SpecError, match="`metrics` should name at least one score; the first decides"):
        check_metrics([])


@pytest.mark.parametrize("name", names())
def test_no_task_takes_unknown_metrics(name: str) -> None:
    with pytest.raises((SpecError, UnknownName), match="no metric 'blue'"):
        find(name).Settings.parse({"metrics": ["blue"]}, "data")


def test_files_of_a_command_line_replace_those_of_the_recipe() -> None:
    assert configure_files([], []) == {}
    assert configure_files(["a"], []) == {"train": ["a"], "valid": []}
    assert configure_files([], ["b"]) == {"valid": ["b"]}
    assert configure_files(["a"], ["b"]) == {"train": ["a"], "valid": ["b"]}


def test_items_are_held_out_at_random_and_stay_in_order() -> None:
    rest, held = hold_out_items(range(20), 0.25, 1, "piece")
    assert (len(rest), len(held), sorted([*rest, *held])) == (15, 5, list(range(20)))
    assert rest == sorted(rest) and held == sorted(held)
    assert hold_out_items(range(20), 0.25, 2, "piece")[1] != held
    assert len(hold_out_items(range(20), 0.001, 1, "piece")[1]) == 1
    with pytest.raises(DataError, match="1 piece is not enough to hold some out; name a file for validation"):
        hold_out_items([0], 0.5, 1, "piece")
    with pytest.raises(DataError, match=r"^2 pieces are not enough to hold some out"):
        hold_out_items([0, 1], 0.9, 1, "piece")
