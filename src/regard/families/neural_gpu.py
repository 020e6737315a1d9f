"""Neural GPU: an algorithm as a loop of convolutions.

Kaiser & Sutskever 2015: a text of n symbols takes n steps of convolutional gated recurrent units over all symbols at once; the
output is read off column by column. It is made to learn algorithms from short examples.

`width` is the number of maps m, `rows` the width w of the paper's state. Training uses `copies` of the weights, which a penalty
pulls together; it grows every `pull_every` steps.
"""

from __future__ import annotations

from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.cgru_loop import CgruLoop, relax
from regard.nn.blocks.columns import Columns
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab

SIZES: dict[str, Settings] = {"neural-gpu": dict(width=24, rows=4, depth=2, copies=6, dropout=0.15, vocab=33)}
"""Width and rows are those of the paper; dropout and vocabulary those of the openai/neural-gpu repository."""
PAPER: dict[str, float] = {}
"""The paper gives no counts."""


def spec(
    size: str = "neural-gpu",
    *,
    width: int | None = None,
    rows: int | None = None,
    depth: int | None = None,
    copies: int | None = None,
    pull_every: int = 200,
    dropout: float | None = None,
    vocab: int | None = None,
    source_vocab: int | None = None,
    length: int = 1024,
    init: str = "neural_gpu",
) -> ModelSpec:
    """Build a Neural GPU. It has no limit on lengths: `length` bounds what a search writes."""
    shape = resolve_size(
        SIZES, size, width=width, rows=rows, depth=depth, copies=copies, dropout=dropout, vocab=vocab,
        source_vocab=source_vocab,
    )  # fmt: skip
    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=Tokens(shape["vocab"]),
        source=Tokens(shape["source_vocab"]) if shape.get("source_vocab") else None,
        encoder=CgruLoop(shape["rows"], shape["depth"], relax(shape["copies"], pull_every), shape["dropout"]),
        decoder=Columns(),
        head=Vocab(tied=False),
        init=init,
    )
