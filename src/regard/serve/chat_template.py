"""Chat templates: a conversation as tokens.

A model from elsewhere may come with a Jinja template that writes a conversation as one text, with special tokens between the
turns. Special tokens of the template become special tokens; those that somebody spells in a message stay text, so that nobody
can end a turn and speak as another. The template is a stranger's: it runs in Jinja's sandbox, with nothing but the messages, in
a process of its own with limits on time, memory and length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from regard.errors import DataError, SpecError
from regard.serve.template_process import TemplateFault, TemplateProcess
from regard.text import Tokenizer

MAX_TEMPLATE = 100_000
"""Characters of a template."""
STANDINS = range(0xE000, 0xF900)
"""Characters for private use: each stands for a special token that a message spells, while the template is rendered."""


class ChatTemplate:
    """The template of a model; `ends` are the tokens that end an answer."""

    def __init__(self, source: str, tokenizer: Tokenizer, ends: frozenset[int] = frozenset()) -> None:
        if len(source) > MAX_TEMPLATE:
            raise SpecError(f"the chat template has {len(source):,} characters; the limit is {MAX_TEMPLATE:,}")
        self._source, self._tokenizer = source, tokenizer
        self.ends = ends | {tokenizer.eos}
        try:
            self._template = TemplateProcess(source)
        except TemplateFault as error:
            raise SpecError(f"the chat template of this model cannot be read: {error}") from None

    def encode(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens after which the model writes its answer."""
        contents = [message["content"] for message in messages]
        standins = self._choose_standins(contents)
        hidden = [replace_all(content, standins) for content in contents]
        text = self._render([{**message, "content": said} for message, said in zip(messages, hidden, strict=True)])
        if not standins:
            return self._tokenizer.encode_marked(text)
        spelled, ids = {standin: token for token, standin in standins.items()}, list[int]()
        for part in re.split(f"([{''.join(spelled)}])", text):
            ids += self._tokenizer.encode(spelled[part]) if part in spelled else self._tokenizer.encode_marked(part)
        return ids

    def _choose_standins(self, contents: Sequence[str]) -> dict[str, str]:
        """A character that nobody uses for each special token in the messages."""
        found = {said[start:end] for said in contents for start, end in self._tokenizer.find_special(said)}
        if not found:
            return {}
        used = set(self._source).union(*contents)
        free = [chr(code) for code in STANDINS if chr(code) not in used]
        if len(free) < len(found):
            raise DataError("the messages use too many characters for private use")
        return dict(zip(sorted(found, key=len, reverse=True), free, strict=False))

    def _render(self, messages: Sequence[Mapping[str, str]]) -> str:
        roles = {name: self._tokenizer.spell(getattr(self._tokenizer, name)) for name in ("bos", "eos", "pad", "unk")}
        marks = {f"{name}_token": token for name, token in roles.items()}
        try:
            return self._template.render(
                messages=[*messages], add_generation_prompt=True, tools=None, documents=None, **marks
            )
        except TemplateFault as error:
            raise DataError(f"the chat template of this model refuses these messages: {error}") from None


def replace_all(text: str, replacements: Mapping[str, str]) -> str:
    """Replace words, those that come first in the mapping first."""
    for word, other in replacements.items():
        text = text.replace(word, other)
    return text
