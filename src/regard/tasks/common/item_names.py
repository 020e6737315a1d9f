"""Items by the names that people type.

A history is a line of names separated by `;`, or a JSON list of names. A name may differ from that of an item in upper and
lower case, in its spaces, in the place of its article (`The Matrix` is `Matrix, The`) and in its year, as long as only one
item fits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from regard.errors import CheckpointError, DataError
from regard.files.folder import parse_json

ITEMS_FILE = "items.json"
SEPARATOR = ";"
MAX_OFFERED = 3
"""Maximum number of suggestions for an unknown name."""
MAX_COMPARED = 60
"""Maximum number of characters of a name that are compared for suggestions."""
_YEAR = re.compile(r"(?<!\s)\s*+\(\d{4}(?:[-–]\d{0,4})?\)$")
_ARTICLE = re.compile(r"^(.+), (the|a|an|le|la|les|l'|il|el|der|die|das)$")


class ItemNames:
    """The items of a model: as the data name them (`keys`), and as people do (`names`)."""

    def __init__(self, keys: Sequence[str], names: Sequence[str]) -> None:
        self.keys, self.names = tuple(keys), tuple(names)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        """Exact names first; a looser form counts if it stands for one item only."""
        found: dict[str, int] = {}
        for forms in (
            self.names,
            self.keys,
            [_fold(name) for name in self.names],
            [_bare(name) for name in self.names],
        ):
            fresh: dict[str, list[int]] = {}
            for number, form in enumerate(forms):
                if form not in found:
                    fresh.setdefault(form, []).append(number)
            found |= {form: numbers[0] for form, numbers in fresh.items() if len(numbers) == 1}
        return found

    @cached_property
    def by_key(self) -> Mapping[str, int]:
        """The number of each item, as the data name it."""
        return {key: number for number, key in enumerate(self.keys)}

    def find(self, name: str) -> int:
        """The number of the item that a person calls this."""
        for form in (name, _fold(name), _bare(name)):
            if (number := self._numbers.get(form)) is not None:
                return number
        raise DataError(f"no item {name[:80]!r} in the data the model learned from{self._offer(name)}")

    def find_all(self, line: str) -> list[int]:
        """The numbers of the items of a history."""
        return [self.find(name) for name in split_history(line)]

    def join(self, numbers: Sequence[int]) -> str:
        """A history as a line that `find_all` reads."""
        names = [self.names[number] for number in numbers]
        plain = all(SEPARATOR not in name and not name.startswith("[") for name in names)
        return f"{SEPARATOR} ".join(names) if plain else json.dumps(names, ensure_ascii=False)

    def _offer(self, name: str) -> str:
        wanted = _bare(name)[:MAX_COMPARED]
        folded = [_bare(other) for other in self.names]
        inside = sorted((len(f), n) for n, f in enumerate(folded) if len(wanted) > 2 and wanted in f)
        near = [n for _, n in inside[:MAX_OFFERED]]
        if not near:
            close = get_close_matches(wanted, folded, MAX_OFFERED, 0.6)
            near = [folded.index(form) for form in dict.fromkeys(close)]
        if near:
            return f"; did you mean {' or '.join(repr(self.names[n]) for n in near)}?"
        return f"; items are called {', '.join(map(repr, self.names[:3]))} …, and `{SEPARATOR}` separates them"

    def pack(self) -> dict[str, bytes]:
        """The file of a model folder."""
        found = {"items": self.keys} if self.keys == self.names else {"items": self.keys, "names": self.names}
        return {ITEMS_FILE: json.dumps(found, ensure_ascii=False, indent=0).encode()}

    @classmethod
    def unpack(cls, files: Mapping[str, bytes]) -> ItemNames:
        """Read the file that `pack` makes."""
        if ITEMS_FILE not in files:
            raise CheckpointError(f"there is no {ITEMS_FILE} among {', '.join(files)}; this is no model of items")
        found = parse_json(files[ITEMS_FILE], Path(ITEMS_FILE))
        keys = found.get("items") if isinstance(found, dict) else None
        names = found.get("names", keys) if isinstance(found, dict) else None
        for rows in (keys, names):
            if not isinstance(rows, list) or not rows or not all(isinstance(row, str) for row in rows):
                raise CheckpointError(
                    f"{ITEMS_FILE} should hold a list of items and one of names, got {str(found)[:80]}"
                )
        assert isinstance(keys, list) and isinstance(names, list)
        if not len(keys) == len(names) == len(set(keys)):
            raise CheckpointError(f"{ITEMS_FILE} should name each item once, got {len(keys)} items, {len(names)} names")
        if strange := next((name for name in (*keys, *names) if not name.isprintable()), None):
            raise CheckpointError(f"{ITEMS_FILE} has a name that cannot be printed: {strange[:80]!r}")
        return cls(keys, names)


def split_history(line: str) -> list[str]:
    """The names in a line."""
    if line.lstrip().startswith("["):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list) and all(isinstance(name, str) for name in found):
            return [name.strip() for name in found if name.strip()]
    return [name.strip() for name in line.replace("\t", SEPARATOR).split(SEPARATOR) if name.strip()]


def _fold(name: str) -> str:
    return " ".join(name.casefold().split())


def _bare(name: str) -> str:
    """A name without its year, and with its article in front."""
    found = _YEAR.sub("", _fold(name))
    moved = _ARTICLE.match(found)
    return f"{moved[2]} {moved[1]}" if moved else found
