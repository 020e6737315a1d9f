"""The tree of errors, with their exit codes.

    RegardError                   1   any other error raised on purpose
    ├── SpecError                 2   a spec, recipe or argument is invalid
    │   └── UnknownName           2   a name is in no registry
    ├── ShapeError                1   a tensor does not have the shape the module was built for
    ├── StateError                1   a decoding state is used in a way its mixer does not support
    ├── LawError                  2   a mixer or position breaks a law that it claims to obey
    ├── DataError                 2   a corpus or input file cannot be used
    │   └── NoRoom                2   an output is too short for what it must include
    ├── CheckpointError           3   a file is damaged, incomplete or not trustworthy
    │   └── DamagedModel          3   a model computes what are no numbers
    ├── Diverged                  4   training diverged
    ├── DiskFull                  5   there is no disk space for the next checkpoint
    ├── CallStopped               1   another thread ended the call
    ├── OutputLost                1   results cannot be printed (5: the disk is full, 141: their reader has left)
    └── Interrupted             130   the user interrupted the program (143 for SIGTERM, 129 for SIGHUP)

Every message says what was expected, what was found, and what to do about it. It is one printable line: whatever a file or a
name adds to it is escaped here, so that no folder can forge a line of ours or drive a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MAX_LISTED = 30
"""Maximum number of names listed in a message."""
MAX_COMPARED = 60
"""Longer names are not compared: a file from elsewhere may hold a name of any length."""
MIN_COMMON = 4
"""Minimum number of letters that make two names look related."""
CHECKOUT = "in Regard's folder"
"""Folder to install from. Regard is on no package index: whoever takes its name there could run anything."""


def name_extra(extra: str) -> str:
    """Tell how to install the packages that a part of Regard needs."""
    return f"{CHECKOUT}, pip install '.[{extra}]' (of a wheel, 'FILE.whl[{extra}]')"


class RegardError(Exception):
    """Base of all errors that Regard raises on purpose."""

    exit_code = 1

    def __str__(self) -> str:
        return make_printable(super().__str__())


class SpecError(RegardError, ValueError):
    """A spec, recipe or argument is invalid; the message holds all of its `faults`."""

    exit_code = 2

    def __init__(self, *faults: str) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


class UnknownName(SpecError):
    """A name that is in no registry; the message offers a near name, or lists the names there are."""

    def __init__(self, what: str, name: str, known: Iterable[str], synonyms: Mapping[str, str] | None = None) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"no {what} {name!r}{offer(name, self.known, synonyms)}")


class ShapeError(RegardError):
    """A tensor does not have the shape the module was built for."""


class StateError(RegardError):
    """A decoding state is used in a way its mixer does not support."""


class LawError(RegardError):
    """A mixer or position breaks a law that it claims to obey (see `regard.laws`)."""

    exit_code = 2


class DataError(RegardError):
    """A corpus or input file cannot be used."""

    exit_code = 2


class NoRoom(DataError):
    """The outputs of the inputs at `places` are too short for what they must include."""

    def __init__(self, message: str, places: Iterable[int] = ()) -> None:
        self.places = tuple(places)
        super().__init__(message)


class CheckpointError(RegardError):
    """A file is damaged, incomplete or not trustworthy."""

    exit_code = 3


class DamagedModel(CheckpointError):
    """A model that was loaded computes what are no numbers: its weights are damaged. The message names no file."""


class Diverged(RegardError):
    """Training diverged: several steps in a row were not finite."""

    exit_code = 4


class DiskFull(RegardError):
    """There is no disk space for the next checkpoint; the previous one is intact."""

    exit_code = 5


class CallStopped(RegardError):
    """Another thread ended the call (see `regard.stopping`)."""


class OutputLost(RegardError):
    """Results cannot be printed. A reader that has left (`| head`) is no error to talk about: the message is empty."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Interrupted(RegardError):
    """The user interrupted the program; the work so far is saved."""

    def __init__(self, message: str, signal: int = 2) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal


def make_printable(text: str) -> str:
    """Return text on one line, with all that is not printable escaped: line breaks, control characters, direction overrides.

    Printable text stays as it is, and so does text that was escaped before.
    """
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def offer(name: object, known: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """Return the end of a message about an unknown name: what the user may have meant, or what is available.

    `synonyms` maps other words for known names, such as those of a paper, to the names.
    """
    names, wanted = [str(k) for k in known], _normalize(name)
    other = {_normalize(word): meant for word, meant in (synonyms or {}).items()}
    if wanted in other:
        return f"; did you mean {other[wanted]!r}?"
    if near := _nearest(wanted, names):
        return f"; did you mean {near!r}?"
    return f"; {list_available(names)}" if names else ""


def list_available(names: Iterable[str]) -> str:
    """Return the list of what a user can choose from, cut off where it gets long."""
    names = list(names)
    more = len(names) - MAX_LISTED
    return f"available: {', '.join(names[:MAX_LISTED])}" + (f" and {more} more" if more > 0 else "")


def _normalize(name: object) -> str:
    return str(name)[: MAX_COMPARED + 1].lower().replace("-", "_")


def _nearest(wanted: str, names: Iterable[str]) -> str | None:
    """Return the closest name by edit distance (at most one edit in four letters), else one that has a part in common."""
    found = list[tuple[int, str]]()
    for name in names:
        word = _normalize(name)
        longer = max(len(word), len(wanted))
        if longer > MAX_COMPARED:
            continue
        errors = _typing_errors(wanted, word)
        if errors <= max(longer // 4, longer > 2):
            found.append((errors, name))
        elif _have_part_in_common(wanted, word):
            found.append((longer, name))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _have_part_in_common(a: str, b: str) -> bool:
    """True if one name begins with or contains the other, or both have at least half of the longer one as their beginning."""
    if min(len(a), len(b)) < MIN_COMMON:
        return min(len(a), len(b)) == MIN_COMMON - 1 and (a.startswith(b) or b.startswith(a))
    common = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a in b or b in a or common >= max(MIN_COMMON, max(len(a), len(b)) / 2)


def _typing_errors(a: str, b: str) -> int:
    """Count letters to insert, delete, replace or swap with their neighbor (optimal string alignment distance)."""
    before, row = list[int](), list(range(len(b) + 1))
    for i in range(1, len(a) + 1):
        before, last, row = row, before, [i]
        for j in range(1, len(b) + 1):
            cost = min(before[j] + 1, row[-1] + 1, before[j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
