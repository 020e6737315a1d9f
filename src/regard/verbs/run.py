"""`regard run`: any bytes in, exactly as many lines out, in order, written as they are ready."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from regard.errors import SpecError, UnknownName

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decode import Search


def stdin_lines() -> Iterator[str]:
    """Lines of standard input. Only \\n ends one; bytes that are not UTF-8 become U+FFFD, and that is said."""
    said = False
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        text = line.decode("utf-8", errors="replace")
        if not said and text.encode() != line:
            _note(f"line {number} is not UTF-8; what cannot be read is taken as U+FFFD, here and in later lines")
            said = True
        yield text if number > 1 else text.removeprefix("\ufeff")


def text_lines(texts: Sequence[str]) -> Iterator[str]:
    """Arguments as text; Python hands on bytes that are not UTF-8 as halves of surrogate pairs."""
    for text in texts:
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
    as_json: bool = False,
    batch: int = 1024,
) -> None:
    """Run the model over lines, `batch` of them at a time; a line without text gives one without."""
    seed = options.get("seed", model.search.seed)
    given: dict[str, Any] = {} if to is None else {"tag": language_tag(model, to)}
    rest, before, said = iter(lines), 0, False
    while chunk := list(islice(rest, batch)):
        full = [i for i, line in enumerate(chunk) if line.strip()]
        texts = [chunk[i] for i in full]
        if not said and (cut := model.task.too_long(texts, tagged=to is not None)):
            number = before + full[cut[0]] + 1
            _note(f"line {number} is longer than the model can read; the end is left out, here and in later lines")
            said = True
        given = {**given, **options, "seed": seed + before}  # the same line twice is drawn twice
        if prefix is not None:
            given["prefixes"] = [prefix] * len(texts)
        found = iter(model.run_all(texts, others=others, **given) if texts else [])
        for line in chunk:
            hypotheses = next(found) if line.strip() else []
            if as_json:
                rows = [h.plain() for h in hypotheses]
                out.write(json.dumps({"source": line, "outputs": rows}, ensure_ascii=False) + "\n")
            else:
                out.write(_one_line(hypotheses[0].text if hypotheses else "") + "\n")
        out.flush()
        before += len(chunk)


def language_tag(model: Model, language: str) -> str:
    """The tag that asks a many-to-many model for this language."""
    known = model.task.tags
    if not known:
        raise SpecError(f"{model.path} was not trained to choose between target languages; leave out --to {language}")
    if language not in known:
        raise UnknownName("target language", language, known)
    return f"2{language}"


def _note(text: str) -> None:
    print(f"regard: {text}", file=sys.stderr)


def _one_line(text: str) -> str:
    """An output never breaks the count of lines."""
    return text.replace("\r", " ").replace("\n", " ")
