"""BART: an encoder-decoder pre-trained to restore text.

Lewis et al. 2019. Post-norm, GELU, learned positions, and a norm after the embedding. Encoder and decoder share one token
table, but each has its own positions and norm.
"""

from __future__ import annotations

from collections.abc import Mapping

from regard.families.named_sizes import Settings, resolve_size
from regard.families.published import ACTIVATIONS, Form, Key, Use
from regard.families.weight_map import Drop, Name, Rows, Tied
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.wiring import PostNorm
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import Full
from regard.nn.positions.position import Learned

SIZES: dict[str, Settings] = {
    "bart-base": dict(width=768, depth=6, heads=12, hidden=3072),
    "bart-large": dict(width=1024, depth=12, heads=16, hidden=4096),
}
PAPER: dict[str, float] = {}
"""The paper only says: about 10% more than the BERT model of the same size."""


def spec(
    size: str = "bart-base",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    decoder_depth: int | None = None,
    decoder_heads: int | None = None,
    decoder_hidden: int | None = None,
    vocab: int = 50265,
    length: int = 1024,
    activation: str = "gelu",
    scaled: bool = False,
    tied: bool = True,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
) -> ModelSpec:
    """Build an encoder-decoder; by default, the decoder is as deep and wide as the encoder."""
    shape = resolve_size(SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden)
    writes = (decoder_depth, decoder_heads, decoder_hidden)
    encoder, decoder = build_sides(shape, writes, activation, (dropout, attention_dropout, hidden_dropout))

    def table(tied: bool) -> Tokens:  # two unused rows before the first position, for historical reasons
        return Tokens(vocab, position=Learned(2), scaled=scaled, norm=LayerNorm(), dropout=dropout, tied=tied)

    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=table(tied=False),
        source=table(tied=True),
        encoder=encoder,
        decoder=decoder,
        head=Vocab(tied=tied),
        init="normal",
    )


def build_sides(
    shape: Mapping[str, int],
    writes: tuple[int | None, int | None, int | None],
    activation: str,
    dropouts: tuple[float, float, float],
) -> tuple[Stack, Stack]:
    """Build a post-norm encoder and decoder, for BART and Marian.

    `writes` holds the decoder's depth, heads and hidden; None stands for the encoder's. `dropouts` are those of sublayers,
    attention and the hidden layer.
    """
    own = tuple(shape[name] for name in ("depth", "heads", "hidden"))
    wiring = PostNorm(LayerNorm(), dropouts[0])

    def parts(heads: int, hidden: int) -> tuple[Full, FeedForward]:
        return Full(heads, dropout=dropouts[1]), FeedForward(hidden, activation, dropout=dropouts[2])

    depth, heads, hidden = (usual if given is None else given for given, usual in zip(writes, own, strict=True))
    (look, feed), (across, feed_out) = parts(*own[1:]), parts(heads, hidden)
    return (
        Stack(Block(mix=look, feed=feed), depth=own[0], wiring=wiring),
        Stack(Block(mix=across, cross=across, feed=feed_out), depth=depth, causal=True, wiring=wiring),
    )


# ------------------------------------------------------------------------------------------------- published form

KEYS = (
    Key("width", "width", "d_model", 1024),
    Key("depth", "encoder.depth", "encoder_layers", 12),
    Key("heads", "encoder.block.mix.heads", "encoder_attention_heads", 16),
    Key("hidden", "encoder.block.feed.width", "encoder_ffn_dim", 4096),
    Key("decoder_depth", "decoder.depth", "decoder_layers", 12),
    Key("decoder_heads", "decoder.block.mix.heads", "decoder_attention_heads", 16),
    Key("decoder_hidden", "decoder.block.feed.width", "decoder_ffn_dim", 4096),
    Key("length", "length", "max_position_embeddings", 1024),
    Key("activation", "encoder.block.feed.activation", "activation_function", "gelu", ACTIVATIONS),
    Key("scaled", "embed.scaled", "scale_embedding", False),
    Key("tied", "head.tied", "tie_word_embeddings", True),
    Key("dropout", "encoder.wiring.dropout", "dropout", 0.1),
    Key("attention_dropout", "encoder.block.mix.dropout", "attention_dropout", 0.0),
    Key("hidden_dropout", "encoder.block.feed.dropout", "activation_dropout", 0.0),
)
"""Shared with Marian."""


def name_layers(side: str, *roles: str) -> Rows:
    """Weight names of one side's layers; shared with Marian."""
    ours, theirs = f"{side}.blocks.{{}}", f"model.{side}.layers.{{}}"
    parts = (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("out", "out_proj"))
    return (
        *(Name(f"{ours}.{role}.{a}", f"{theirs}.{_LOOK[role]}.{b}") for role in roles for a, b in parts),
        *(Name(f"{ours}.{role}_norm", f"{theirs}.{_LOOK[role]}_layer_norm") for role in roles),
        Name(f"{ours}.feed.up", f"{theirs}.fc1"),
        Name(f"{ours}.feed.down", f"{theirs}.fc2"),
        Name(f"{ours}.feed_norm", f"{theirs}.final_layer_norm"),
    )


_LOOK = {"mix": "self_attn", "cross": "encoder_attn"}

FORMS = (
    Form(
        "bart",
        spec,
        keys=(*KEYS, Key("vocab", "embed.vocab", "vocab_size", 50265)),
        names=(
            Name("embed", "model.shared"),
            Tied("model.encoder.embed_tokens.weight", of="model.shared.weight", when="head"),
            Tied("model.decoder.embed_tokens.weight", of="model.shared.weight", when="head"),
            Name("source.position", "model.encoder.embed_positions"),
            Name("source.norm", "model.encoder.layernorm_embedding"),
            *name_layers("encoder", "mix"),
            Name("embed.position", "model.decoder.embed_positions"),
            Name("embed.norm", "model.decoder.layernorm_embedding"),
            *name_layers("decoder", "mix", "cross"),
            Name("head", "lm_head"),
            Tied("lm_head.weight", of="model.shared.weight"),
            Drop("final_logits_bias", zero=True),
        ),
        uses={"BartForConditionalGeneration": Use("translate"), "BartModel": Use("translate")},
        prefix="model.",
        only=dict(
            normalize_before=(False,), normalize_embedding=(True,), add_final_layer_norm=(False,),
            static_position_embeddings=(False,),
        ),
        facts=dict(is_encoder_decoder=True, forced_eos_token_id=None),
    ),
)  # fmt: skip
