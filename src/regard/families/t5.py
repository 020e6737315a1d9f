"""T5 (Raffel et al. 2019): every task is text to text. An encoder-decoder with RMS norms, no bias, and no scale on scores;
where tokens stand is a learned scalar a head and bucket of distance, one table a side, seen by all its layers.

The first version has ReLU and one table for reading and writing, whose output is scaled; 1.1 has gates, and two tables.
"""

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
from regard.nn.norm import RMSNorm
from regard.nn.position import Bucketed
from regard.nn.wiring import PreNorm

_V10: dict[str, Any] = dict(activation="relu", gated=False, tied=True, dropout=0.1)
_V11: dict[str, Any] = dict(activation="gelu_tanh", gated=True, tied=False, dropout=0.0)

SIZES: dict[str, dict[str, Any]] = {
    "t5-small": dict(width=512, depth=6, heads=8, head_width=64, hidden=2048, **_V10),
    "t5-v1.1-small": dict(width=512, depth=8, heads=6, head_width=64, hidden=1024, **_V11),
    "t5-base": dict(width=768, depth=12, heads=12, head_width=64, hidden=3072, **_V10),
    "t5-v1.1-base": dict(width=768, depth=12, heads=12, head_width=64, hidden=2048, **_V11),
    "t5-large": dict(width=1024, depth=24, heads=16, head_width=64, hidden=4096, **_V10),
    "t5-v1.1-large": dict(width=1024, depth=24, heads=16, head_width=64, hidden=2816, **_V11),
    "t5-v1.1-xl": dict(width=2048, depth=24, heads=32, head_width=64, hidden=5120, **_V11),
    "t5-3b": dict(width=1024, depth=24, heads=32, head_width=128, hidden=16384, **_V10),
    "t5-v1.1-xxl": dict(width=4096, depth=24, heads=64, head_width=64, hidden=10240, **_V11),
    "t5-11b": dict(width=1024, depth=24, heads=128, head_width=128, hidden=65536, **_V10),
}
"""`dropout` is pre-training's: 1.1 had none then, and 0.1 in fine-tuning."""

NAMES = (
    # ours, theirs; a row holds for the weight of a part, {} is the layer; 1.1 calls the gate wi_0 and the other wi_1
    ("embed", "shared"),
    ("encoder.position", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"),
    ("encoder.blocks.{}.mix_norm", "encoder.block.{}.layer.0.layer_norm"),
    ("encoder.blocks.{}.mix.q", "encoder.block.{}.layer.0.SelfAttention.q"),
    ("encoder.blocks.{}.mix.k", "encoder.block.{}.layer.0.SelfAttention.k"),
    ("encoder.blocks.{}.mix.v", "encoder.block.{}.layer.0.SelfAttention.v"),
    ("encoder.blocks.{}.mix.out", "encoder.block.{}.layer.0.SelfAttention.o"),
    ("encoder.blocks.{}.feed_norm", "encoder.block.{}.layer.1.layer_norm"),
    ("encoder.blocks.{}.feed.up", "encoder.block.{}.layer.1.DenseReluDense.wi"),
    ("encoder.blocks.{}.feed.gate", "encoder.block.{}.layer.1.DenseReluDense.wi_0"),
    ("encoder.blocks.{}.feed.up", "encoder.block.{}.layer.1.DenseReluDense.wi_1"),
    ("encoder.blocks.{}.feed.down", "encoder.block.{}.layer.1.DenseReluDense.wo"),
    ("encoder.norm", "encoder.final_layer_norm"),
    ("decoder.position", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias"),
    ("decoder.blocks.{}.mix_norm", "decoder.block.{}.layer.0.layer_norm"),
    ("decoder.blocks.{}.mix.q", "decoder.block.{}.layer.0.SelfAttention.q"),
    ("decoder.blocks.{}.mix.k", "decoder.block.{}.layer.0.SelfAttention.k"),
    ("decoder.blocks.{}.mix.v", "decoder.block.{}.layer.0.SelfAttention.v"),
    ("decoder.blocks.{}.mix.out", "decoder.block.{}.layer.0.SelfAttention.o"),
    ("decoder.blocks.{}.cross_norm", "decoder.block.{}.layer.1.layer_norm"),
    ("decoder.blocks.{}.cross.q", "decoder.block.{}.layer.1.EncDecAttention.q"),
    ("decoder.blocks.{}.cross.k", "decoder.block.{}.layer.1.EncDecAttention.k"),
    ("decoder.blocks.{}.cross.v", "decoder.block.{}.layer.1.EncDecAttention.v"),
    ("decoder.blocks.{}.cross.out", "decoder.block.{}.layer.1.EncDecAttention.o"),
    ("decoder.blocks.{}.feed_norm", "decoder.block.{}.layer.2.layer_norm"),
    ("decoder.blocks.{}.feed.up", "decoder.block.{}.layer.2.DenseReluDense.wi"),
    ("decoder.blocks.{}.feed.gate", "decoder.block.{}.layer.2.DenseReluDense.wi_0"),
    ("decoder.blocks.{}.feed.up", "decoder.block.{}.layer.2.DenseReluDense.wi_1"),
    ("decoder.blocks.{}.feed.down", "decoder.block.{}.layer.2.DenseReluDense.wo"),
    ("decoder.norm", "decoder.final_layer_norm"),
    ("head", "lm_head"),
)


def spec(
    size: str = "t5-small",
    *,
    width: int | None = None,
    depth: int | None = None,
    decoder_depth: int | None = None,
    heads: int | None = None,
    head_width: int | None = None,
    hidden: int | None = None,
    activation: str | None = None,
    gated: bool | None = None,
    tied: bool | None = None,
    dropout: float | None = None,
    vocab: int = 32128,
    length: int = 512,
    buckets: int = 32,
    reach: int = 128,
) -> ModelSpec:
    """An encoder-decoder. `length` binds nothing: distances beyond `reach` share the last bucket."""
    shape = sized(
        SIZES, size, width=width, depth=depth, heads=heads, head_width=head_width, hidden=hidden, activation=activation,
        gated=gated, tied=tied, dropout=dropout,
    )  # fmt: skip
    drop = shape["dropout"]
    look = Full(shape["heads"], head_width=shape["head_width"], scale=1.0, bias=False, dropout=drop)
    feed = FeedForward(shape["hidden"], shape["activation"], gated=shape["gated"], bias=False, dropout=drop)
    wiring, position = PreNorm(RMSNorm(1e-6), drop), Bucketed(buckets, reach)
    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=Tokens(vocab, dropout=drop),
        encoder=Stack(Block(mix=look, feed=feed), depth=shape["depth"], wiring=wiring, position=position),
        decoder=Stack(
            Block(mix=look, cross=look, feed=feed),
            depth=decoder_depth or shape["depth"],
            causal=True,
            wiring=wiring,
            position=position,
        ),
        head=Vocab(tied=shape["tied"], scale=shape["width"] ** -0.5 if shape["tied"] else 1.0),
        init="t5",
    )
