"""`regard run`: any bytes in, exactly as many lines out, in order, written as they are ready."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from regard.errors import NoRoom, SpecError, UnknownName
from regard.verbs.command import say

if TYPE_CHECKING:
    from regard.api import Model
    from regard.data.glossary import Glossary
    from regard.decode import Search
    from regard.tasks.common.task import Output

BYTES = 1 << 20
"""What is read of one line; no sentence is as long, and memory has an end."""
LETTERS = 1 << 20
"""From so many letters on, lines are not gathered further before they are run."""
LONG = ("split", "cut")


def stdin_lines() -> Iterator[str]:
    """Lines of standard input. Only \\n ends one; bytes that are not UTF-8 become U+FFFD, and that is said."""
    if sys.stdin is None:
        raise SpecError("standard input is closed; name texts, or give lines by < or |")
    note, number, decoder = Notes(), 0, codecs.getincrementaldecoder("utf-8")
    while raw := sys.stdin.buffer.readline(BYTES):
        number += 1
        whole = raw.endswith(b"\n") or len(raw) < BYTES or not _rest_of_line()
        line = raw.removesuffix(b"\n").removesuffix(b"\r") if whole else raw
        if not whole:
            note("huge", f"line {number} has more than {BYTES:,} bytes; the rest of it is left out, as of later ones")
        try:
            text = decoder("strict").decode(line, final=whole)  # the last character of what was cut may be half
        except UnicodeDecodeError:
            text = decoder("replace").decode(line, final=whole)
            note(
                "bytes", f"line {number} is not UTF-8; what cannot be read is taken as U+FFFD, here and in later lines"
            )
        yield text if number > 1 else text.removeprefix("\ufeff")


def _rest_of_line() -> bool:
    """Pass over what is left of a line that was not read to its end; whether there was anything but its end."""
    more = False
    while raw := sys.stdin.buffer.readline(BYTES):
        more = more or bool(raw.rstrip(b"\r\n"))
        if raw.endswith(b"\n"):
            break
    return more


def text_lines(texts: Sequence[str]) -> Iterator[str]:
    """Arguments as text; Python hands on bytes that are not UTF-8 as halves of surrogate pairs."""
    for text in texts:
        if len(text) < 256 and Path(text).is_file():
            say(f"{text} is a file, and read as a text here; for its lines: < {text}")
        yield text.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")


def search_options(
    search: Search, *, sample: bool | None, searching: Mapping[str, Any], drawing: Mapping[str, Any], as_json: bool
) -> dict[str, Any]:
    """The options that were given, of a model that otherwise searches like `search`; one without effect is refused."""
    drawn = search.sample if sample is None else sample
    idle = [f"--{name.replace('_', '-')}" for name, v in (searching if drawn else drawing).items() if v is not None]
    if idle:
        raise SpecError(f"{', '.join(idle)} would do nothing without --{'no-' if drawn else ''}sample")
    options = {name: value for name, value in {**searching, **drawing}.items() if value is not None}
    wanted = options.get("n_best", 1)
    if wanted > 1 and not as_json:
        raise SpecError(f"--n-best {wanted} needs --json: a line of plain output holds one")
    if wanted > 1 and searching["beam"] is None:
        options["beam"] = max(search.beam, wanted)
    return {**options, "n_best": wanted, "sample": drawn}


def run_lines(
    model: Model,
    lines: Iterable[str],
    out: TextIO,
    *,
    options: Mapping[str, Any],
    others: Sequence[Model] = (),
    to: str | None = None,
    prefix: str | None = None,
    glossary: Glossary | None = None,
    long: str = "split",
    as_json: bool = False,
    batch: int = 1024,
) -> None:
    """Run the model over lines, `batch` of them at a time; a line without text gives one without."""
    from regard.tasks.common.join import whole

    _check(model, prefix, glossary, long)
    given = {**options} if to is None else {**options, "tag": language_tag(model, to)}
    if as_json and "words" in model.options:
        given["words"] = True
    note, before, begun = Notes(), 0, 0
    if glossary is not None and not given.get("sample") and given.get("beam", model.search.beam) == 1:
        note("beam", "terms need more than the likeliest token: lines with terms are searched with a beam")
    for chunk in _gathered(lines, batch):
        parts = _parts(model, chunk, before, note, given, long)
        texts = [(piece, not i) for pieces in parts for i, piece in enumerate(pieces)]
        found: list[list[Output]] = []
        numbers = [before + n for n, pieces in enumerate(parts, 1) for _ in pieces]
        for start in range(0, len(texts), batch):
            some = [text for text, _ in texts[start : start + batch]]
            if prefix is not None:
                given["prefixes"] = [prefix if first else "" for _, first in texts[start : start + batch]]
            if glossary is not None:
                given["must_include"] = [glossary.find(text) for text in some]
            given["first"] = begun + start  # a line twice is drawn twice, and whatever the batches
            try:
                found += model.run_all(some, others=others, **given)
            except NoRoom as lack:
                said = f"line {numbers[start + lack.places[0]]} has no room for what it must be given"
                note("room", f"{said}; it goes without, as do later ones like it")
                found += model.run_all(some, others=others, **_without(given, lack.places))
        rest = iter(found)
        for line, pieces in zip(chunk, parts, strict=True):
            hypotheses = whole(line, pieces, [next(rest) for _ in pieces]) if pieces else []
            if as_json:
                rows = [h.plain() for h in hypotheses]
                out.write(json.dumps({"source": line, "outputs": rows}, ensure_ascii=False) + "\n")
            else:
                out.write(_one_line(hypotheses[0].text if hypotheses else "") + "\n")
        out.flush()
        before, begun = before + len(chunk), begun + len(texts)


def _without(given: Mapping[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """The same options, with nothing that must be written for these inputs."""
    nothing = {"prefixes": "", "must_include": []}
    return {
        name: [none if i in places else each for i, each in enumerate(value)]
        if (none := nothing.get(name)) is not None
        else value
        for name, value in given.items()
    }


def _check(model: Model, prefix: str | None, glossary: Glossary | None, long: str) -> None:
    """Whether the model can do what it is asked to."""
    from regard.tasks.common.capabilities import Constrains, require

    asked = {
        "--prefix": ("prefixes", [] if prefix is None else [prefix]),
        "--glossary": ("must_include", [] if glossary is None else glossary.translations),
    }
    for name, (wanted, texts) in asked.items():
        if texts and wanted not in model.options:
            raise SpecError(f"{model.path} cannot be told what to write; leave out {name}")
        if texts and (wrong := require(model.task, Constrains).find_unwritable([t for t in texts if t.strip()])):
            raise SpecError(f"{name}: {model.path} cannot write {wrong[0]!r}, not all of it is in its vocabulary")
    if long not in LONG:
        raise UnknownName("way with long lines", long, LONG)


def _gathered(lines: Iterable[str], batch: int) -> Iterator[list[str]]:
    """Lines in lists of `batch`, or of fewer if they are long."""
    held, letters = list[str](), 0
    for line in lines:
        held.append(line)
        letters += len(line)
        if len(held) == batch or letters >= LETTERS:
            yield held
            held, letters = [], 0
    if held:
        yield held


def _parts(
    model: Model, lines: Sequence[str], before: int, note: Notes, given: Mapping[str, Any], long: str
) -> list[list[str]]:
    """What is read of each line: nothing if there is no text, pieces of it where it is longer than the model can read."""
    from regard.tasks.common.capabilities import find_too_long, find_unknown, split_text

    parts = [[line] if line.strip() else [] for line in lines]
    full = [i for i, line in enumerate(lines) if line.strip()]
    texts, options = [lines[i] for i in full], model.own_options(given, besides=given)
    for i in (full[j] for j in find_unknown(model.task, texts)):
        said = f"line {before + i + 1} is mostly unknown to the model's vocabulary: another language or script?"
        note("unknown", f"{said} Later ones like it pass without a note")
    for i in (full[j] for j in find_too_long(model.task, texts, options)):
        said = f"line {before + i + 1} is longer than the model can read"
        parts[i] = (split_text(model.task, lines[i], options) if long == "split" else []) or parts[i]
        if len(parts[i]) > 1:
            note("split", f"{said}; it is read in pieces, as are later ones (--long cut leaves out the end instead)")
        else:
            note("cut", f"{said}; the end is left out, here and in later lines")
    return parts


def language_tag(model: Model, language: str) -> str:
    """The tag that asks a many-to-many model for this language."""
    from regard.tasks.common.capabilities import list_tags

    known = list_tags(model.task)
    if not known:
        raise SpecError(f"{model.path} was not trained to choose between target languages; leave out --to {language}")
    if language not in known:
        raise UnknownName("target language", language, known)
    return f"2{language}"


class Notes:
    """What is said on stderr, once of each kind."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, kind: str, text: str) -> None:
        if kind not in self._said:
            say(text)
            self._said.add(kind)


def _one_line(text: str) -> str:
    """An output never breaks the count of lines."""
    return text.replace("\r", " ").replace("\n", " ")
