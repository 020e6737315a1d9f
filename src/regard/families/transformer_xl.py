"""Transformer-XL: a decoder that remembers segments.

Dai et al. 2019. A causal decoder with relative positions.

With `compress` it is the Compressive Transformer (Rae et al. 2019): older memories are
compressed instead of dropped. No weight depends on the memory length or on where distances are clamped, so both may differ in
evaluation. The paper evaluates its base model with `spec(memory_length=2100, clamp=820)` in segments of 80.
"""

from __future__ import annotations

from regard.errors import UnknownName
from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.wiring import PostNorm, PreNorm
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import XLMemory
from regard.nn.mixers.compress import CompressionSpec
from regard.nn.positions.relative import Distance

WIRINGS = {"post": PostNorm, "pre": PreNorm}

SIZES: dict[str, Settings] = {
    "xl-enwik8-base": dict(
        width=512, depth=12, heads=8, hidden=2048, memory_length=512, length=512, dropout=0.1, attention_dropout=0.0
    ),
    "xl-enwik8-large": dict(
        width=1024, depth=24, heads=8, hidden=3072, memory_length=768, length=768, dropout=0.15, attention_dropout=0.15
    ),
}
"""The character models of the paper, as trained by its code; `length` is the segment length."""
PAPER = {"xl-enwik8-base": 41e6, "xl-enwik8-large": 277e6}


def spec(
    size: str = "xl-enwik8-base",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    memory_length: int | None = None,
    length: int | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    vocab: int = 204,
    clamp: int | None = None,
    compress: CompressionSpec | None = None,
    bias: bool = False,
    activation: str = "relu",
    norm: str = "post",
) -> ModelSpec:
    """Build a decoder whose layers remember the `memory_length` tokens before the segment. `bias` is that of attention."""
    shape = resolve_size(
        SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden, memory_length=memory_length, length=length,
        dropout=dropout, attention_dropout=attention_dropout,
    )  # fmt: skip
    if norm not in WIRINGS:
        raise UnknownName("norm placement", norm, WIRINGS)
    mix = XLMemory(shape["heads"], shape["memory_length"], compress, bias=bias, dropout=shape["attention_dropout"])
    return ModelSpec(
        width=shape["width"],
        length=shape["length"],
        embed=Tokens(vocab, scaled=True, dropout=shape["dropout"]),
        decoder=Stack(
            Block(mix=mix, feed=FeedForward(shape["hidden"], activation, dropout=shape["dropout"])),
            depth=shape["depth"],
            causal=True,
            wiring=WIRINGS[norm](LayerNorm(), shape["dropout"]),
            position=Distance(clamp),
        ),
        head=Vocab(bias=True),
        init="normal",
    )
