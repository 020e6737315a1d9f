"""Pairs of texts from what people have: two parallel files, TSV, CSV or JSON lines, each also gzipped.

What cannot be used is an error with file and line before training starts, and a pair is only ever dropped whole, so that
nothing shifts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.data.filters import FilterSpec, Pair
from regard.data.filters.pipeline import FilterPipeline
from regard.data.line_store import LineWriter
from regard.data.pairs import Dropped, Pairs, split_pairs
from regard.data.progress import track
from regard.data.tables import READERS, OnBadLine, Row, file_kind, read_columns
from regard.data.text_files import MAX_LINE_BYTES, BadLine, iter_lines, strip_line_end
from regard.errors import DataError, SpecError
from regard.spec import Spec, spec

LanguageCode = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
OnBad = Literal["error", "drop"]
SIDES = ("source", "target")


@spec
class Corpus(Spec):
    """Where pairs lie, and how they are used. The files of a command line are `Corpus(paths=tuple(files))`.

    paths        two text files, line n of one belonging to line n of the other; or one .tsv, .csv or .jsonl file
    columns      source and target in a table: names in its header or keys of its objects, or positions counted from 1
                 (TSV, CSV). Without: `source` and `target` where these are named, else a table of just two columns
    target_lang  puts the tag `2de` before every source, so that one model can translate into several languages
    prefix       text put before every source, so that one model can do several things (`summarize: `)
    hold_out     whether a part is set aside to be judged by, where no other corpus is given for that: not of what a model
                 wrote
    weight       how often a pair comes compared with one of weight 1: 2 is as if the file were there twice
    on_bad       what to do about a bad pair (an empty side, no text, too long a line, a malformed row): stop, or drop it
                 whole and count it
    """

    paths: tuple[str, ...]
    columns: tuple[int | str, int | str] | None = None
    source_lang: LanguageCode | None = None
    target_lang: LanguageCode | None = None
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    on_bad: OnBad = "error"
    prefix: str = ""
    hold_out: bool = True

    def __post_init__(self) -> None:
        tables = [path for path in self.paths if file_kind(path) in READERS]
        if len(self.paths) not in (1, 2) or (len(self.paths) == 2) is bool(tables):
            raise SpecError(
                f"a corpus is two text files side by side or one {', '.join(READERS)} file (each may end in .gz), "
                f"got {', '.join(self.paths) or 'none'}; list several corpora in a recipe"
            )
        if self.columns is None:
            return
        if not tables:
            raise SpecError(f"columns {list(self.columns)} are for a table, got the text {self.paths[0]}")
        numbers = [column for column in self.columns if isinstance(column, int)]
        if numbers and file_kind(self.paths[0]) == ".jsonl":
            raise SpecError(f"columns of {self.paths[0]} should be keys of its objects, got {list(self.columns)}")
        if len(numbers) == 1 or min(numbers, default=1) < 1:
            raise SpecError(f"columns should be two names or two positions from 1, got {list(self.columns)}")

    @property
    def tag(self) -> str | None:
        """The symbol that tells a many-to-many model which language to write."""
        return f"2{self.target_lang}" if self.target_lang else None

    @property
    def name(self) -> str:
        """What reports call this corpus: its files, and its languages or prefix where they are given."""
        files = " + ".join(Path(path).name for path in self.paths)
        more = "-".join(filter(None, (self.source_lang, self.target_lang))) or self.prefix.strip(" :")
        return f"{files} ({more})" if more else files


def corpus_like(corpus: Corpus, paths: tuple[str, ...]) -> Corpus:
    """Other files in the form of a corpus: its prefix, and its columns where they are tables of the same kind."""
    alike = [file_kind(path) for path in paths] == [file_kind(path) for path in corpus.paths]
    return Corpus(paths, columns=corpus.columns if alike else None, prefix=corpus.prefix)


def read_corpus(corpus: Corpus, filters: Sequence[FilterSpec] = (), *, on_bad: OnBad | None = None) -> Pairs:
    """All pairs of a corpus that pass the filters, or an error that names file and line.

    on_bad    what to do about a bad pair, if not what the corpus says
    """
    bad = dict[str, Dropped]()

    def on_bad_line(fault: BadLine) -> None:
        bad.setdefault(fault.kind, Dropped(fault.kind)).add(fault.message)

    sieve, sources, targets = FilterPipeline(filters), LineWriter(), LineWriter()
    for _, (left, right) in track(sieve(_read_usable(corpus, on_bad_line)), f"{corpus.name}, pairs read"):
        sources.add(corpus.prefix + left)
        targets.add(right)
    first = next((each.examples[0] for each in bad.values()), "")
    if bad and (on_bad or corpus.on_bad) == "error":  # said now: lines out of step, had there been any, are worse
        raise DataError(f"{first}; mend it, or say on_bad: drop (--on-bad drop) to leave out such pairs")
    source, target, dropped = sources.lines(), targets.lines(), (*bad.values(), *sieve.dropped)
    if not source:
        why = "; ".join(str(each) for each in dropped if each.count)
        raise DataError(f"{corpus.name} holds no pairs" + (f": {why}" if why else ""))
    return Pairs(source, target, corpus.tag, corpus.weight, corpus.name, dropped)


def read_splits(
    train: Sequence[Corpus], valid: Sequence[Corpus], filters: Sequence[FilterSpec], on_bad: OnBad | None, seed: int
) -> tuple[list[Pairs], list[Pairs]]:
    """What to learn from, filtered, and what to be judged by: given, and then as it is; else a part set aside."""
    learn = [read_corpus(corpus, filters, on_bad=on_bad) for corpus in train]
    if valid:
        return learn, [read_corpus(corpus, on_bad=on_bad) for corpus in valid]
    if not any(corpus.hold_out for corpus in train):
        raise DataError("there is nothing to be judged by; name a corpus with --valid, or set `hold_out: true` for one")
    parts = [
        split_pairs(pairs, seed=seed) if corpus.hold_out else (pairs, None)
        for corpus, pairs in zip(train, learn, strict=True)
    ]
    return [rest for rest, _ in parts], [aside for _, aside in parts if aside is not None]


def locate_pairs(corpora: Sequence[Corpus], wanted: Iterable[Pair]) -> dict[Pair, str]:
    """The file and line where each of these pairs first stands, as far as the files are still there."""
    left, found = set(wanted), dict[Pair, str]()
    for corpus in corpora:
        with suppress(DataError):
            for line, (source, target) in _read_usable(corpus, lambda fault: None):
                pair = (corpus.prefix + source, target)
                if pair in left:
                    found[pair] = f"{corpus.paths[0]}, line {line}"
                    left.remove(pair)
                if not left:
                    break
    return found


def _read_usable(corpus: Corpus, on_bad_line: OnBadLine) -> Iterator[tuple[int, Pair]]:
    """The pairs that have two texts."""
    first, last = corpus.paths[0], corpus.paths[-1]
    if len(corpus.paths) == 1:
        rows = read_columns(first, SIDES, corpus.columns, on_bad_line, MAX_LINE_BYTES)
    else:
        rows = _read_parallel(first, last, on_bad_line)
    for line, (left, right) in rows:
        if left and right and not left.isspace() and not right.isspace():
            yield line, (left, right)
        else:
            side, path = ("target", last) if left.strip() else ("source", first)
            on_bad_line(BadLine("an empty side", f"{path}, line {line}: the {side} is empty"))


def _read_parallel(one: str, other: str, on_bad_line: OnBadLine) -> Iterator[Row]:
    with suppress(OSError, ValueError):  # what is not there is told when it is opened
        if Path(one).samefile(other):
            raise DataError(f"{one} and {other} are one and the same file; name the source and then the target")
    left, right = iter_lines(one, MAX_LINE_BYTES), iter_lines(other, MAX_LINE_BYTES)
    for line, (text, match) in enumerate(zip_longest(left, right), 1):
        if text is None or match is None:
            counts = line - (text is None) + sum(1 for _ in left), line - (match is None) + sum(1 for _ in right)
            raise DataError(
                f"{one} has {counts[0]} lines and {other} has {counts[1]}; line n of one belongs to line n of the other"
            )
        if isinstance(text, BadLine):
            on_bad_line(text)
        elif isinstance(match, BadLine):
            on_bad_line(match)
        else:
            yield line, (strip_line_end(text), strip_line_end(match))
