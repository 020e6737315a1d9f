"""Pairs of texts: split, sample, fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from regard.data.line_store import take_rows
from regard.errors import DataError

MAX_VOCABULARY_PAIRS = 500_000
"""Maximum number of pairs from which a vocabulary is learned."""
MAX_EXAMPLES = 3
"""Maximum number of examples kept for a reason."""


@dataclass
class Dropped:
    """Pairs dropped for one reason."""

    reason: str
    count: int = 0
    examples: list[str] = field(default_factory=list)
    remark: str = ""
    """What the reason is based on in this corpus."""

    def add(self, example: str) -> None:
        """Count a pair; the first few are kept as examples."""
        self.count += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(example)

    def __str__(self) -> str:
        remark = f" ({self.remark})" if self.remark else ""
        such = f", such as {self.examples[0]}" if self.examples else ""
        return f"{self.count:,} dropped: {self.reason}{remark}{such}"


@dataclass(frozen=True)
class Pairs:
    """Parallel sources and targets. The tag is kept separately: it becomes one token."""

    source: Sequence[str]
    target: Sequence[str]
    tag: str | None = None
    weight: float = 1.0
    name: str = "pairs"
    dropped: tuple[Dropped, ...] = ()
    """What was dropped when the pairs were read, and why."""
    notes: tuple[str, ...] = ()
    """How a table was read, where that is not certain."""

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise DataError(f"{self.name} has {len(self.source)} sources and {len(self.target)} targets")

    def __len__(self) -> int:
        return len(self.source)

    def lost(self) -> list[dict[str, object]]:
        """Return what was dropped for each reason, as plain data."""
        return [{"corpus": self.name, **asdict(each)} for each in self.dropped]

    def take(self, rows: NDArray[np.int64]) -> Pairs:
        """Return the pairs of these rows, in this order."""
        return replace(self, source=take_rows(self.source, rows), target=take_rows(self.target, rows))


def split_pairs(pairs: Pairs, *, size: int | None = None, seed: int = 0) -> tuple[Pairs, Pairs]:
    """Hold out about `size` pairs (default: a twentieth, at most 1000) and return the rest and those.

    The pairs with the smallest hashes are held out. So copies of a pair stay together, and adding lines to a corpus moves
    almost no other pair.
    """
    size = max(1, min(1000, len(pairs) // 20)) if size is None else size
    if not 1 <= size < len(pairs):
        raise DataError(f"cannot hold out {size} of the {len(pairs)} pairs of {pairs.name} for validation")
    key = hashlib.blake2b(str(seed).encode()).digest()
    digests = (
        hashlib.blake2b(f"{len(s)}:{s}{t}".encode(), digest_size=8, key=key).digest()
        for s, t in zip(pairs.source, pairs.target, strict=True)
    )
    hashes = np.fromiter(map(int.from_bytes, digests), np.uint64, len(pairs))
    kinds, copies = np.unique(hashes, return_counts=True)
    if len(kinds) == 1:
        raise DataError(f"all {len(pairs)} pairs of {pairs.name} are identical: none can be held out for validation")
    taken, room = [], size
    for place in np.flatnonzero(copies <= size):
        if copies[place] <= room:
            taken.append(place)
            room -= int(copies[place])
        if not room:
            break
    chosen = np.isin(hashes, kinds[taken or copies.argmin()])  # if all pairs have too many copies, the rarest one
    valid = replace(pairs.take(np.flatnonzero(chosen)), name=f"{pairs.name}, held out", dropped=(), notes=())
    return pairs.take(np.flatnonzero(~chosen)), valid


def sample_pairs(corpora: Sequence[Pairs], size: int = MAX_VOCABULARY_PAIRS) -> Sequence[Pairs]:
    """Draw about `size` pairs at random, from each corpus its share, in order; all pairs if there are no more."""
    count = sum(map(len, corpora))
    if count <= size:
        return corpora
    bits, parts = np.random.Philox(np.random.SeedSequence(size)), list[Pairs]()
    for pairs in corpora:
        drawn, some = bits.random_raw(len(pairs)), max(1, len(pairs) * size // count)
        parts.append(pairs.take(np.flatnonzero(drawn <= np.partition(drawn, some - 1)[some - 1])))
    return parts


def fingerprint(*corpora: Pairs) -> str:
    """Return the SHA-256 of all that training sees: texts in order, tags and weights, but not file names."""
    digest = hashlib.sha256()
    for pairs in corpora:
        digest.update(f"{len(pairs)} {pairs.tag} {float(pairs.weight)!r}\n".encode())
        for texts in (pairs.source, pairs.target):
            for start in range(0, len(texts), 512):
                digest.update("".join([f"{len(s)}:{s}" for s in texts[start : start + 512]]).encode())
    return digest.hexdigest()


def shorten(text: str, most: int = 60) -> str:
    """Return the beginning of a text on one line."""
    text = " ".join(text[: 4 * most].split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
