"""Documents as token ids, in memory or on disk.

Documents are encoded part by part, by all cores, into the folder of a run or into memory. A long document is encoded in pieces
whose tokens are those of the whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.document_parts import DocumentPart, plan_parts
from regard.data.document_store import Documents
from regard.data.ragged import Ragged
from regard.data.scratch import ArrayWriter, blocks
from regard.data.text_files import PIECE
from regard.data.token_store import NARROW, WIDE, InMemoryTokens, TokenStore, fill_store
from regard.text import Tokenizer


@dataclasses.dataclass(frozen=True)
class StorePlace:
    """Place where tokens are kept (None: in memory), and what they are made of."""

    folder: Path | None = None
    made_of: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def open(self, name: str, columns: Sequence[str], *, narrow: bool = False) -> TokenStore | InMemoryTokens:
        """Open the store of this name; `narrow`: all ids are below 65,536."""
        if self.folder is None:
            return InMemoryTokens(len(columns))
        made_of = {**self.made_of, "part": PIECE}
        return TokenStore(self.folder / name, columns, made_of, NARROW if narrow else WIDE)


def encode_documents(
    documents: Documents,
    tokenizer: Tokenizer,
    place: StorePlace,
    front: Sequence[int] = (),
    back: Sequence[int] = (),
) -> Ragged:
    """Token ids of each document, between the tokens `front` and `back`."""
    parts = plan_parts(documents, tokenizer.find_cut)

    def work(part: DocumentPart) -> tuple[Ragged]:
        before, after = front if part.start == 0 else (), back if part.ends else ()
        return (Ragged.of([[*before, *ids, *after] for ids in tokenizer.encode_all(part.texts(documents))]),)

    store = place.open("texts", ["texts"], narrow=tokenizer.size <= 1 << 16)
    (rows,) = fill_store(store, parts, work, "tokens, MB of text")
    ends = np.cumsum(store.rows)[[not part.ends for part in parts]] - 1
    return Ragged(rows.ids, _drop(rows.ends, ends)) if len(ends) else rows


def _drop(ends: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ends of all rows but these, which the next row continues."""
    out = ArrayWriter(np.int64)
    for some in blocks(len(ends)):
        out.add(np.delete(ends[some], rows[(rows >= some.start) & (rows < some.stop)] - some.start))
    return out.array()
