"""LSTM encoder-decoders, with attention or without.

Sutskever et al. 2014: a deep LSTM reads the source in reverse, and another starts from its last states. Luong et al. 2015: the
decoder looks at the source after each step, and reads what it saw beside the next token (input feeding).

`attention: none` is the plain model. Embeddings may be narrower than the layers (`embedding`).
"""

from __future__ import annotations

from typing import Literal

from regard.errors import SpecError
from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.attention.source_attention import Score
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.recurrent_decoder import RecurrentDecoder
from regard.nn.blocks.wiring import Bare
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import GRU, LSTM, RNN
from regard.nn.mixers.recurrent import RecurrentLayer

CELLS: dict[str, type[RecurrentLayer]] = {"rnn": RNN, "gru": GRU, "lstm": LSTM}

SIZES: dict[str, Settings] = {
    "lstm-multi30k": dict(
        width=512, embedding=256, depth=2, dropout=0.5, attention="none", bidirectional=False, reverse_source=True,
        vocab=5_893, source_vocab=7_853,
    ),
    "lstm-luong": dict(
        width=1000, embedding=1000, depth=4, dropout=0.2, attention="general", bidirectional=False, reverse_source=True,
        vocab=50_000, source_vocab=50_000,
    ),
    "lstm-sutskever": dict(
        width=1000, embedding=1000, depth=4, dropout=0.0, attention="none", bidirectional=False, reverse_source=True,
        vocab=80_000, source_vocab=160_000,
    ),
}  # fmt: skip
"""The model of the bentrevett/pytorch-seq2seq notebooks for Multi30k, Luong's best single model, and Sutskever's."""
PAPER = {"lstm-multi30k": 13.9e6, "lstm-sutskever": 384e6}
"""With the vocabularies of the sizes."""


def spec(
    size: str = "lstm-multi30k",
    *,
    width: int | None = None,
    embedding: int | None = None,
    depth: int | None = None,
    dropout: float | None = None,
    attention: Score | Literal["none"] | None = None,
    input_feeding: bool = True,
    bidirectional: bool | None = None,
    reverse_source: bool | None = None,
    hidden_dropout: float = 0.0,
    layer_norm: bool = False,
    vocab: int | None = None,
    source_vocab: int | None = None,
    length: int = 1024,
    tied: bool = False,
    init: str = "xavier",
) -> ModelSpec:
    """Build an encoder-decoder of LSTM layers. With attention, it is Luong's; `input_feeding` can be left out."""
    shape = resolve_size(
        SIZES, size, width=width, embedding=embedding, depth=depth, dropout=dropout, attention=attention,
        bidirectional=bidirectional, reverse_source=reverse_source, vocab=vocab,
        source_vocab=source_vocab if vocab is None or source_vocab is not None else 0,
    )  # fmt: skip
    refuse_reversed(reverse_source, shape)
    looks = shape["attention"] != "none"
    decoder = dict(attend="after", input_feeding=looks and input_feeding) if looks else {}
    return build_seq2seq("lstm", shape, decoder, hidden_dropout, layer_norm, length, tied, init)


def refuse_reversed(reverse_source: bool | None, shape: Settings) -> None:
    """Refuse to reverse the source of an encoder that reads it in both directions anyway."""
    if reverse_source and shape["bidirectional"]:
        raise SpecError(
            "reverse_source does nothing if the encoder reads in both directions; "
            "set model.bidirectional to false, or leave out model.reverse_source"
        )


def build_seq2seq(
    cell: str,
    shape: Settings,
    decoder: Settings,
    hidden_dropout: float,
    layer_norm: bool,
    length: int,
    tied: bool,
    init: str,
) -> ModelSpec:
    """Build an encoder-decoder of one kind of cell; `decoder` has more settings of the decoder.

    A decoder whose layers do not fit the encoder's (which may read in both directions) starts from a map of its last state.
    """
    width, depth, dropout = shape["width"], shape["depth"], shape["dropout"]
    norm = LayerNorm() if layer_norm else None
    both = shape["bidirectional"]
    reads = CELLS[cell](
        width=2 * width if both else width, bidirectional=both, reverse=shape["reverse_source"] and not both,
        hidden_dropout=hidden_dropout, norm=norm,
    )  # fmt: skip
    first, rest = Block(mix=reads), Block(mix=reads.replace("dropout", dropout))
    attention = None if shape["attention"] == "none" else shape["attention"]
    writes = CELLS[cell](width=width, dropout=dropout, hidden_dropout=hidden_dropout, norm=norm)

    def table(size: int) -> Tokens:
        return Tokens(size, width=shape["embedding"], dropout=dropout)

    return ModelSpec(
        width=width,
        length=length,
        embed=table(shape["vocab"]),
        source=table(shape["source_vocab"]) if shape.get("source_vocab") else None,
        encoder=Stack(blocks=(first, *[rest] * (depth - 1)), wiring=Bare()),
        decoder=RecurrentDecoder(writes, depth, attention, start="map" if both else "final", **decoder),
        head=Vocab(tied=tied, bias=True),
        init=init,
    )
