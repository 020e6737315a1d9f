"""SASRec: self-attention over the items a user had.

Kang & McAuley 2018. A causal decoder with learned positions and pre-norm; the item table, scaled by √d on the way in, also
scores the items on the way out. Feed-forward layers are as wide as the stream. Dropout follows the embedding and each sublayer,
as the paper says; the authors' code also drops attention weights and hidden units. Attention has the output projection of the
Transformer, which the paper leaves out: with one head it is one more linear map after W_V.
"""

from __future__ import annotations

from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.wiring import PreNorm
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import Full
from regard.nn.positions.position import Learned

SIZES: dict[str, Settings] = {
    "sasrec-ml-1m": dict(width=50, depth=2, heads=1, hidden=50, vocab=3417, length=200, dropout=0.2),
    "sasrec-amazon": dict(width=50, depth=2, heads=1, hidden=50, vocab=23716, length=50, dropout=0.5),
}
PAPER: dict[str, float] = {}


def spec(
    size: str = "sasrec-amazon",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    vocab: int | None = None,
    length: int | None = None,
    dropout: float | None = None,
    eps: float = 1e-8,
    init: str = "normal",
) -> ModelSpec:
    """Build a causal model of items; `vocab` is their number plus one."""
    shape = resolve_size(
        SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden, vocab=vocab, length=length, dropout=dropout
    )
    drop = shape["dropout"]
    return ModelSpec(
        width=shape["width"],
        length=shape["length"],
        embed=Tokens(shape["vocab"], position=Learned(), scaled=True, dropout=drop),
        decoder=Stack(
            Block(mix=Full(shape["heads"]), feed=FeedForward(shape["hidden"], "relu")),
            depth=shape["depth"],
            causal=True,
            wiring=PreNorm(LayerNorm(eps), drop),
        ),
        head=Vocab(tied=True),
        init=init,
    )
