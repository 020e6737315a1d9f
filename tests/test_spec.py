"""Specs on a small zoo of their own; `tests/laws/test_round_trip.py` walks the real tables."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import SpecError, UnknownName
from regard.nn.layers.norm import LayerNorm
from regard.registry import Registry
from regard.spec import Count, Share, Spec, spec

ANIMALS: Registry[type[Animal]] = Registry("animal")


class Animal(Spec):
    registry: ClassVar[Registry[type[Animal]]] = ANIMALS


@ANIMALS.add
@spec
class Cat(Animal):
    lives: Count = 9
    name: str = "pet"


@ANIMALS.add
@spec
class Dog(Animal):
    age: Count
    name: str = "pet"
    friend: Animal | None = None

    def __post_init__(self) -> None:
        if self.age > 30:
            raise SpecError(f"no dog is that old: should be at most 30, got {self.age}")


@spec
class Cage(Spec):
    width: Count
    height: Count = 1


@spec
class Zoo(Spec):
    star: Animal
    cage: Cage = Cage(2)
    others: tuple[Animal, ...] = ()
    tax: Share = 0.0


ZOO = Zoo(star=Dog(age=3, friend=Cat(7)), others=(Cat(), Dog(age=1)), tax=0.25)

cats = st.builds(Cat, lives=st.integers(1, 99), name=st.text())
animals = st.recursive(cats, lambda friend: st.builds(Dog, age=st.integers(1, 30), friend=st.none() | friend))
zoos = st.builds(
    Zoo,
    star=animals,
    cage=st.builds(Cage, st.integers(1, 9)),
    others=st.lists(animals, max_size=3).map(tuple),
    tax=st.floats(0, 0.9),
)


@given(zoos)
def test_plain_data_and_json_give_the_spec_back(zoo: Zoo) -> None:
    for data in (zoo.plain(), json.loads(zoo.json()), zoo):
        back = Zoo.parse(data)
        assert back == zoo
        assert hash(back) == hash(zoo)


@given(zoos)
def test_replacing_a_field_by_itself_changes_nothing(zoo: Zoo) -> None:
    assert zoo.replace("tax", zoo.tax).replace("cage.width", zoo.cage.width).replace("star", zoo.star) == zoo


def test_a_part_says_its_kind_and_a_plain_spec_does_not() -> None:
    assert Cat().plain() == {"kind": "cat", "lives": 9, "name": "pet"}
    assert Cage(3).plain() == {"width": 3, "height": 1}


def test_a_part_with_defaults_may_be_its_kind_alone() -> None:
    assert Zoo.parse({"star": "cat"}) == Zoo(Cat())


def test_a_role_parses_any_of_its_parts() -> None:
    assert Animal.parse({"kind": "dog", "age": 2}) == Dog(2)
    assert Animal.parse(Cat()) == Cat()


def test_faults_lie_below_the_place_of_the_whole() -> None:
    with pytest.raises(SpecError) as caught:
        Cage.parse({"wigth": 2}, "at.home")
    assert set(caught.value.faults) == {"at.home.width is missing", "no key 'at.home.wigth'; did you mean 'width'?"}
    with pytest.raises(SpecError, match=r"^at\.home\.lives: "):
        Animal.parse({"kind": "cat", "lives": -1}, "at.home")


def test_a_spec_is_frozen() -> None:
    with pytest.raises(AttributeError, match="cannot assign to field"):
        ZOO.tax = 0.5  # type: ignore[misc]


def test_specs_of_different_kinds_differ() -> None:
    assert Cat(name="x") != Dog(9, name="x")


def test_walk_names_every_spec_inside() -> None:
    assert [path for path, _ in ZOO.walk()] == ["", "star", "star.friend", "cage", "others.0", "others.1"]
    assert dict(ZOO.walk())["star.friend"] == Cat(7)
    assert [path for path, _ in ZOO.walk("zoo")][:2] == ["zoo", "zoo.star"]


class TestReplace:
    def test_reaches_into_parts_and_tuples(self) -> None:
        zoo = ZOO.replace("star.friend.lives", 1).replace("others.1.age", 5).replace("cage.height", 4)
        assert (zoo.star.friend.lives, zoo.others[1], zoo.cage) == (1, Dog(5), Cage(2, 4))  # type: ignore[attr-defined]
        assert ZOO.cage == Cage(2)

    def test_puts_a_part_where_there_was_none(self) -> None:
        assert ZOO.replace("others.1.friend", "cat").others[1] == Dog(1, friend=Cat())
        assert ZOO.replace("others.1.friend.kind", "cat").others[1] == Dog(1, friend=Cat())

    def test_takes_a_part_away(self) -> None:
        assert ZOO.replace("star.friend", None).star == Dog(3)

    def test_replaces_a_whole_part(self) -> None:
        assert ZOO.replace("others.0", Cat(2, "tom")).others[0] == Cat(2, "tom")
        assert ZOO.replace("cage", Cage(5, 6)).cage == Cage(5, 6)
        assert ZOO.replace("others", (Cat(),)).others == (Cat(),)

    def test_a_whole_part_of_another_kind_owes_nothing_to_the_old_one(self) -> None:
        assert ZOO.replace("star", Cat()).star == Cat()

    def test_an_unknown_place(self) -> None:
        with pytest.raises(SpecError, match=r"^no key 'stars'; did you mean 'star'\?$"):
            ZOO.replace("stars.age", 1)
        with pytest.raises(SpecError, match=r"^no place '2' among 2 items$"):
            ZOO.replace("others.2.age", 1)
        with pytest.raises(SpecError, match=r"^no place 'first' among 2 items$"):
            ZOO.replace("others.first", "cat")
        with pytest.raises(SpecError, match=r"star: no key 'agee'; did you mean 'age'\?$"):
            ZOO.replace("star.agee", 1)


class TestOverlay:
    def test_lays_nested_changes_over(self) -> None:
        zoo = ZOO.overlay({"tax": 0.5, "star": {"age": 4, "friend": {"name": "tom"}}})
        assert zoo == Zoo(Dog(4, friend=Cat(7, "tom")), others=ZOO.others, tax=0.5)

    def test_of_nothing_is_the_same(self) -> None:
        assert ZOO.overlay({}) == ZOO

    def test_a_changed_kind_keeps_what_both_have(self) -> None:
        assert Zoo(Cat(name="rex")).overlay({"star": {"kind": "dog", "age": 2}}).star == Dog(2, "rex")

    def test_a_changed_kind_has_its_own_default_where_defaults_differ(self) -> None:
        @ANIMALS.add
        @spec
        class Fox(Animal):
            name: str = "reynard"

        try:
            assert Zoo(Dog(4, "rex")).overlay({"star": "fox"}).star == Fox()
        finally:
            del ANIMALS._parts["fox"]

    def test_a_changed_kind_drops_what_only_the_old_one_has(self) -> None:
        assert Zoo(Cat(7, "rex")).overlay({"star": {"kind": "dog", "age": 2}}).star == Dog(2, "rex")

    def test_a_bare_word_is_a_changed_kind(self) -> None:
        assert Zoo(Dog(4, "rex")).overlay({"star": "cat"}).star == Cat(name="rex")
        assert Zoo(Dog(4, "rex")).overlay({"star": "dog"}).star == Dog(4, "rex")

    def test_an_unknown_kind(self) -> None:
        with pytest.raises(UnknownName, match=r"^no animal 'dgo'; did you mean 'dog'\?$"):
            ZOO.overlay({"star": {"kind": "dgo"}})


class TestFaults:
    @pytest.mark.parametrize(
        ("data", "said"),
        [
            ({"star": "cta"}, r"^star: no animal 'cta'; did you mean 'cat'\?"),
            ({"star": {"lives": 3}}, r"^star: should say which animal: 'kind' is missing; available: cat, dog$"),
            ({"star": 3}, r"^star: should be a animal or its kind, got 3$"),
            ({"star": "dog"}, r"^star: age is missing"),
            ({"star": {"kind": "dog", "age": 40}}, r"^star: no dog is that old: should be at most 30, got 40$"),
            ({"star": "cat", "cage": {"width": 0}}, r"^cage.width: input should be greater than or equal to 1, got 0$"),
            ({"star": "cat", "tax": 1}, r"^tax: input should be less than 1, got 1$"),
            ({"star": "cat", "taxx": 1}, r"^no key 'taxx'; did you mean 'tax'\?$"),
            ({}, r"^star is missing$"),
            ([], r"^input should be a dictionary or an instance of Zoo, got \[\]$"),
        ],
    )
    def test_say_what_was_wanted_and_where(self, data: object, said: str) -> None:
        with pytest.raises(SpecError, match=said):
            Zoo.parse(data)

    def test_are_all_in_one_message(self) -> None:
        with pytest.raises(SpecError) as error:
            Zoo.parse({"star": "cta", "cage": {"width": 0}, "tax": 2, "door": 1})
        for part in ("star: no animal", "cage.width: ", "tax: ", "no key 'door'"):
            assert part in str(error.value)

    def test_of_positional_arguments_go_by_the_fields_name(self) -> None:
        with pytest.raises(SpecError, match=r"^width: input should be greater than or equal to 1, got 0$"):
            Cage(0)
        with pytest.raises(SpecError, match=r"^no key 'hight'; did you mean 'height'\?$"):
            Cage(1, hight=2)  # type: ignore[call-arg]

    def test_a_nested_key_is_offered_its_own_neighbours(self) -> None:
        with pytest.raises(SpecError, match=r"^no key 'cage.hight'; did you mean 'height'\?$"):
            Zoo.parse({"star": "cat", "cage": {"width": 1, "hight": 2}})

    def test_every_fault_of_a_part_says_where(self) -> None:
        with pytest.raises(SpecError, match=r"star: lives: .*; star: no key 'x'"):
            Zoo.parse({"star": {"kind": "cat", "lives": 0, "x": 1}})

    def test_a_check_of_the_whole_spec_speaks_for_itself(self) -> None:
        @spec
        class Pair(Spec):
            a: int
            b: int

            def __post_init__(self) -> None:
                raise SpecError("a and b cannot be")

        with pytest.raises(SpecError, match=r"^a and b cannot be$"):
            Pair(1, 2)

    @pytest.mark.parametrize("value", ["nan", float("nan"), 1e999, "-inf"])
    def test_a_number_is_finite(self, value: object) -> None:
        """Also in the configuration of a model, where it would be computed with."""
        with pytest.raises(SpecError, match=r"^eps: input should be a finite number"):
            LayerNorm.parse({"eps": value})
