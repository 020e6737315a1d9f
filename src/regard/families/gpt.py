"""GPT: a causal decoder with learned positions.

Radford et al. 2018, 2019. Input and output share one embedding table.

GPT has its norms after each sublayer; GPT-2 before, with one more at the end.
"""

from __future__ import annotations

from regard.errors import UnknownName
from regard.families.named_sizes import Settings, resolve_size
from regard.families.published import ACTIVATIONS, Form, Key, Use
from regard.families.weight_map import Drop, Join, Name, Tied
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.wiring import PostNorm, PreNorm
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import Full
from regard.nn.positions.position import Learned

WIRINGS = {"post": PostNorm, "pre": PreNorm}

_GPT1: Settings = dict(vocab=40478, length=512, norm="post")
_GPT2: Settings = dict(vocab=50257, length=1024, norm="pre")

SIZES: dict[str, Settings] = {
    "openai-gpt": dict(width=768, depth=12, heads=12, hidden=3072, **_GPT1),
    "gpt2": dict(width=768, depth=12, heads=12, hidden=3072, **_GPT2),
    "gpt2-medium": dict(width=1024, depth=24, heads=16, hidden=4096, **_GPT2),
    "gpt2-large": dict(width=1280, depth=36, heads=20, hidden=5120, **_GPT2),
    "gpt2-xl": dict(width=1600, depth=48, heads=25, hidden=6400, **_GPT2),
}
PAPER = {"gpt2": 117e6, "gpt2-medium": 345e6, "gpt2-large": 762e6, "gpt2-xl": 1542e6}
"""From the GPT-2 paper, whose numbers are known to be too low."""


def spec(
    size: str = "gpt2",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    vocab: int | None = None,
    length: int | None = None,
    norm: str | None = None,
    dropout: float = 0.1,
    attention_dropout: float | None = None,
    bias: bool = True,
    activation: str = "gelu_tanh",
    eps: float = 1e-5,
    tied: bool = True,
) -> ModelSpec:
    """Build a decoder-only model; `norm` is the placement of the norms, `pre` or `post`."""
    shape = resolve_size(
        SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden, vocab=vocab, length=length, norm=norm
    )
    if shape["norm"] not in WIRINGS:
        raise UnknownName("norm placement", shape["norm"], WIRINGS)
    look = Full(shape["heads"], bias=bias, dropout=dropout if attention_dropout is None else attention_dropout)
    return ModelSpec(
        width=shape["width"],
        length=shape["length"],
        embed=Tokens(shape["vocab"], position=Learned(), dropout=dropout),
        decoder=Stack(
            Block(mix=look, feed=FeedForward(shape["hidden"], activation, bias=bias)),
            depth=shape["depth"],
            causal=True,
            wiring=WIRINGS[shape["norm"]](LayerNorm(eps, bias), dropout),
        ),
        head=Vocab(tied=tied),
        init="gpt2" if shape["norm"] == "pre" else "normal",
    )


# ------------------------------------------------------------------------------------------------- published form

_KEYS = (
    Key("width", "width", "n_embd", 768),
    Key("depth", "decoder.depth", "n_layer", 12),
    Key("heads", "decoder.block.mix.heads", "n_head", 12),
    Key("length", "length", "n_positions", 1024),
    Key("eps", "decoder.wiring.norm.eps", "layer_norm_epsilon", 1e-5),
    Key("tied", "head.tied", "tie_word_embeddings", True),
    Key("dropout", "decoder.wiring.dropout", "resid_pdrop", 0.1, write=lambda v: {"resid_pdrop": v, "embd_pdrop": v}),
    Key("attention_dropout", "decoder.block.mix.dropout", "attn_pdrop", 0.1),
)
_LAYERS = (
    Join(
        ("decoder.blocks.{}.mix.q", "decoder.blocks.{}.mix.k", "decoder.blocks.{}.mix.v"),
        "transformer.h.{}.attn.c_attn",
        transposed=True,
    ),
    Name("decoder.blocks.{}.mix.out", "transformer.h.{}.attn.c_proj", transposed=True),
    Name("decoder.blocks.{}.mix_norm", "transformer.h.{}.ln_1"),
    Name("decoder.blocks.{}.feed.up", "transformer.h.{}.mlp.c_fc", transposed=True),
    Name("decoder.blocks.{}.feed.down", "transformer.h.{}.mlp.c_proj", transposed=True),
    Name("decoder.blocks.{}.feed_norm", "transformer.h.{}.ln_2"),
    Name("head", "lm_head"),
    Drop("transformer.h.{}.attn.bias"),
    Drop("transformer.h.{}.attn.masked_bias"),
)

FORMS = (
    Form(
        "gpt2",
        spec,
        keys=(
            *_KEYS,
            Key("vocab", "embed.vocab", "vocab_size", 50257),
            Key("activation", "decoder.block.feed.activation", "activation_function", "gelu_new", ACTIVATIONS),
            Key(
                "hidden",
                "decoder.block.feed.width",
                "n_inner",
                read=lambda c: c.get("n_inner") or 4 * c.get("n_embd", 768),
            ),
        ),
        names=(
            Name("embed", "transformer.wte"),
            Name("embed.position", "transformer.wpe"),
            *_LAYERS,
            Name("decoder.norm", "transformer.ln_f"),
            Tied("lm_head.weight", of="transformer.wte.weight"),
        ),
        uses={"GPT2LMHeadModel": Use("lm"), "GPT2Model": Use("lm")},
        prefix="transformer.",
        fixed=dict(norm="pre"),
        only=dict(scale_attn_weights=(True,), scale_attn_by_inverse_layer_idx=(False,), add_cross_attention=(False,)),
    ),
    Form(
        "openai-gpt",
        spec,
        keys=(
            *_KEYS,
            Key("vocab", "embed.vocab", "vocab_size", 40478),
            Key(
                "activation",
                "decoder.block.feed.activation",
                "afn",
                "gelu",
                {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"},
            ),
        ),
        names=(
            Name("embed", "transformer.tokens_embed"),
            Name("embed.position", "transformer.positions_embed"),
            *_LAYERS,
            Tied("lm_head.weight", of="transformer.tokens_embed.weight"),
            Drop("transformer.position_ids"),
        ),
        uses={"OpenAIGPTLMHeadModel": Use("lm"), "OpenAIGPTModel": Use("lm")},
        prefix="transformer.",
        fixed=dict(norm="post"),
    ),
)  # fmt: skip
