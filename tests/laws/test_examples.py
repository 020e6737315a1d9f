from __future__ import annotations

import pytest

from regard.registry import kind_of
from tests.laws.examples import BOTH, DECODERS, ENCODERS, EXAMPLES, IMAGES, STORIES


@pytest.mark.parametrize("role", EXAMPLES)
def test_every_part_in_a_table_has_an_example(role: str) -> None:
    table, examples = EXAMPLES[role]
    missing = [kind for kind in table if not examples.get(kind)]
    assert not missing, f"add an example of {', '.join(missing)} to tests/laws/examples.py: the laws run over it then"
    for kind, row in examples.items():
        assert all(kind_of(type(part)) == kind and part.registry is table for part in row)


def test_case_names_are_distinct() -> None:
    for cases in (DECODERS, ENCODERS, BOTH, IMAGES, STORIES):
        assert len({case.name for case in cases}) == len(cases)
