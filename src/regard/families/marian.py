"""Marian: the translation models of OPUS-MT.

Junczys-Dowmunt et al. 2018. The Transformer of Vaswani et al. with SiLU, all sines before all cosines, an output bias
per token, and a decoder that starts from a zero vector.
"""

from __future__ import annotations

from regard.families.bart import KEYS, build_sides, name_layers
from regard.families.named_sizes import Settings, resolve_size
from regard.families.published import Config, Form, Key, Use
from regard.families.weight_map import Drop, Name, Tied
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.positions.position import Sinusoidal

SIZES: dict[str, Settings] = {
    "marian-base": dict(width=512, depth=6, heads=8, hidden=2048),
    "marian-big": dict(width=1024, depth=6, heads=16, hidden=4096),
}
"""OPUS-MT and its larger models, with the vocabulary of English and German."""
PAPER: dict[str, float] = {}


def spec(
    size: str = "marian-base",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    decoder_depth: int | None = None,
    decoder_heads: int | None = None,
    decoder_hidden: int | None = None,
    vocab: int = 58101,
    source_vocab: int | None = None,
    start: int | None = None,
    length: int = 512,
    activation: str = "silu",
    scaled: bool = True,
    tied: bool = True,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
) -> ModelSpec:
    """Build an encoder-decoder with one token table, or two if `source_vocab` is set. `length` is not a limit here.

    `start` is the token that outputs start with; its vector is zero. None: it is whatever the weights say.
    """
    shape = resolve_size(SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden)
    writes = (decoder_depth, decoder_heads, decoder_hidden)
    encoder, decoder = build_sides(shape, writes, activation, (dropout, attention_dropout, hidden_dropout))

    def table(vocab: int, zero: int | None = None) -> Tokens:
        return Tokens(vocab, position=Sinusoidal("halves"), scaled=scaled, dropout=dropout, zero=zero)

    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=table(vocab, start),
        source=None if source_vocab is None else table(source_vocab),
        encoder=encoder,
        decoder=decoder,
        head=Vocab(tied=tied, bias=True),
        init="xavier",
    )


# ------------------------------------------------------------------------------------------------- published form


def _read_vocabs(config: Config) -> tuple[int, int | None]:
    """Read the size of the target vocabulary, and of the source's if it is separate."""
    size = config.get("vocab_size", 58101)
    if config.get("share_encoder_decoder_embeddings", True):
        return size, None
    return config.get("decoder_vocab_size") or size, size


def _write_vocabs(sizes: tuple[int, int | None]) -> Settings:
    target, source = sizes
    return {
        "vocab_size": target if source is None else source,
        "decoder_vocab_size": target,
        "share_encoder_decoder_embeddings": source is None,
    }


FORMS = (
    Form(
        "marian",
        spec,
        keys=(
            *KEYS,
            Key(
                ("vocab", "source_vocab"), ("embed.vocab", "source.vocab"), "vocab_size",
                read=_read_vocabs, write=_write_vocabs,
            ),
            Key("start", "embed.zero", "decoder_start_token_id", read=lambda _: None, write=lambda _: {}),
        ),
        names=(
            Name("source", "model.encoder.embed_tokens"),
            Name("embed", "model.decoder.embed_tokens", when="source"),
            Name("embed", "model.shared"),
            Tied("model.encoder.embed_tokens.weight", of="model.shared.weight", when="head"),
            Tied("model.decoder.embed_tokens.weight", of="model.shared.weight", when="head"),
            *name_layers("encoder", "mix"),
            *name_layers("decoder", "mix", "cross"),
            Name("head.bias", "final_logits_bias", lead=1),
            Name("head", "lm_head"),
            Tied("lm_head.weight", of="model.decoder.embed_tokens.weight"),
            Tied("lm_head.weight", of="model.shared.weight"),
            Drop("model.encoder.embed_positions"),
            Drop("model.decoder.embed_positions"),
        ),
        uses={"MarianMTModel": Use("translate")},
        prefix="model.",
        only=dict(
            normalize_before=(False,), normalize_embedding=(False,), add_final_layer_norm=(False,),
            static_position_embeddings=(True,),
        ),
        facts=dict(is_encoder_decoder=True, forced_eos_token_id=None),
    ),
)  # fmt: skip
