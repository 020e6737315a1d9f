from __future__ import annotations

import pytest

from regard.errors import SpecError, UnknownName
from regard.registry import Table, kind_of


class PreNorm: ...


class ALiBi:
    kind = "alibi"


class Steeper(ALiBi): ...


@pytest.fixture
def table() -> Table[type]:
    table: Table[type] = Table("part")
    table.add(PreNorm, ALiBi)
    return table


def test_kind_is_the_class_name_in_snake_case_or_its_own_word() -> None:
    assert [kind_of(c) for c in (PreNorm, ALiBi)] == ["pre_norm", "alibi"]


def test_a_child_does_not_inherit_its_parents_kind() -> None:
    assert kind_of(Steeper) == "steeper"


def test_a_table_keeps_the_order_of_its_rows(table: Table[type]) -> None:
    assert list(table) == ["pre_norm", "alibi"]
    assert list(table.items()) == [("pre_norm", PreNorm), ("alibi", ALiBi)]
    assert len(table) == 2
    assert "alibi" in table
    assert "rotary" not in table


def test_add_decorates_a_class(table: Table[type]) -> None:
    @table.add
    class Rotary: ...

    assert table["rotary"] is Rotary


def test_add_under_another_name(table: Table[type]) -> None:
    table.add(PreNorm, name="pre")
    assert table["pre"] is table["pre_norm"] is PreNorm


def test_the_same_part_twice_is_one_row(table: Table[type]) -> None:
    table.add(PreNorm)
    assert len(table) == 2


def test_another_part_under_a_taken_name_is_refused(table: Table[type]) -> None:
    with pytest.raises(SpecError, match=r"^there already is a part 'alibi'; choose another name$"):
        table.add(PreNorm, name="alibi")


def test_an_unknown_name_says_which_is_near(table: Table[type]) -> None:
    with pytest.raises(UnknownName, match=r"^no part 'prenorm'; did you mean 'pre_norm'\?$"):
        table["prenorm"]
