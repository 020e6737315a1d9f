"""GPT (Radford et al. 2018, 2019): a causal decoder, learned positions, one table for reading and writing."""

from __future__ import annotations

from typing import Any

from regard.families.size import sized
from regard.model.spec import ModelSpec
from regard.nn.block import Block
from regard.nn.body import Stack
from regard.nn.embed import Tokens
from regard.nn.feedforward import FeedForward
from regard.nn.head import Vocab
from regard.nn.mixers import Full
from regard.nn.norm import LayerNorm
from regard.nn.position import Learned
from regard.nn.wiring import PreNorm

SIZES: dict[str, dict[str, Any]] = {
    "gpt2": dict(width=768, depth=12, heads=12, hidden=3072),
    "gpt2-medium": dict(width=1024, depth=24, heads=16, hidden=4096),
    "gpt2-large": dict(width=1280, depth=36, heads=20, hidden=5120),
    "gpt2-xl": dict(width=1600, depth=48, heads=25, hidden=6400),
}


def spec(
    size: str = "gpt2",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    vocab: int = 50257,
    length: int = 1024,
    dropout: float = 0.1,
    bias: bool = True,
) -> ModelSpec:
    """A decoder-only model, pre-norm with one more norm at the end."""
    shape = sized(SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden)
    block = Block(
        mix=Full(shape["heads"], bias=bias, dropout=dropout), feed=FeedForward(shape["hidden"], "gelu_tanh", bias=bias)
    )
    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=Tokens(vocab, position=Learned(), dropout=dropout),
        decoder=Stack(block, depth=shape["depth"], causal=True, wiring=PreNorm(LayerNorm(bias=bias), dropout)),
        head=Vocab(tied=True),
        init="gpt2",
    )
