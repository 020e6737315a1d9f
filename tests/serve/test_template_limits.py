"""Chat templates of strangers: each ends, in bounded time and memory, with a refusal in words."""

from __future__ import annotations

import pytest

from regard.errors import DataError, SpecError
from regard.serve import template_process
from regard.serve.chat_template import ChatTemplate
from regard.text import Tokenizer, Words
from tests.serve.chat_models import CHATML, INSTRUCTIONS

TALK = [{"role": "user", "content": "a cat"}]
GREEDY = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "multiply": "{{ 'a' * 3000000000 }}",
    "format": "{{ '%999999999d' % 1 }}",
    "center": "{{ 'a'.center(3000000000) }}",
    "ljust": "{{ 'a'.ljust(3000000000) }}",
    "rjust": "{{ 'a'.rjust(3000000000) }}",
    "zfill": "{{ 'a'.zfill(3000000000) }}",
    "indent": "{{ messages | tojson(indent=1000000000) }}",
    "replace": "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x.replace('a', 'aa') %}{% endfor %}",
    "join": "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = [n.x, n.x] | join %}{% endfor %}",
    "output": "{% for i in range(99999) %}{{ 'a' * 99 }}{% endfor %}",
}
DEEP = {
    "brackets": "{{ " + "(" * 20_000 + ")" * 20_000 + " }}",
    "ifs": "{% if true %}" * 2_000 + "{% endif %}" * 2_000,
    "power": "{{ 9 ** (9 ** 9) }}",
    "sum": "{{ " + "+".join("1" * 20_000) + " }}",
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a cat and a dog"], Words())


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_process, "SECONDS", 0.5)


@pytest.mark.parametrize("name", GREEDY)
def test_a_template_that_wants_too_much_is_refused(tokenizer: Tokenizer, name: str) -> None:
    template = ChatTemplate(GREEDY[name] + "x", tokenizer)
    words = "too much time|too much memory|writes more than 1,000,000 characters|too big|overflow|MAX_RANGE"
    for _ in range(1 + (name == "loops")):  # and its process is started again
        with pytest.raises(DataError, match=f"the chat template of this model refuses these messages: .*({words})"):
            template.encode(TALK)


@pytest.mark.parametrize("name", DEEP)
def test_a_template_that_is_nested_too_deeply_is_refused_when_it_is_opened(tokenizer: Tokenizer, name: str) -> None:
    words = "the chat template of this model cannot be read: .*(nested|crash|memory|time|parentheses)"
    with pytest.raises(SpecError, match=words):
        ChatTemplate(DEEP[name], tokenizer)


def test_usual_templates_are_rendered(tokenizer: Tokenizer) -> None:
    for source in (CHATML, INSTRUCTIONS):
        assert ChatTemplate(source, tokenizer).encode(TALK)
