"""Pairs of texts from what people have: two parallel files, TSV, CSV or JSON lines, each also gzipped.

Only `\\n` and `\\r\\n` end a line; Unicode's other separators are characters like any, so line n here is line n in all
other tools. What cannot be used is an error with file and line before training starts, and a pair is only ever dropped
whole, so that nothing shifts.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import Field

from regard.errors import DataError, SpecError, offer
from regard.spec import Spec, spec

Language = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
Row = tuple[int, tuple[str, ...]]
"""A line's number, and what stands in the columns asked for: a source and its target."""
Columns = tuple[int | str, ...]
Complain = Callable[[str], None]
SIDES = ("source", "target")


@spec
class Corpus(Spec):
    """Where pairs lie, and how they are used. The files of a command line are `Corpus(paths=tuple(files))`.

    paths        two text files, line n of one belonging to line n of the other; or one .tsv, .csv or .jsonl file
    columns      source and target in a table: names in its header or keys of its objects, or positions counted from 1
                 (TSV, CSV). Without: `source` and `target` where these are named, else a table of just two columns
    target_lang  puts the tag `2de` before every source, so that one model can translate into several languages
    prefix       text put before every source, so that one model can do several things (`summarize: `)
    weight       how often a pair comes compared with one of weight 1: 2 is as if the file were there twice
    on_bad       what to do about an empty side or a malformed row: stop, or drop the pair and count it
    """

    paths: tuple[str, ...]
    columns: tuple[int | str, int | str] | None = None
    source_lang: Language | None = None
    target_lang: Language | None = None
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    on_bad: Literal["error", "drop"] = "error"
    prefix: str = ""

    def __post_init__(self) -> None:
        tables = [path for path in self.paths if _kind(path) in READERS]
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
        if numbers and _kind(self.paths[0]) == ".jsonl":
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


@dataclass(frozen=True)
class Pairs:
    """Texts and what they should become, in step. The tag is kept apart: the tokeniser sees it as one symbol."""

    source: list[str]
    target: list[str]
    tag: str | None = None
    weight: float = 1.0
    name: str = "pairs"
    dropped: int = 0

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise DataError(f"{self.name} has {len(self.source)} sources and {len(self.target)} targets")

    def __len__(self) -> int:
        return len(self.source)


def like(corpus: Corpus, paths: tuple[str, ...]) -> Corpus:
    """Other files in the form of a corpus: its prefix, and its columns where they are tables of the same kind."""
    alike = [_kind(path) for path in paths] == [_kind(path) for path in corpus.paths]
    return Corpus(paths, columns=corpus.columns if alike else None, prefix=corpus.prefix)


def read(corpus: Corpus) -> Pairs:
    """All pairs of a corpus, or an error that names file and line."""
    dropped, reason = 0, ""

    def complain(fault: str) -> None:
        nonlocal dropped, reason
        if corpus.on_bad == "error":
            raise DataError(f"{fault}; mend it, or say on_bad: drop to leave out such pairs")
        dropped, reason = dropped + 1, reason or fault

    first, last = corpus.paths[0], corpus.paths[-1]
    one = len(corpus.paths) == 1
    rows = read_columns(first, SIDES, corpus.columns, complain) if one else _parallel(first, last)
    source, target = [], []
    for line, (left, right) in rows:
        if left and right and not left.isspace() and not right.isspace():
            source.append(corpus.prefix + left)
            target.append(right)
        else:
            side, path = ("target", last) if left.strip() else ("source", first)
            complain(f"{path}, line {line}: the {side} is empty")
    if not source:
        raise DataError(
            f"{corpus.name} holds no pairs" + (f", all {dropped} were dropped: {reason}" if dropped else "")
        )
    return Pairs(source, target, corpus.tag, corpus.weight, corpus.name, dropped)


def read_columns(path: str, names: Sequence[str], columns: Columns | None, complain: Complain) -> Iterator[Row]:
    """Columns of a table: those named or numbered, else those called `names`, else all where there are as many.

    What is wrong with a row goes to `complain`; if it returns, the row is left out.
    """
    if _kind(path) not in READERS:
        raise DataError(f"{path} should be a table: {', '.join(READERS)} (each may end in .gz)")
    return READERS[_kind(path)](path, names, columns, complain)


def is_table(path: str) -> bool:
    """Whether a file holds columns, by the end of its name."""
    return _kind(path) in READERS


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a text file, one at a time, without their ends."""
    for line in _lines(Path(path)):
        yield line[: -2 if line.endswith("\r\n") else -1] if line.endswith("\n") else line


def read_text(path: str | Path) -> str:
    """A whole text file as it is, line ends included."""
    return "".join(_lines(Path(path)))


def split(pairs: Pairs, *, size: int | None = None, seed: int = 0) -> tuple[Pairs, Pairs]:
    """Set a validation part aside: the rest, and about `size` pairs (a twentieth, at most 1000).

    A pair's own content decides where it goes, so copies of a pair stay together, and lines added elsewhere move almost
    nothing: those whose hashes are smallest are taken.
    """
    size = max(1, min(1000, len(pairs) // 20)) if size is None else size
    if not 1 <= size < len(pairs):
        raise DataError(f"cannot set {size} of the {len(pairs)} pairs of {pairs.name} aside for validation")
    key = hashlib.blake2b(str(seed).encode()).digest()
    hashes = [
        hashlib.blake2b(f"{len(s)}:{s}{t}".encode(), digest_size=8, key=key).digest()
        for s, t in zip(pairs.source, pairs.target, strict=True)
    ]
    copies = Counter(hashes)
    if len(copies) == 1:
        raise DataError(f"all {len(pairs)} pairs of {pairs.name} are the same: none can be set aside for validation")
    aside: set[bytes] = set()
    room = size
    for digest in sorted(copies):
        if copies[digest] <= room:
            aside.add(digest)
            room -= copies[digest]
        if not room:
            break
    aside = aside or {min(copies, key=lambda digest: (copies[digest], digest))}  # every pair has more copies than fit

    def part(among: bool) -> Pairs:
        kept = [i for i, digest in enumerate(hashes) if (digest in aside) is among]
        return replace(pairs, source=[pairs.source[i] for i in kept], target=[pairs.target[i] for i in kept])

    return part(False), replace(part(True), name=f"{pairs.name}, set aside", dropped=0)


def fingerprint(*corpora: Pairs) -> str:
    """SHA-256 of all that training sees of the corpora: texts in their order, tags and weights, but no file names."""
    digest = hashlib.sha256()
    for pairs in corpora:
        digest.update(f"{len(pairs)} {pairs.tag} {float(pairs.weight)!r}\n".encode())
        for texts in (pairs.source, pairs.target):
            for start in range(0, len(texts), 4096):
                digest.update("".join([f"{len(s)}:{s}" for s in texts[start : start + 4096]]).encode())
    return digest.hexdigest()


def _kind(path: str) -> str:
    """How a file's name ends, packed or not."""
    return Path(path.lower().removesuffix(".gz")).suffix


def _parallel(one: str, other: str) -> Iterator[Row]:
    left, right = list(read_lines(one)), list(read_lines(other))
    if len(left) != len(right):
        raise DataError(
            f"{one} has {len(left)} lines and {other} has {len(right)}; line n of one belongs to line n of the other"
        )
    return enumerate(zip(left, right, strict=True), 1)


def _tsv(path: str, names: Sequence[str], columns: Columns | None, complain: Complain) -> Iterator[Row]:
    """Tabs separate, and nothing is quoted: a quotation mark is a character of the text."""
    rows = ((line, text.split("\t")) for line, text in enumerate(read_lines(path), 1))
    return _columns(path, names, columns, rows, complain)


def _csv(path: str, names: Sequence[str], columns: Columns | None, complain: Complain) -> Iterator[Row]:
    """Commas separate; a field in quotation marks may hold commas, doubled quotation marks and line ends."""

    def rows() -> Iterator[tuple[int, list[str]]]:
        reader, line = csv.reader(_lines(Path(path)), strict=True), 1
        try:
            for cells in reader:
                yield line, cells
                line = reader.line_num + 1
        except csv.Error as error:
            fault = str(error).partition(" - ")[0]  # what follows is advice to programmers
            raise DataError(f"{path}, line {line}: not CSV: {fault}") from None

    return _columns(path, names, columns, rows(), complain)


def _jsonl(path: str, names: Sequence[str], columns: Columns | None, complain: Complain) -> Iterator[Row]:
    """One object a line; the texts are values of its keys."""
    keys = columns or tuple(names)
    for line, text in enumerate(read_lines(path), 1):
        where = f"{path}, line {line}"
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError) as error:
            complain(f"{where}: not JSON: {error}")
            continue
        found: list[Any] = [entry.get(key) for key in keys] if isinstance(entry, dict) else []
        if not found or not all(isinstance(value, str) for value in found):
            complain(f"{where}: should be an object with texts {_and([repr(k) for k in keys])}, got {text[:80]}")
        elif "\\u" in text and any(UNUSABLE.search(value) for value in found):
            complain(f"{where}: a text holds a NUL or half a surrogate pair")
        else:
            yield line, tuple(found)


READERS: dict[str, Callable[[str, Sequence[str], Columns | None, Complain], Iterator[Row]]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _jsonl,
}
"""How to read a file that holds all columns, by the end of its name."""
UNUSABLE = re.compile(r"[\x00\ud800-\udfff]")
"""What an escape in JSON can write and text in UTF-8 should or can not hold."""


def _columns(
    path: str,
    names: Sequence[str],
    columns: Columns | None,
    rows: Iterator[tuple[int, list[str]]],
    complain: Complain,
) -> Iterator[Row]:
    """The wanted columns; every row should have as many as the first."""
    start, first = next(rows)
    places, named = _places(path, names, columns, first)
    for line, cells in rows if named else chain([(start, first)], rows):
        if len(cells) == len(first):
            yield line, tuple(cells[place] for place in places)
        else:
            complain(f"{path}, line {line}: {len(cells)} columns, the first line has {len(first)}")


def _places(path: str, names: Sequence[str], columns: Columns | None, first: list[str]) -> tuple[list[int], bool]:
    """Where the wanted columns stand in a row, counted from 0, and whether the first row is a header."""
    if columns is None:
        lowered = [cell.strip().lower() for cell in first]
        if all(name in lowered for name in names):
            return [lowered.index(name) for name in names], True
        if len(first) == len(names):
            return list(range(len(names))), False
        raise DataError(f"{path} has {len(first)} columns and no header with {_and(names)}; say which as columns")
    places = []
    for column in columns:
        if isinstance(column, str):
            if column not in first:
                raise DataError(f"{path} has no column {column!r}{offer(column, first)}")
            places.append(first.index(column))
        else:
            if column > len(first):
                raise DataError(f"{path} has no column {column}, its first line has {len(first)}")
            places.append(column - 1)
    return places, isinstance(columns[0], str)


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text file with their ends, decoded and checked."""
    line = position = 0
    with _opened(path) as file:
        try:
            for line, raw in enumerate(file, 1):
                text = raw.decode()
                if "\0" in text:
                    raise DataError(f"{path}, line {line}: a NUL at byte {position + raw.index(0)}: this is not text")
                yield text if line > 1 else text.removeprefix("\ufeff")
                position += len(raw)
        except UnicodeDecodeError as error:
            utf16 = line == 1 and error.object[:2] in (b"\xff\xfe", b"\xfe\xff")
            hint = "this looks like UTF-16" if utf16 else f"got {error.object[error.start : error.start + 4].hex(' ')}"
            where = f"{path}, line {line}: not UTF-8 at byte {position + error.start}"
            raise DataError(f"{where}: {hint}; convert the file (iconv) or mend the line") from None
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{path} cannot be read past line {line}: {error}; copy it or pack it again") from None
    if not line:
        raise DataError(f"{path} is empty")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file as bytes, unpacked when it starts like gzip, whatever it is called."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DataError(f"{path} is a directory; name a file in it")
        if not stat.S_ISREG(mode):
            raise DataError(f"{path} is a pipe or device; save what it gives to a file, which can be read again")
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    with file:
        if file.peek(2)[:2] != b"\x1f\x8b":
            yield file
        else:
            with gzip.GzipFile(fileobj=file) as packed:
                yield io.BufferedReader(packed)
