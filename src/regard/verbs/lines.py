"""Lines in, lines out: what `regard run` reads and writes.

Any bytes in, exactly as many lines out, in order. Line breaks in an output are written as `\\n` where lines are counted, and
as they are for a single text or at a prompt, where the task's explanation follows, if it gives one; `--json` always has the
true text. An input that cannot be read gives an empty line, in `--json` an object with an `error`, and a note on stderr; the
exit code then is 2, after the last line.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from regard.api.notes import Notes
from regard.errors import DataError, SpecError
from regard.verbs.command import say

if TYPE_CHECKING:
    from regard.tasks.common.task import Output

MAX_LINE = 1 << 20
"""Number of bytes that are read of one line: no sentence is longer, and memory is limited."""
PROMPT = "> "


def read_stdin() -> Iterator[str]:
    """Lines of standard input. Only \\n ends a line; bytes that are not UTF-8 become U+FFFD, with a note."""
    if sys.stdin is None:
        raise SpecError("standard input is closed; give texts as arguments, or lines with < or |")
    note, number, decoder = Notes(say), 0, codecs.getincrementaldecoder("utf-8")
    while raw := _read_line():
        number += 1
        complete = raw.endswith(b"\n") or len(raw) < MAX_LINE or not _skip_rest_of_line()
        line = raw.removesuffix(b"\n").removesuffix(b"\r") if complete else raw
        if not complete:
            note(
                "huge", f"line {number} has more than {MAX_LINE:,} bytes; the rest is left out, here and in later lines"
            )
        try:
            text = decoder("strict").decode(line, final=complete)  # the last character of a cut line may be incomplete
        except UnicodeDecodeError:
            text = decoder("replace").decode(line, final=complete)
            note("bytes", f"line {number} is not UTF-8; unreadable bytes become U+FFFD, here and in later lines")
        yield text if number > 1 else text.removeprefix("\ufeff")


def _read_line() -> bytes:
    try:
        return sys.stdin.buffer.readline(MAX_LINE)
    except OSError as error:  # opened for writing only, or a folder
        said = f"standard input cannot be read ({error.strerror}); give texts as arguments, or lines with < or |"
        raise SpecError(said) from None


def _skip_rest_of_line() -> bool:
    """Skip the rest of a line; whether there was more than its end."""
    more = False
    while raw := _read_line():
        more = more or bool(raw.rstrip(b"\r\n"))
        if raw.endswith(b"\n"):
            break
    return more


def read_arguments(texts: Sequence[str], *, paths: bool = False) -> Iterator[str]:
    """Arguments as text; Python represents bytes that are not UTF-8 as lone surrogates. A model of images takes `paths`."""
    for text in texts:
        if text == "-":
            say("- is read as a text here; leave it out to read lines from standard input")
        if len(text) < 256 and not paths:
            with suppress(OSError, ValueError):
                if Path(text).is_file():
                    say(f"{text} is a file, but is read as a text here; for its lines use < {text}")
        yield text.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")


def read_prompt(ask: Callable[[str], str] | None = None) -> Iterator[str]:
    """Lines that a person types, with history and editing where the system has readline; Ctrl-D ends them."""
    with suppress(ImportError):
        import readline  # noqa: F401  (`input` uses it)
    say("type a text and press Enter; Ctrl-D ends")
    ask = ask or input
    while True:
        try:
            if sys.stdout.isatty():
                text = ask(PROMPT)
            else:  # results go elsewhere, and only results
                print(PROMPT, end="", file=sys.stderr, flush=True)
                text = ask("")
            yield text.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")
        except EOFError:
            print(file=sys.stderr)
            return


def write_outputs(
    batches: Iterable[Sequence[tuple[object, Sequence[Output]]]], out: TextIO, *, as_json: bool, multiline: bool = False
) -> None:
    """Write one line per input, or with `multiline` the outputs with their line breaks; then raise if some have none."""
    note, count, failed = Notes(say), 0, 0
    for batch in batches:
        for given, outputs in batch:
            text, fault = (outputs[0].text, outputs[0].error) if outputs else ("", None)
            count, failed = count + 1, failed + (fault is not None)
            if as_json and fault is not None:
                text = json.dumps({"source": given, "outputs": [], "error": fault}, ensure_ascii=False, default=str)
            elif as_json:
                rows = [output.plain() for output in outputs]
                text = json.dumps({"source": given, "outputs": rows}, ensure_ascii=False, default=str)
            elif not multiline and ("\n" in text or "\r" in text):
                note(
                    "breaks", r"line breaks in outputs are written as \n, so that lines can be counted; --json has them"
                )
                text = text.replace("\r", "\\r").replace("\n", "\\n")
            out.write(f"{text}\n")
            if outputs and multiline and not as_json:
                out.writelines(f"  {line}\n" for line in outputs[0].explanation)
        out.flush()
    if failed:
        raise DataError(f"{failed:,} of {count:,} inputs could not be read; their lines are empty")


def stream_outputs(stream: Callable[..., Iterator[str]], texts: Iterable[str], out: TextIO) -> None:
    """Write the output of each text in pieces as they are generated, with its line breaks; then raise if some have none.

    `stream` takes a text and, as `first`, its number, which sampling depends on.
    """
    note, count, failed = Notes(say), 0, 0
    for text in texts:
        count += 1
        try:
            for piece in stream(text, first=count - 1):
                out.write(piece)
                out.flush()
        except DataError as error:
            failed += 1
            note.each("no output", f"input {count} has no output: {error}")
        out.write("\n")
        out.flush()
    if failed:
        raise DataError(f"{failed:,} of {count:,} inputs could not be read; their lines are empty")
