"""T5: an encoder-decoder for text-to-text tasks.

Raffel et al. 2019. RMS norms, no biases, unscaled scores. Positions are a learned scalar per head and distance
bucket, in one table per side that all its layers share.

Version 1.0 has ReLU and one table for input and output, whose output is scaled; 1.1 has gates and two tables.
"""

from __future__ import annotations

from collections.abc import Iterable

from regard.families.named_sizes import Settings, resolve_size
from regard.families.published import Config, Form, Key, Use
from regard.families.weight_map import Drop, Name, Rows, Tied
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vector, Vocab
from regard.nn.blocks.wiring import PreNorm
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import RMSNorm
from regard.nn.mixers import Full
from regard.nn.positions.position import Bucketed

_V10: Settings = dict(activation="relu", gated=False, tied=True, dropout=0.1)
_V11: Settings = dict(activation="gelu_tanh", gated=True, tied=False, dropout=0.0)

SIZES: dict[str, Settings] = {
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
"""`dropout` is that of pre-training: 1.1 had none, and 0.1 in fine-tuning."""

PAPER = {"t5-small": 60e6, "t5-base": 220e6, "t5-large": 770e6, "t5-3b": 2.8e9, "t5-11b": 11e9}


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
    eps: float = 1e-6,
    scaled: bool | None = None,
    writes: bool = True,
) -> ModelSpec:
    """Build an encoder-decoder. `length` is not a limit: distances beyond `reach` share the last bucket.

    `scaled` multiplies the head's input by d^−0.5, the default for a tied head. With `writes=False` the model is the encoder
    alone and returns the mean of its tokens (Ni et al. 2021).
    """
    shape = resolve_size(
        SIZES, size, width=width, depth=depth, heads=heads, head_width=head_width, hidden=hidden, activation=activation,
        gated=gated, tied=tied, dropout=dropout,
    )  # fmt: skip
    drop = shape["dropout"]
    look = Full(shape["heads"], head_width=shape["head_width"], scale=1.0, bias=False, dropout=drop)
    feed = FeedForward(shape["hidden"], shape["activation"], gated=shape["gated"], bias=False, dropout=drop)
    wiring, position = PreNorm(RMSNorm(eps), drop), Bucketed(buckets, reach)
    decoder = Stack(
        Block(mix=look, cross=look, feed=feed),
        depth=shape["depth"] if decoder_depth is None else decoder_depth,
        causal=True,
        wiring=wiring,
        position=position,
    )
    scale = shape["width"] ** -0.5 if (shape["tied"] if scaled is None else scaled) else 1.0
    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=Tokens(vocab, dropout=drop),
        encoder=Stack(Block(mix=look, feed=feed), depth=shape["depth"], wiring=wiring, position=position),
        decoder=decoder if writes else None,
        head=Vocab(tied=shape["tied"], scale=scale) if writes else Vector("mean"),
        init="t5",
    )


# ------------------------------------------------------------------------------------------------- published form


def _sublayers(side: str, *roles: str) -> Rows:
    """Weight names of one side's layers, whose sublayers are numbered; 1.1 calls the gate wi_0 and the other layer wi_1."""
    out: Rows = ()
    for i, role in enumerate(roles):
        ours, theirs = f"{side}.blocks.{{}}.{role}", f"{side}.block.{{}}.layer.{i}"
        look = {"mix": "SelfAttention", "cross": "EncDecAttention"}.get(role)
        out += (Name(f"{ours}_norm", f"{theirs}.layer_norm"),)
        if look is not None:
            parts = (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o"))
            out += tuple(Name(f"{ours}.{a}", f"{theirs}.{look}.{b}") for a, b in parts)
        else:
            out += (
                Name(f"{ours}.gate", f"{theirs}.DenseReluDense.wi_0"),
                Name(f"{ours}.up", f"{theirs}.DenseReluDense.wi_1", when=f"{ours}.gate"),
                Name(f"{ours}.up", f"{theirs}.DenseReluDense.wi"),
                Name(f"{ours}.down", f"{theirs}.DenseReluDense.wo"),
            )
    return out


def _infer_ties(config: Config, names: Iterable[str]) -> Config:
    """Find out whether the head is tied to the embedding, and whether its input is scaled.

    In older files one implies the other; newer files always claim to be tied, and are not if they contain two tables.
    """
    tied = config.get("tie_word_embeddings") is not False
    scaled = bool(config.get("scale_decoder_outputs", tied))
    return {
        **config,
        "tie_word_embeddings": tied and (scaled or "lm_head.weight" not in names),
        "scale_decoder_outputs": scaled,
    }


_PROJECTIONS = {
    "relu": ("relu", False), "gated-gelu": ("gelu_tanh", True), "gated-silu": ("silu", True), "gelu": ("gelu", False),
    "gated-relu": ("relu", True),
}  # fmt: skip

_WRITING = (
    Key("decoder_depth", "decoder.depth", "num_decoder_layers"),
    Key("tied", "head.tied", "tie_word_embeddings", True),
    Key("scaled", "head.scale", "scale_decoder_outputs", back=lambda scale: scale != 1.0),
)

FORMS = (
    Form(
        "t5",
        spec,
        keys=(
            Key("width", "width", "d_model", 512),
            Key("depth", "encoder.depth", "num_layers", 6),
            Key("heads", "encoder.block.mix.heads", "num_heads", 8),
            Key("head_width", "encoder.block.mix.head_width", "d_kv", 64),
            Key("hidden", "encoder.block.feed.width", "d_ff", 2048),
            Key(
                ("activation", "gated"), ("encoder.block.feed.activation", "encoder.block.feed.gated"), "feed_forward_proj",
                "relu", _PROJECTIONS,
            ),
            Key("vocab", "embed.vocab", "vocab_size", 32128),
            Key("length", "length", "n_positions", 512),
            Key("buckets", "encoder.position.buckets", "relative_attention_num_buckets", 32),
            Key("reach", "encoder.position.reach", "relative_attention_max_distance", 128),
            Key("dropout", "encoder.wiring.dropout", "dropout_rate", 0.1),
            Key("eps", "encoder.wiring.norm.eps", "layer_norm_epsilon", 1e-6),
        ),
        names=(
            Name("embed", "shared"),
            Tied("encoder.embed_tokens.weight", of="shared.weight"),
            Tied("decoder.embed_tokens.weight", of="shared.weight"),
            *(
                Name(f"{side}.position", f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias")
                for side in ("encoder", "decoder")
            ),
            *_sublayers("encoder", "mix", "feed"),
            Name("encoder.norm", "encoder.final_layer_norm"),
            *_sublayers("decoder", "mix", "cross", "feed"),
            Name("decoder.norm", "decoder.final_layer_norm"),
            Name("head", "lm_head"),
            Tied("lm_head.weight", of="shared.weight"),
            Drop("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias"),
        ),
        uses={
            "T5ForConditionalGeneration": Use("translate", keys=_WRITING),
            "T5EncoderModel": Use("embed", fixed=dict(writes=False)),
        },
        facts=dict(is_encoder_decoder=True),
        infer=_infer_ties,
    ),
)  # fmt: skip
