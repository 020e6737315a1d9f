"""Child process that renders a chat template within limits.

It imports nothing of ours: a line of JSON is a request, a line of JSON the answer. Time is that of the processor, counted anew
for each request, and its end is the end of the process, whatever Python does then.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys

if __name__ == "__main__":
    sys.path += sys.argv[1].split(os.pathsep)

from typing import NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

REFUSALS = (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)


class GenerationTag(Extension):
    """`{% generation %}` marks the answer, for training; here it means nothing."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def make_environment() -> ImmutableSandboxedEnvironment:
    """Make what templates are written for: the filters and functions that `transformers` gives them."""

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    def write_json(value: object, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    def format_now(form: str) -> str:
        return datetime.datetime.now().strftime(form)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = write_json
    environment.globals |= {"raise_exception": refuse, "strftime_now": format_now}
    return environment


def limit(memory: int) -> None:
    """Limit the memory of this process, where the system can."""
    try:
        import resource
    except ImportError:
        return
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]  # an existing limit may be lower
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard),) * 2)


def begin_time(seconds: float) -> None:
    """Let the process end after so many seconds of computing from now on; 0: not at all."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def answer(template: Template, given: dict[str, object], longest: int) -> dict[str, str]:
    """Render a conversation: `text`, or a `fault`."""
    try:
        text = template.render(**given)
    except RecursionError:
        return {"fault": "it is nested too deeply"}
    except MemoryError:
        return {"fault": "it needs too much memory"}
    except REFUSALS as error:
        return {"fault": str(error)[:1000]}
    return {"text": text} if len(text) <= longest else {"fault": f"it writes more than {longest:,} characters"}


def main(seconds: float, memory: int, longest: int) -> None:
    limit(memory)
    template = None
    for line in sys.stdin.buffer:
        begin_time(seconds)
        given = json.loads(line)
        if template is None:
            try:
                template, found = make_environment().from_string(given["source"]), {"text": ""}
            except (TemplateError, ValueError, SyntaxError) as error:
                found = {"fault": str(error)[:1000]}
            except RecursionError:
                found = {"fault": "it is nested too deeply"}
            except MemoryError:
                found = {"fault": "it needs too much memory"}
        else:
            found = answer(template, given, longest)
        sys.stdout.buffer.write(json.dumps(found).encode() + b"\n")
        sys.stdout.buffer.flush()
        begin_time(0)


if __name__ == "__main__":
    main(float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
