"""Lexical shortlists: what a source may be translated to.

A table says which target tokens go with each source token. The engine then computes the output projection for the tokens of
this sentence's source and the most frequent ones, not for the whole vocabulary, which is a large part of a small model. What is
not on the list is never written, so a model has none unless `regard convert --shortlist` made one from training data.

The table is learned by IBM model 1 (Brown et al. 1993): each target token comes from one source token of its pair, or none.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from regard.errors import CheckpointError, DataError
from regard.files.tensors import list_tensors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHORTLIST = "shortlist.safetensors"
"""The file of a model folder."""
BEST, COMMON = 50, 100
"""Target tokens of each source token, and those that any output may have: the most frequent ones."""
MOST_PAIRS, ROUNDS, CHUNK = 500_000, 4, 20_000
"""Pairs that are read at most, rounds of learning, and pairs that are aligned together."""


class TokenArrays(Protocol):
    """Texts as arrays of token ids."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> NDArray[Any]: ...


@dataclasses.dataclass(frozen=True)
class Shortlist:
    """Target tokens of source token i: ids[starts[i] : starts[i + 1]]; and those of every source."""

    starts: array[int]
    ids: array[int]
    always: array[int]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], always: Sequence[int]) -> Shortlist:
        starts = array("q", [0])
        for row in rows:
            starts.append(starts[-1] + len(row))
        return cls(starts, array("i", (i for row in rows for i in row)), array("i", always))

    def to_bytes(self) -> bytes:
        """The file, in the format of safetensors."""
        import numpy as np
        from safetensors.numpy import save

        starts, ids, always = np.array(self.starts, "<i8"), np.array(self.ids, "<i4"), np.array(self.always, "<i4")
        data: bytes = save({"starts": starts, "ids": ids, "always": always})
        return data

    @classmethod
    def from_bytes(cls, data: bytes, path: Path) -> Shortlist:
        """Read the file; the library checks that it fits its model."""
        tensors = list_tensors(data, path)
        found: dict[str, array[int]] = {}
        for name, kind, dtype, size in (("starts", "q", "I64", 8), ("ids", "i", "I32", 4), ("always", "i", "I32", 4)):
            entry = tensors.get(name)
            if entry is None or entry.dtype != dtype or len(entry.shape) != 1:
                raise CheckpointError(f"{path} is damaged: it has no list of {name}")
            found[name] = array(kind, data[entry.start : entry.start + size * entry.shape[0]])
        starts = found["starts"]
        if not starts or starts[0] != 0 or starts[-1] != len(found["ids"]):
            raise CheckpointError(f"{path} is damaged: its rows do not fit its ids")
        return cls(starts, found["ids"], found["always"])


def learn_shortlist(
    sources: TokenArrays, targets: TokenArrays, source_vocab: int, vocab: int,
    *, best: int = BEST, common: int = COMMON,
) -> Shortlist:  # fmt: skip
    """The `best` target tokens of each source token in these pairs, and the most frequent ones; row 0 … source_vocab - 1."""
    import numpy as np

    if not len(sources) or len(sources) != len(targets):
        raise DataError("a shortlist is learned from pairs of texts, got none")
    count = min(len(sources), MOST_PAIRS)
    frequency = np.bincount(np.concatenate([targets[i] for i in range(count)]), minlength=vocab)
    keys, probs = np.zeros(0, np.int64), np.zeros(0)  # source token · vocab + target token, ascending
    for turn in range(ROUNDS):
        found_keys, found_counts = [], []
        for start in range(0, count, CHUNK):
            key, place = _cross(sources, targets, range(start, min(start + CHUNK, count)), source_vocab, vocab)
            if turn:
                weight = probs[np.searchsorted(keys, key)]
                weight = weight / np.bincount(place, weight)[place]  # each target token is shared out
            else:
                weight = 1.0 / np.bincount(place)[place]
            unique, where = np.unique(key, return_inverse=True)
            found_keys.append(unique)
            found_counts.append(np.bincount(where, weight))
        keys, where = np.unique(np.concatenate(found_keys), return_inverse=True)
        counts = np.bincount(where, np.concatenate(found_counts))
        probs = counts / np.maximum(np.bincount(keys // vocab, counts), 1e-30)[keys // vocab]
    order = np.lexsort((-probs, keys // vocab))
    keys = keys[order]
    row = keys // vocab
    rank = np.arange(len(row)) - np.searchsorted(row, row)  # within its source token
    kept = keys[(rank < best) & (row < source_vocab)]
    rows = [
        np.sort(part % vocab).tolist()
        for part in np.split(kept, np.searchsorted(kept // vocab, range(1, source_vocab)))
    ]
    frequent = np.argsort(-frequency, kind="stable")[:common]
    return Shortlist.of(rows, np.sort(frequent[frequency[frequent] > 0]).tolist())


def _cross(
    sources: TokenArrays, targets: TokenArrays, which: range, none: int, vocab: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every source token (and none) with every target token of its pair, and the number of the target token."""
    import numpy as np

    keys, places, before = [], [], 0
    for i in which:
        read, written = np.append(sources[i].astype(np.int64), none), targets[i].astype(np.int64)
        keys.append((read[:, None] * vocab + written).reshape(-1))
        places.append(np.tile(np.arange(before, before + len(written)), len(read)))
        before += len(written)
    return np.concatenate(keys), np.concatenate(places)
