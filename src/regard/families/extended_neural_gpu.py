"""Extended Neural GPU: a Neural GPU that reads its own output.

Kaiser & Bengio 2016 ("Can Active Memory Replace Attention?"): the encoder is a Neural GPU. Its grid is the first state of a
decoder of other convolutional units, which also read an output tape with the symbols written so far.

`width` is the number of maps m, `rows` the width w of the paper's state. To move symbols, as in reversing, it needs several
`copies` of the encoder's weights in training, which a penalty pulls together (see `neural_gpu`).
"""

from __future__ import annotations

from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.cgru_loop import CgruLoop, relax
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.output_tape import OutputTape

SIZES: dict[str, Settings] = {"extended-neural-gpu": dict(width=64, rows=4, depth=2, dropout=0.1, vocab=16)}
"""The defaults of the authors' code in tensorflow/models."""
PAPER: dict[str, float] = {}
"""The paper gives no counts."""


def spec(
    size: str = "extended-neural-gpu",
    *,
    width: int | None = None,
    rows: int | None = None,
    depth: int | None = None,
    copies: int = 1,
    pull_every: int = 200,
    dropout: float | None = None,
    vocab: int | None = None,
    source_vocab: int | None = None,
    length: int = 1024,
    init: str = "neural_gpu",
) -> ModelSpec:
    """Build an Extended Neural GPU.

    With `copies`, its encoder is trained like a Neural GPU, with several copies of its weights; the paper does not say so.
    """
    shape = resolve_size(
        SIZES, size, width=width, rows=rows, depth=depth, dropout=dropout, vocab=vocab, source_vocab=source_vocab
    )
    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=Tokens(shape["vocab"]),
        source=Tokens(shape["source_vocab"]) if shape.get("source_vocab") else None,
        encoder=CgruLoop(shape["rows"], shape["depth"], relax(copies, pull_every), shape["dropout"], "sqrt_length"),
        decoder=OutputTape(shape["depth"], shape["dropout"], "sqrt_length"),
        head=Vocab(tied=False),
        init=init,
    )
