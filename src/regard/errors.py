"""Everything that can go wrong, as one tree, each branch with the exit code the command line gives it.

    RegardError                   1   anything else
    ├── SpecError                 2   a spec, recipe or argument says something that cannot be
    │   └── UnknownName           2   a name that is in none of our tables
    ├── ShapeError                1   a tensor has another shape than the part was built for
    ├── StateError                1   a state used in a way its mixer cannot honour
    ├── DataError                 2   a corpus or input file cannot be used
    │   └── NoRoom                2   an output has no room for what must be written
    ├── CheckpointError           3   a file is damaged, incomplete or not to be trusted
    ├── Diverged                  4   training stopped making sense
    ├── DiskFull                  5   there is no room for the next checkpoint
    └── Interrupted             130   the user asked us to stop (143 for SIGTERM)

A message says what was wanted, what came, and what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RegardError(Exception):
    """Root of all errors that Regard raises on purpose."""

    exit_code = 1


class SpecError(RegardError, ValueError):
    """A spec, recipe or argument says something that cannot be; all its `faults` are in one message."""

    exit_code = 2

    def __init__(self, *faults: str) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


class UnknownName(SpecError):
    """A name that is in none of our tables; the message offers the nearest ones."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"no {what} {name!r}{offer(name, self.known)}")


class ShapeError(RegardError):
    """A tensor has another shape than the part was built for."""


class StateError(RegardError):
    """A state used in a way its mixer cannot honour."""


class DataError(RegardError):
    """A corpus or input file cannot be used as it is."""

    exit_code = 2


class NoRoom(DataError):
    """Outputs have no room for what must be written; those of the inputs at `places`."""

    def __init__(self, message: str, places: Iterable[int] = ()) -> None:
        self.places = tuple(places)
        super().__init__(message)


class CheckpointError(RegardError):
    """A file on disk is damaged, incomplete or not to be trusted."""

    exit_code = 3


class Diverged(RegardError):
    """Training stopped making sense: several non-finite steps in a row."""

    exit_code = 4


class DiskFull(RegardError):
    """There is no room for the next checkpoint; the previous one is intact."""

    exit_code = 5


class Interrupted(RegardError):
    """The user asked us to stop; what was done so far is saved."""

    def __init__(self, message: str, signal: int = 2) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal


def offer(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: its nearest neighbour, or all there are."""
    names = [str(k) for k in known]
    lowered = {n.lower(): n for n in reversed(names)}
    near = difflib.get_close_matches(str(name).lower(), list(lowered), n=1, cutoff=0.6)
    if near:
        return f"; did you mean {lowered[near[0]]!r}?"
    return f"; there is {', '.join(names)}" if names else ""
