"""BERT4Rec: BERT over the items a user had.

Sun et al. 2019. A bidirectional encoder that fills masked items; to recommend, a mask is appended to the history. BERT with
other sizes and without segments.
"""

from __future__ import annotations

from regard.families import bert
from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec

SIZES: dict[str, Settings] = {
    "bert4rec-ml-1m": dict(width=64, depth=2, heads=2, hidden=256, vocab=3417, length=200, dropout=0.2),
    "bert4rec-amazon": dict(width=64, depth=2, heads=2, hidden=256, vocab=54543, length=50, dropout=0.2),
}
PAPER: dict[str, float] = {}


def spec(
    size: str = "bert4rec-amazon",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    vocab: int | None = None,
    length: int | None = None,
    dropout: float | None = None,
) -> ModelSpec:
    """Build a bidirectional model of items; `vocab` is their number plus one, the mask."""
    shape = resolve_size(
        SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden, vocab=vocab, length=length, dropout=dropout
    )
    return bert.spec("bert-base", **shape, segments=0, next_sentence=False)
