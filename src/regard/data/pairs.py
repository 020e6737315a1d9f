"""Pairs of texts: split, sample, fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from regard.data.line_store import take_rows
from regard.data.permutation import Permutation
from regard.data.scratch import ArrayWriter, blocks
from regard.errors import DataError

MAX_VOCABULARY_PAIRS = 500_000
"""Maximum number of pairs from which a vocabulary is learned."""
MAX_SAMPLED = 1 << 16
"""Maximum number of characters of a text from which a vocabulary is learned."""
MAX_SORTED = 1 << 18
"""Number of hashes that are sorted at a time."""
MAX_EXAMPLES = 3
"""Maximum number of examples kept for a reason."""


@dataclass
class Dropped:
    """Pairs dropped for one reason."""

    reason: str
    count: int = 0
    examples: list[str] = field(default_factory=list)
    remark: str = ""
    """Basis of the reason in this corpus."""

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
    """Pairs that were dropped while reading, and why."""
    notes: tuple[str, ...] = ()
    """Notes on how a table was read, where that is not certain."""

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
    hashes = _hash_pairs(pairs, seed)
    if all((hashes[some] == hashes[0]).all() for some in blocks(len(hashes))):
        raise DataError(f"all {len(pairs)} pairs of {pairs.name} are identical: none can be held out for validation")
    taken, rest, aside = _choose_hashes(hashes, size), ArrayWriter(np.int64), ArrayWriter(np.int64)
    for some in blocks(len(hashes)):
        chosen = np.isin(hashes[some], taken)
        rest.add(np.flatnonzero(~chosen) + some.start)
        aside.add(np.flatnonzero(chosen) + some.start)
    valid = replace(pairs.take(aside.array()), name=f"{pairs.name}, held out", dropped=(), notes=())
    return pairs.take(rest.array()), valid


def _hash_pairs(pairs: Pairs, seed: int) -> NDArray[np.uint64]:
    key, out = hashlib.blake2b(str(seed).encode()).digest(), ArrayWriter(np.uint64)
    digests = (
        hashlib.blake2b(f"{len(s)}:{s}{t}".encode(), digest_size=8, key=key).digest()
        for s, t in zip(pairs.source, pairs.target, strict=True)
    )
    for some in blocks(len(pairs)):
        out.add(np.fromiter(map(int.from_bytes, digests), np.uint64, some.stop - some.start))
    return out.array()


def _choose_hashes(hashes: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Return the smallest hashes that together occur `size` times; if all occur too often, the rarest one.

    Only the hashes that begin with the same bits are in memory, in turn.
    """
    bits = max((len(hashes) // MAX_SORTED).bit_length(), 0)
    taken, room, rarest = list[np.uint64](), size, (len(hashes) + 1, np.uint64(0))
    for start in range(1 << bits):
        kinds, copies = np.unique(_starting_with(hashes, bits, start), return_counts=True)
        for place in np.flatnonzero(copies <= size).tolist():
            if copies[place] <= room:
                taken.append(kinds[place])
                room -= int(copies[place])
            if not room:
                return np.array(taken)
        if len(kinds):
            rarest = min(rarest, (int(copies.min()), kinds[copies.argmin()]), key=lambda found: found[0])
    return np.array(taken or [rarest[1]])


def _starting_with(hashes: NDArray[np.uint64], bits: int, start: int) -> NDArray[np.uint64]:
    if not bits:
        return hashes
    shift = np.uint64(64 - bits)
    return np.concatenate([part[part >> shift == start] for part in (hashes[some] for some in blocks(len(hashes)))])


def sample_pairs(corpora: Sequence[Pairs], size: int = MAX_VOCABULARY_PAIRS) -> Sequence[Pairs]:
    """Draw about `size` pairs at random, from each corpus its share, in order; all pairs if there are no more."""
    count = sum(map(len, corpora))
    if count <= size:
        return corpora
    shares = [max(1, len(pairs) * size // count) for pairs in corpora]
    return [
        pairs.take(np.sort(Permutation(len(pairs), size, number).take(0, some)))
        for number, (pairs, some) in enumerate(zip(corpora, shares, strict=True))
    ]


class LineSample:
    """Some texts of pairs from which a vocabulary is learned; can be iterated again."""

    def __init__(self, corpora: Sequence[Pairs], sides: Sequence[str]) -> None:
        self._texts = [getattr(pairs, side) for pairs in sample_pairs(corpora) for side in sides]

    def __iter__(self) -> Iterator[str]:
        return (text[:MAX_SAMPLED] for texts in self._texts for text in texts)


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
