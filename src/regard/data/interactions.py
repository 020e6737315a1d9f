"""Interactions: which user had which item, in order.

Plain text has two to four fields per line, separated by white space or by `::` (MovieLens 1M):

    1 6393                      user item, in order of time (the files of SASRec)
    1 6393 1370131200           user item time
    196 242 3 881250949         user item rating time (MovieLens 100K)

A first line may name the columns (MovieLens: userId,movieId,rating,timestamp; Amazon: user_id,parent_asin,rating,timestamp);
.csv and .tsv tables without such a header have the columns above. A table of items with titles and without users (MovieLens:
movieId,title,genres) gives the items their names. All may be gzipped.
"""

from __future__ import annotations

import csv
import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import numpy as np

from regard.data.ragged import Ragged
from regard.data.table_header import NAME, NUMBER, SAMPLE, Columns, TableColumns
from regard.data.tables import file_kind, is_table, read_columns
from regard.data.text_files import BadLine, iter_lines, raise_on_bad, strip_line_end
from regard.errors import DataError, make_printable, offer

USER = (
    "user",
    "userid",
    "user_id",
    "uid",
    "reviewerid",
    "customerid",
    "customer_id",
    "visitorid",
    "sessionid",
    "session_id",
)
ITEM = ("item", "itemid", "item_id", "iid", "movieid", "movie_id", "asin", "parent_asin", "productid", "product_id", "isbn",
        "bookid", "book_id", "artistid", "artist_id", "trackid", "track_id")  # fmt: skip
TIME = ("time", "timestamp", "unixreviewtime", "date", "datetime")
TITLE = ("title", "name")
"""Names of columns, in lower case."""
PLAIN = {2: (0, 1), 3: (0, 1, 2), 4: (0, 1, 3)}
"""The places of user, item and time, by the number of fields, where there is no header."""
TIMELESS = math.nan


@dataclass(frozen=True, eq=False)
class Interactions:
    """The items of each user, from the first to the last, as numbers from 0."""

    users: tuple[str, ...]
    items: tuple[str, ...]
    """The items as the file names them."""
    names: tuple[str, ...]
    """The items as people name them."""
    histories: Ragged

    def keep_frequent(self, *, min_user: int, min_item: int) -> Interactions:
        """Leave out rare users and rare items, both counted once before anything is left out (Kang & McAuley 2018)."""
        if min_user <= 1 and min_item <= 1:
            return self
        user = np.repeat(np.arange(len(self.users)), self.histories.lengths)
        item = self.histories.ids
        frequent = np.bincount(item, minlength=len(self.items))[item] >= min_item
        kept = frequent & (self.histories.lengths[user] >= min_user)
        users, user = np.unique(user[kept], return_inverse=True)
        items, item = np.unique(item[kept], return_inverse=True)
        ends = np.cumsum(np.bincount(user, minlength=len(users)), dtype=np.int64)
        return Interactions(
            tuple(self.users[i] for i in users),
            tuple(self.items[i] for i in items),
            tuple(self.names[i] for i in items),
            Ragged(item.astype(np.int32), ends),
        )

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256("\n".join((*self.items, "", *self.names)).encode())
        digest.update(self.histories.ids.tobytes() + self.histories.ends.tobytes())
        return digest.hexdigest()


def read_interactions(paths: Sequence[str], columns: Columns | None = None) -> Interactions:
    """Read all files; a malformed line is an error with its number. `columns` are user, item and, if there is one, time."""
    users, items, titles, titled = dict[str, int](), dict[str, int](), dict[str, str](), list[str]()
    user, item, time, timed = array("q"), array("q"), array("d"), dict[bool, str]()
    for path in paths:
        layout = _find_layout(path, columns)
        if layout.titles:
            titles |= {key: name for _, (key, name) in _read_fields(path, layout)}
            titled.append(path)
            continue
        timed[len(layout.places) == 3] = path
        for line, (who, what, *when) in _read_fields(path, layout):
            if not who or not what:
                raise DataError(f"{path}, line {line}: a user and an item should be there, got {who!r} and {what!r}")
            user.append(users.setdefault(who, len(users)))
            item.append(items.setdefault(what, len(items)))
            time.append(_parse_time(when[0], f"{path}, line {line}") if when else TIMELESS)
    if len(timed) == 2:
        raise DataError(f"{timed[True]} has times and {timed[False]} has none; give all files times, or none")
    if not user:
        raise DataError(f"there are no interactions in {', '.join(paths)}; a line should have a user and an item")
    if titles and titles.keys().isdisjoint(items):
        raise DataError(
            f"none of the {len(items):,} items, such as {next(iter(items))[:60]!r}, is in {', '.join(titled)}, which has "
            f"{next(iter(titles))[:60]!r}; leave it out, or name the table of these items"
        )
    owner, moment = np.frombuffer(user, np.int64), np.frombuffer(time, np.float64)
    order = np.lexsort((moment, owner)) if True in timed else np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=len(users)), dtype=np.int64)
    histories = Ragged(np.frombuffer(item, np.int64)[order].astype(np.int32), ends)
    keys = tuple(map(make_printable, items))
    return Interactions(tuple(users), keys, _name_items(tuple(items), titles), histories)


def _name_items(items: Sequence[str], titles: dict[str, str]) -> tuple[str, ...]:
    """A distinct, printable name for each item: its title, with the item behind it where several have the same."""
    named = [make_printable(" ".join((titles.get(item) or item).split())) for item in items]
    count = Counter(named)
    return tuple(
        name if count[name] == 1 else f"{name} [{make_printable(item)}]"
        for name, item in zip(named, items, strict=True)
    )


# How a file is laid out. ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    places: tuple[int, ...]
    """Places of user, item and perhaps time, or of item and title, from 0."""
    header: bool
    separator: str | None = None
    """Separator of plain text; None is white space."""
    titles: bool = False


def _find_layout(path: str, columns: Columns | None) -> _Layout:
    """Decide by the first line that has anything on it, and by some lines below."""
    lines = enumerate(raise_on_bad(iter_lines(path)), 1)
    number, first = next(((i, line) for i, line in lines if line.strip()), (1, ""))
    table = is_table(path)
    separator = "::" if not table and "::" in first else None
    if not table:
        cells = [field.strip() for field in first.strip().split(separator)]
    elif number > 1:
        raise DataError(f"{path}, line 1 is empty; a table begins with its header or its first row")
    else:
        cells = _split_header(path, first)
    words = [cell.strip().lower().partition(":")[0] for cell in cells]  # RecBole writes user_id:token
    user, item, time, title = (
        next((i for i, word in enumerate(words) if word in known), None) for known in (USER, ITEM, TIME, TITLE)
    )
    titles = (item, title) if table and user is None and item is not None and title is not None else None
    between = {".csv": ",", ".tsv": "\t"}.get(file_kind(path), separator)
    below = [[cell.strip(' "') for cell in line.strip().split(between)] for _, line in islice(lines, SAMPLE)]
    header = _is_header(cells, words, below)
    if columns is not None and not (titles and any(isinstance(c, str) and c not in cells for c in columns)):
        return _Layout(_choose(path, columns, cells), header or any(isinstance(c, str) for c in columns), separator)
    if titles is not None:
        return _Layout(titles, True, titles=True)
    if user is not None and item is not None:
        return _Layout((user, item) if time is None else (user, item, time), True, separator)
    places = PLAIN.get(len(cells))
    if places is None and not table:
        raise DataError(
            f"{path}, line {number}: a line should be `user item`, `user item time` or `user item rating time`, "
            f"got {first.strip()[:60]!r}"
        )
    timeless = table and places is not None and len(places) == 3 and not _is_time(cells[places[2]])
    if places is None or timeless or header:
        raise DataError(
            f"{path}, line {number}: no columns of users and items among {', '.join(map(repr, cells[:12]))}; set "
            "data.columns to those of user, item and time, by name or by position from 1"
        )
    return _Layout(places, False, separator)


def _is_header(cells: Sequence[str], words: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """True if one of these is the name of a column and comes no more, or is a word above numbers."""
    for i, (cell, word) in enumerate(zip(cells, words, strict=True)):
        column = [row[i] for row in below if len(row) == len(cells)]
        if word in (*USER, *ITEM, *TIME, *TITLE) and cell not in column:
            return True
        named = NAME.fullmatch(cell.strip()) and not any(map(str.isdigit, cell))
        if named and column and all(map(NUMBER.fullmatch, column)):
            return True
    return False


def _split_header(path: str, line: str) -> list[str]:
    """The cells of the first line of a table."""
    kind = file_kind(path)
    if kind == ".tsv":
        return strip_line_end(line).split("\t")
    if kind != ".csv":
        raise DataError(f"{path}: interactions are read from .csv, .tsv or plain text; convert it to one of them")
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise DataError(f"{path}, line 1: not CSV: {str(error).partition(' - ')[0]}") from None


def _choose(path: str, columns: Columns, cells: Sequence[str]) -> tuple[int, ...]:
    """The places of columns that are given by name, or by position from 1."""
    out = []
    for column in columns:
        if isinstance(column, str) and column not in cells:
            raise DataError(f"{path} has no column {column!r}{offer(column, cells)}")
        if isinstance(column, int) and not 1 <= column <= len(cells):
            raise DataError(f"{path} has no column {column}; its first line has {len(cells)}")
        out.append(cells.index(column) if isinstance(column, str) else column - 1)
    return tuple(out)


def _read_fields(path: str, layout: _Layout) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The number of each line, and its fields at the places of the layout."""
    if is_table(path):
        wanted = TableColumns(("",) * len(layout.places), tuple(place + 1 for place in layout.places), layout.header)
        for line, cells in read_columns(path, wanted, _refuse):
            yield line, tuple(cell.strip() for cell in cells)
        return
    count, header = None, layout.header
    for line, text in enumerate(raise_on_bad(iter_lines(path)), 1):
        if not text.strip():
            continue
        fields = [field.strip() for field in text.strip().split(layout.separator)]
        if len(fields) != (count or len(fields)):
            raise DataError(
                f"{path}, line {line}: {len(fields)} fields, but the first line has {count}: {text.strip()[:60]!r}"
            )
        count = len(fields)
        if header:
            header = False
            continue
        yield line, tuple(fields[place] for place in layout.places)


def _refuse(line: BadLine) -> None:
    raise DataError(line.message)


def _is_time(text: str) -> bool:
    try:
        _parse_time(text, "")
    except DataError:
        return False
    return True


def _parse_time(text: str, where: str) -> float:
    """Seconds, or a date as a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = datetime.fromisoformat(text.strip()).timestamp()
        except (ValueError, OverflowError):
            seconds = math.nan
    if not math.isfinite(seconds):
        raise DataError(f"{where}: a time should be a number or a date such as 2018-09-26, got {text[:40]!r}")
    return seconds
