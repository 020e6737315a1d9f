"""GRU encoder-decoders: RNNenc and RNNsearch.

Cho et al. 2014: the decoder reads the encoder's last state at every token. Bahdanau et al. 2014 (RNNsearch): the encoder reads
in both directions, and before each step the decoder looks at the source with its last state.

`attention: none` is the first, anything else the second.
"""

from __future__ import annotations

from typing import Literal

from regard.families.lstm import build_seq2seq, refuse_reversed
from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.attention.source_attention import Score

SIZES: dict[str, Settings] = {
    "gru-multi30k": dict(
        width=512, embedding=256, depth=1, dropout=0.5, attention="none", bidirectional=False, reverse_source=False,
        readout="all", vocab=5_893, source_vocab=7_853,
    ),
    "gru-attention-multi30k": dict(
        width=512, embedding=256, depth=1, dropout=0.5, attention="additive", bidirectional=True, reverse_source=False,
        readout="all", vocab=5_893, source_vocab=7_853,
    ),
    "rnnsearch": dict(
        width=1000, embedding=620, depth=1, dropout=0.0, attention="additive", bidirectional=True, reverse_source=False,
        readout="maxout", vocab=30_000, source_vocab=30_000,
    ),
}  # fmt: skip
"""The models of the bentrevett/pytorch-seq2seq notebooks for Multi30k, and Bahdanau's."""
PAPER = {"gru-multi30k": 14.2e6, "gru-attention-multi30k": 20.5e6}
"""With the vocabularies of the sizes."""


def spec(
    size: str = "gru-attention-multi30k",
    *,
    width: int | None = None,
    embedding: int | None = None,
    depth: int | None = None,
    dropout: float | None = None,
    attention: Score | Literal["none"] | None = None,
    bidirectional: bool | None = None,
    reverse_source: bool | None = None,
    readout: Literal["state", "all", "maxout"] | None = None,
    hidden_dropout: float = 0.0,
    layer_norm: bool = False,
    vocab: int | None = None,
    source_vocab: int | None = None,
    length: int = 1024,
    tied: bool = False,
    init: str = "xavier",
) -> ModelSpec:
    """Build an encoder-decoder of GRU layers."""
    shape = resolve_size(
        SIZES, size, width=width, embedding=embedding, depth=depth, dropout=dropout, attention=attention,
        bidirectional=bidirectional, reverse_source=reverse_source, readout=readout, vocab=vocab,
        source_vocab=source_vocab if vocab is None or source_vocab is not None else 0,
    )  # fmt: skip
    refuse_reversed(reverse_source, shape)
    decoder = dict(readout=shape["readout"], context=shape["attention"] == "none")
    return build_seq2seq("gru", shape, decoder, hidden_dropout, layer_norm, length, tied, init)
