"""Reading pairs: parallel text files, TSV, CSV or JSON Lines.

All may be gzipped. Bad input is an error with file and line before training starts; pairs are only dropped as a whole, so
that lines stay aligned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.data.filters import FilterSpec, Pair
from regard.data.filters.pipeline import FilterPipeline
from regard.data.line_store import LineWriter
from regard.data.pairs import Dropped, Pairs, split_pairs
from regard.data.progress import track
from regard.data.table_header import TableColumns
from regard.data.tables import READERS, Notify, OnBadLine, Row, file_kind, read_columns
from regard.data.text_files import MAX_LINE_BYTES, BadLine, iter_lines, strip_line_end
from regard.errors import DataError, SpecError
from regard.spec import Spec, spec

LanguageCode = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
OnBad = Literal["error", "drop"]
SIDES = ("source", "target")


@spec
class Corpus(Spec):
    """Files with pairs, and how to use them. Files on the command line are `Corpus(paths=tuple(files))`.

    paths        two text files whose lines belong together, or one .tsv, .csv or .jsonl file
    columns      source and target in a table: names in the header or keys of the objects, or positions from 1 (TSV, CSV).
                 Default: the columns `source` and `target`, or both columns of a table with two
    header       whether the first row of a TSV or CSV table is a header. Default: decided by what it says, with a message
    target_lang  adds the tag `2de` to every source, so that one model can translate into several languages
    prefix       text added before every source, so that one model can do several tasks (`summarize: `)
    hold_out     whether a part is held out for validation if no validation corpus is given; false for text that a model wrote
    weight       how often a pair is used compared with weight 1: with 2 as if the file were given twice
    on_bad       what to do with a bad pair (an empty side, invalid text, a line that is too long, a malformed row): raise an
                 `error`, or `drop` and count it
    """

    paths: tuple[str, ...]
    columns: tuple[int | str, int | str] | None = None
    source_lang: LanguageCode | None = None
    target_lang: LanguageCode | None = None
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    on_bad: OnBad = "error"
    prefix: str = ""
    hold_out: bool = True
    header: bool | None = None

    def __post_init__(self) -> None:
        tables = [path for path in self.paths if file_kind(path) in READERS]
        if len(self.paths) not in (1, 2) or (len(self.paths) == 2) is bool(tables):
            raise SpecError(
                f"a corpus is two parallel text files or one {', '.join(READERS)} file (each may end in .gz), "
                f"got {', '.join(self.paths) or 'none'}; list several corpora in a recipe"
            )
        if self.columns is None:
            return
        if not tables:
            raise SpecError(f"columns {list(self.columns)} need a table, got the text file {self.paths[0]}")
        numbers = [column for column in self.columns if isinstance(column, int)]
        if numbers and file_kind(self.paths[0]) == ".jsonl":
            raise SpecError(f"columns of {self.paths[0]} should be keys of its objects, got {list(self.columns)}")
        if len(numbers) == 1 or min(numbers, default=1) < 1:
            raise SpecError(f"columns should be two names or two positions from 1, got {list(self.columns)}")

    @property
    def tag(self) -> str | None:
        """The tag that tells a multilingual model which language to write."""
        return f"2{self.target_lang}" if self.target_lang else None

    @property
    def name(self) -> str:
        """The name in reports: the files, and the languages or the prefix if given."""
        files = " + ".join(Path(path).name for path in self.paths)
        more = "-".join(filter(None, (self.source_lang, self.target_lang))) or self.prefix.strip(" :")
        return f"{files} ({more})" if more else files


def corpus_like(corpus: Corpus, paths: tuple[str, ...]) -> Corpus:
    """Describe other files like a corpus: with its prefix, and with its columns if they are tables of the same kind."""
    alike = [file_kind(path) for path in paths] == [file_kind(path) for path in corpus.paths]
    columns, header = (corpus.columns, corpus.header) if alike else (None, None)
    return Corpus(paths, columns=columns, header=header, prefix=corpus.prefix)


def fill_columns(
    corpora: Sequence[Corpus], columns: tuple[int | str, int | str] | None, header: bool | None
) -> tuple[Corpus, ...]:
    """Apply default columns and header to corpora of tables that do not set them."""
    return tuple(
        replace(
            corpus,
            columns=columns if corpus.columns is None else corpus.columns,
            header=header if corpus.header is None else corpus.header,
        )
        if file_kind(corpus.paths[0]) in READERS
        else corpus
        for corpus in corpora
    )


def read_corpus(corpus: Corpus, filters: Sequence[FilterSpec] = (), *, on_bad: OnBad | None = None) -> Pairs:
    """Read all pairs of a corpus that pass the filters, or raise an error with file and line.

    on_bad    overrides the setting of the corpus
    """
    bad = dict[str, Dropped]()

    def on_bad_line(fault: BadLine) -> None:
        bad.setdefault(fault.kind, Dropped(fault.kind)).add(fault.message)

    sieve, sources, targets, notes = FilterPipeline(filters), LineWriter(), LineWriter(), list[str]()
    rows = _read_usable(corpus, on_bad_line, notes.append)
    for _, (left, right) in track(sieve(rows), f"{corpus.name}, pairs read"):
        sources.add(corpus.prefix + left)
        targets.add(right)
    first = next((each.examples[0] for each in bad.values()), "")
    if bad and (on_bad or corpus.on_bad) == "error":  # only now: misaligned files would be a worse error
        raise DataError(f"{first}; fix it, or set on_bad: drop (--on-bad drop) to drop such pairs")
    source, target, dropped = sources.lines(), targets.lines(), (*bad.values(), *sieve.dropped)
    if not source:
        why = "; ".join(str(each) for each in dropped if each.count)
        raise DataError(f"{corpus.name} contains no pairs" + (f": {why}" if why else ""))
    return Pairs(source, target, corpus.tag, corpus.weight, corpus.name, dropped, tuple(notes))


def read_splits(
    train: Sequence[Corpus], valid: Sequence[Corpus], filters: Sequence[FilterSpec], on_bad: OnBad | None, seed: int
) -> tuple[list[Pairs], list[Pairs]]:
    """Read the filtered training data, and the validation data: unfiltered if given, else held out from the training data."""
    learn = [read_corpus(corpus, filters, on_bad=on_bad) for corpus in train]
    if valid:
        return learn, [read_corpus(corpus, on_bad=on_bad) for corpus in valid]
    if not any(corpus.hold_out for corpus in train):
        raise DataError("there is no validation data; give a corpus with --valid, or set `hold_out: true` for one")
    parts = [
        split_pairs(pairs, seed=seed) if corpus.hold_out else (pairs, None)
        for corpus, pairs in zip(train, learn, strict=True)
    ]
    return [rest for rest, _ in parts], [held_out for _, held_out in parts if held_out is not None]


def locate_pairs(corpora: Sequence[Corpus], wanted: Iterable[Pair]) -> dict[Pair, str]:
    """Find the file and line where each of these pairs first occurs, as far as the files still exist."""
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


def _read_usable(corpus: Corpus, on_bad_line: OnBadLine, notify: Notify = lambda _: None) -> Iterator[tuple[int, Pair]]:
    """Yield the pairs that have two texts, with their line numbers."""
    first, last = corpus.paths[0], corpus.paths[-1]
    if len(corpus.paths) == 1:
        wanted = TableColumns(SIDES, corpus.columns, corpus.header)
        rows = read_columns(first, wanted, on_bad_line, MAX_LINE_BYTES, notify)
    else:
        rows = _read_parallel(first, last, on_bad_line)
    for line, (left, right) in rows:
        if left and right and not left.isspace() and not right.isspace():
            yield line, (left, right)
        else:
            side, path = ("target", last) if left.strip() else ("source", first)
            on_bad_line(BadLine("an empty side", f"{path}, line {line}: the {side} is empty"))


def _read_parallel(one: str, other: str, on_bad_line: OnBadLine) -> Iterator[Row]:
    with suppress(OSError, ValueError):  # a missing file is reported when it is opened
        if Path(one).samefile(other):
            raise DataError(f"{one} and {other} are the same file; give the source and then the target")
    left, right = iter_lines(one, MAX_LINE_BYTES), iter_lines(other, MAX_LINE_BYTES)
    for line, (text, match) in enumerate(zip_longest(left, right), 1):
        if text is None or match is None:
            counts = line - (text is None) + sum(1 for _ in left), line - (match is None) + sum(1 for _ in right)
            raise DataError(
                f"{one} has {counts[0]} lines and {other} has {counts[1]}; parallel files need the same number of lines"
            )
        if isinstance(text, BadLine):
            on_bad_line(text)
        elif isinstance(match, BadLine):
            on_bad_line(match)
        else:
            yield line, (strip_line_end(text), strip_line_end(match))
