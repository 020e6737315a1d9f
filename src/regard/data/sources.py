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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import Field

from regard.errors import DataError, SpecError, offer
from regard.spec import Spec, spec

Language = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
Row = tuple[int, str, str]
"""A line's number, its source and its target."""
Complain = Callable[[str], None]


@spec
class Corpus(Spec):
    """Where pairs lie, and how they are used. The files of a command line are `Corpus(paths=tuple(files))`.

    paths        two text files, line n of one belonging to line n of the other; or one .tsv, .csv or .jsonl file
    columns      source and target in a table: names in its header or keys of its objects, or positions counted from 1
                 (TSV, CSV). Without: `source` and `target` where these are named, else a table of just two columns
    target_lang  puts the tag `2de` before every source, so that one model can translate into several languages
    weight       how often a pair comes compared with one of weight 1: 2 is as if the file were there twice
    on_bad       what to do about an empty side or a malformed row: stop, or drop the pair and count it
    """

    paths: tuple[str, ...]
    columns: tuple[int | str, int | str] | None = None
    source_lang: Language | None = None
    target_lang: Language | None = None
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    on_bad: Literal["error", "drop"] = "error"

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
        """What reports call this corpus: its files, and its languages where they are given."""
        files = " + ".join(Path(path).name for path in self.paths)
        languages = "-".join(filter(None, (self.source_lang, self.target_lang)))
        return f"{files} ({languages})" if languages else files


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


def read(corpus: Corpus) -> Pairs:
    """All pairs of a corpus, or an error that names file and line."""
    dropped, reason = 0, ""

    def complain(fault: str) -> None:
        nonlocal dropped, reason
        if corpus.on_bad == "error":
            raise DataError(f"{fault}; mend it, or say on_bad: drop to leave out such pairs")
        dropped, reason = dropped + 1, reason or fault

    first, last = corpus.paths[0], corpus.paths[-1]
    reader = READERS.get(_kind(first), _parallel)
    source, target = [], []
    for line, left, right in reader(corpus, complain):
        if left and right and not left.isspace() and not right.isspace():
            source.append(left)
            target.append(right)
        else:
            side, path = ("target", last) if left.strip() else ("source", first)
            complain(f"{path}, line {line}: the {side} is empty")
    if not source:
        raise DataError(
            f"{corpus.name} holds no pairs" + (f", all {dropped} were dropped: {reason}" if dropped else "")
        )
    return Pairs(source, target, corpus.tag, corpus.weight, corpus.name, dropped)


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


def _parallel(corpus: Corpus, complain: Complain) -> Iterator[Row]:
    one, other = corpus.paths
    left, right = list(read_lines(one)), list(read_lines(other))
    if len(left) != len(right):
        raise DataError(
            f"{one} has {len(left)} lines and {other} has {len(right)}; line n of one belongs to line n of the other"
        )
    return zip(range(1, len(left) + 1), left, right, strict=True)


def _tsv(corpus: Corpus, complain: Complain) -> Iterator[Row]:
    """Tabs separate, and nothing is quoted: a quotation mark is a character of the text."""
    rows = ((line, text.split("\t")) for line, text in enumerate(read_lines(corpus.paths[0]), 1))
    return _columns(corpus, rows, complain)


def _csv(corpus: Corpus, complain: Complain) -> Iterator[Row]:
    """Commas separate; a field in quotation marks may hold commas, doubled quotation marks and line ends."""

    def rows() -> Iterator[tuple[int, list[str]]]:
        reader, line = csv.reader(_lines(Path(corpus.paths[0])), strict=True), 1
        try:
            for cells in reader:
                yield line, cells
                line = reader.line_num + 1
        except csv.Error as error:
            fault = str(error).partition(" - ")[0]  # what follows is advice to programmers
            raise DataError(f"{corpus.paths[0]}, line {line}: not CSV: {fault}") from None

    return _columns(corpus, rows(), complain)


def _jsonl(corpus: Corpus, complain: Complain) -> Iterator[Row]:
    """One object a line; the two texts are values of its keys."""
    columns = corpus.columns or ("source", "target")
    for line, text in enumerate(read_lines(corpus.paths[0]), 1):
        where = f"{corpus.paths[0]}, line {line}"
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError) as error:
            complain(f"{where}: not JSON: {error}")
            continue
        found: list[Any] = [entry.get(column) for column in columns] if isinstance(entry, dict) else [entry]
        if len(found) != 2 or not all(isinstance(value, str) for value in found):
            complain(f"{where}: should be an object with texts {columns[0]!r} and {columns[1]!r}, got {text[:80]}")
        elif "\\u" in text and any(UNUSABLE.search(value) for value in found):
            complain(f"{where}: a text holds a NUL or half a surrogate pair")
        else:
            yield line, found[0], found[1]


READERS: dict[str, Callable[[Corpus, Complain], Iterator[Row]]] = {".tsv": _tsv, ".csv": _csv, ".jsonl": _jsonl}
"""How to read a file that holds both sides, by the end of its name."""
UNUSABLE = re.compile(r"[\x00\ud800-\udfff]")
"""What an escape in JSON can write and text in UTF-8 should or can not hold."""


def _columns(corpus: Corpus, rows: Iterator[tuple[int, list[str]]], complain: Complain) -> Iterator[Row]:
    """The two wanted columns; every row should have as many as the first."""
    start, first = next(rows)
    source, target, named = _places(corpus, first)
    for line, cells in rows if named else chain([(start, first)], rows):
        if len(cells) == len(first):
            yield line, cells[source], cells[target]
        else:
            complain(f"{corpus.paths[0]}, line {line}: {len(cells)} columns, the first line has {len(first)}")


def _places(corpus: Corpus, first: list[str]) -> tuple[int, int, bool]:
    """Where source and target stand in a row, counted from 0, and whether the first row is a header."""
    path, columns = corpus.paths[0], corpus.columns
    if columns is None:
        lowered = [cell.strip().lower() for cell in first]
        if "source" in lowered and "target" in lowered:
            return lowered.index("source"), lowered.index("target"), True
        if len(first) == 2:
            return 0, 1, False
        raise DataError(f"{path} has {len(first)} columns and no header with source and target; say which as columns")
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
    return places[0], places[1], isinstance(columns[0], str)


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
