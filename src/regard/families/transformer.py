"""The Transformer of "Attention Is All You Need".

Vaswani et al. 2017. Encoder and decoder with full attention, post-norm (the norm comes after the residual sum), sinusoidal
positions and one shared embedding table. Scores are divided by √d_k, where d_k = d_model / heads.

The defaults are the paper's base model; `norm="pre"` and the other arguments are today's variants.
"""

from __future__ import annotations

from regard.errors import UnknownName
from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.wiring import Parallel, PostNorm, PreNorm
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import Full
from regard.nn.positions.position import Sinusoidal

WIRINGS = {"post": PostNorm, "pre": PreNorm, "parallel": Parallel}

SIZES: dict[str, Settings] = {
    "tiny": dict(width=128, depth=4, heads=4, hidden=256, dropout=0.3),
    "base": dict(width=512, depth=6, heads=8, hidden=2048, dropout=0.1),
    "big": dict(width=1024, depth=6, heads=16, hidden=4096, dropout=0.3),
}
"""Base and big are from the paper; tiny is from Wu et al. (2021), for Multi30k."""
PAPER = {"base": 65e6, "big": 213e6}
"""With the vocabulary of English and German; that of English and French is smaller."""


def spec(
    size: str = "base",
    *,
    width: int | None = None,
    depth: int | None = None,
    decoder_depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    dropout: float | None = None,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    vocab: int = 37000,
    source_vocab: int | None = None,
    length: int = 1024,
    activation: str = "relu",
    gated: bool = False,
    norm: str = "post",
    tied: bool = True,
    init: str = "xavier",
) -> ModelSpec:
    """Build an encoder-decoder. `size` sets width, depth, heads, hidden and dropout; each can be overridden."""
    shape = resolve_size(SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden, dropout=dropout)
    if norm not in WIRINGS:
        raise UnknownName("norm placement", norm, WIRINGS)
    wiring = WIRINGS[norm](LayerNorm(), shape["dropout"])
    look = Full(shape["heads"], dropout=attention_dropout)
    feed = FeedForward(shape["hidden"], activation, gated=gated, dropout=hidden_dropout)

    def table(size: int) -> Tokens:
        return Tokens(size, position=Sinusoidal(), scaled=True, dropout=shape["dropout"])

    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=table(vocab),
        source=None if source_vocab is None else table(source_vocab),
        encoder=Stack(Block(mix=look, feed=feed), depth=shape["depth"], wiring=wiring),
        decoder=Stack(
            Block(mix=look, cross=look, feed=feed),
            depth=shape["depth"] if decoder_depth is None else decoder_depth,
            causal=True,
            wiring=wiring,
        ),
        head=Vocab(tied=tied),
        init=init,
    )
