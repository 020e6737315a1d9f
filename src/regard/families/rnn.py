"""Recurrent language models of RNN, GRU or LSTM layers.

Mikolov et al. 2010; Zaremba et al. 2014: dropout between the layers, not within the recurrence. No residual sums and no norms.
"""

from __future__ import annotations

from typing import Literal

from regard.families.lstm import CELLS
from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.wiring import Bare

SIZES: dict[str, Settings] = {
    "zaremba-small": dict(width=200, depth=2, dropout=0.0, vocab=10_000),
    "zaremba-medium": dict(width=650, depth=2, dropout=0.5, vocab=10_000),
    "zaremba-large": dict(width=1500, depth=2, dropout=0.65, vocab=10_000),
}
"""The LSTMs of Zaremba et al. 2014 for the Penn Treebank."""
PAPER = {"zaremba-medium": 20e6, "zaremba-large": 66e6}


def spec(
    size: str = "zaremba-small",
    *,
    cell: Literal["rnn", "gru", "lstm"] = "lstm",
    width: int | None = None,
    embedding: int | None = None,
    depth: int | None = None,
    dropout: float | None = None,
    hidden_dropout: float = 0.0,
    vocab: int | None = None,
    length: int = 1024,
    tied: bool = False,
    init: str = "uniform",
) -> ModelSpec:
    """Build a decoder-only model of recurrent layers."""
    shape = resolve_size(SIZES, size, width=width, depth=depth, dropout=dropout, vocab=vocab)
    layer = CELLS[cell](width=shape["width"], hidden_dropout=hidden_dropout)
    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=Tokens(shape["vocab"], width=embedding, dropout=shape["dropout"]),
        decoder=Stack(Block(mix=layer), depth=shape["depth"], causal=True, wiring=Bare(dropout=shape["dropout"])),
        head=Vocab(tied=tied, bias=True),
        init=init,
    )
