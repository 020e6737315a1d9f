"""Chat templates: a conversation as one text.

A model from elsewhere may come with a Jinja template. It is a stranger's: it runs in Jinja's sandbox, which gives it no access
to anything but the messages, and its loops are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regard.errors import DataError, SpecError
from regard.text import Tokenizer

MAX_TEMPLATE = 100_000
"""Characters of a template."""


def render_chat(template: str, messages: Sequence[Mapping[str, str]], tokenizer: Tokenizer) -> str:
    """The text that a model continues with its answer."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    if len(template) > MAX_TEMPLATE:
        raise SpecError(f"the chat template has {len(template):,} characters; the limit is {MAX_TEMPLATE:,}")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    marks = {
        "bos_token": tokenizer.core.id_to_token(tokenizer.bos),
        "eos_token": tokenizer.core.id_to_token(tokenizer.eos),
    }
    try:
        compiled = environment.from_string(template)
        return compiled.render(messages=[*messages], add_generation_prompt=True, **marks)
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise DataError(f"the chat template of this model refuses these messages: {error}") from None
