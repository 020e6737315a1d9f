from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import errors
from regard.errors import Interrupted, RegardError, SpecError, UnknownName, offer


def all_errors(root: type[Exception]) -> list[type[Exception]]:
    return [root] + [e for child in root.__subclasses__() for e in all_errors(child)]


def own_errors() -> list[type[Exception]]:
    return [e for e in all_errors(RegardError) if e.__module__ == "regard.errors"]


def test_the_tree_drawn_in_the_docstring_is_the_tree() -> None:
    drawn = dict(re.findall(r"(\w+)\s{2,}(\d+)  ", errors.__doc__ or ""))
    assert set(drawn) == {e.__name__ for e in own_errors()}
    for error in own_errors():
        code = Interrupted("stopped").exit_code if error is Interrupted else error.exit_code  # type: ignore[attr-defined]
        assert code == int(drawn[error.__name__]), error.__name__


@pytest.mark.parametrize(("signal", "code"), [(2, 130), (15, 143)])
def test_interrupted_exits_as_shells_expect(signal: int, code: int) -> None:
    assert Interrupted("stopped", signal).exit_code == code


def test_a_spec_error_is_a_value_error() -> None:
    assert issubclass(SpecError, ValueError)  # so that pydantic gathers it with the other faults of a spec


def test_unknown_name_offers_the_nearest() -> None:
    error = UnknownName("mixer", "linformr", ["full", "linformer"])
    assert str(error) == "no mixer 'linformr'; did you mean 'linformer'?"
    assert (error.name, error.known) == ("linformr", ("full", "linformer"))


def test_unknown_name_lists_all_when_none_is_near() -> None:
    assert str(UnknownName("mixer", "zzz", ["full", "local"])) == "no mixer 'zzz'; available: full, local"


def test_unknown_name_among_none() -> None:
    assert str(UnknownName("mixer", "full", [])) == "no mixer 'full'"


def test_offer_ignores_case_but_keeps_it() -> None:
    assert offer("ALIBI", ["ALiBi", "rotary"]) == "; did you mean 'ALiBi'?"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("linformr", "linformer"),
        ("lcoal", "local"),
        ("big-bird", "bigbird"),
        ("local_attention", "local"),
        ("smoothing", "label_smoothing"),
        ("translation", "translate"),
    ],
)
def test_near_names(name: str, near: str) -> None:
    known = ["full", "local", "linformer", "bigbird", "label_smoothing", "translate", "lm"]
    assert offer(name, known) == f"; did you mean {near!r}?"


@pytest.mark.parametrize("name", ["performer", "reformer", "former", "lr", "x" * 1000, ""])
def test_names_that_only_sound_alike_are_not_offered(name: str) -> None:
    assert offer(name, ["linear", "lm", "linformers"][: 1 + (name != "former")]).startswith("; available: linear")


def test_synonyms_come_first_and_case_and_hyphens_do_not_matter() -> None:
    synonyms = {"transformer_xl": "xl_memory"}
    assert offer("Transformer-XL", ["transformer", "xl_memory"], synonyms) == "; did you mean 'xl_memory'?"


def test_a_long_list_is_cut_off() -> None:
    assert offer("zzz", [f"name{i}" for i in range(33)]).endswith(", name28, name29 and 3 more")


@given(st.text(), st.lists(st.text()))
def test_offer_takes_any_text(name: str, known: list[str]) -> None:
    end = offer(name, known)
    assert end == "" if not known else end.startswith("; ")


HOSTILE = "x\nregard: all fine\r\x1b[2J\x1b]0;pwned\x07\u202egnp.exe\u2028\x85\ud800\x00\x9b31m"
"""A name that would forge a line, clear the screen, set a title and turn the direction of what follows."""


def make_error(kind: type[Exception], text: str) -> Exception:
    return UnknownName("part", text, [text]) if kind is UnknownName else kind(text)


@pytest.mark.parametrize("kind", own_errors())
def test_every_message_is_one_printable_line(kind: type[Exception]) -> None:
    said = str(make_error(kind, HOSTILE))
    assert said.isprintable()
    assert "all fine" in said


@given(st.text(alphabet=st.characters()))
def test_printable_text_stays_and_the_rest_is_escaped_once(text: str) -> None:
    shown = errors.make_printable(text)
    assert shown.isprintable()
    assert errors.make_printable(shown) == shown
    assert shown == text or not text.isprintable()


def test_letters_of_all_languages_are_printable() -> None:
    for text in ("Ein größerer Überblick", "日本語のテキスト", "שלום עולם", "नमस्ते", "C₂H₅OH → 5 µm ✓", "🙂"):
        assert errors.make_printable(text) == text
