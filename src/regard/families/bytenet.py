"""ByteNet: translation and language models in linear time.

Kalchbrenner et al. 2016: dilated convolutions read and write characters; the decoder is stacked on the encoder.

`width` is d, the width inside the blocks; the stream is twice as wide. With `reads: false` it is a language model.
For dynamic unfolding, set `data.unfold` in the recipe.
"""

from __future__ import annotations

from typing import Literal

from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.dilated_convolutions import DilatedConvolutions
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab

SIZES: dict[str, Settings] = {
    "bytenet-lm": dict(
        width=512, depth=30, kernel=3, max_dilation=16, unit="multiplicative", reads=False, dropout=0.1, vocab=205,
    ),
    "bytenet-wmt": dict(width=800, depth=30, kernel=3, max_dilation=16, unit="relu", reads=True, dropout=0.0, vocab=323),
}  # fmt: skip
"""The models for Hutter Prize Wikipedia and for translation."""
PAPER: dict[str, float] = {}
"""The paper gives no counts."""


def spec(
    size: str = "bytenet-wmt",
    *,
    width: int | None = None,
    depth: int | None = None,
    kernel: int | None = None,
    max_dilation: int | None = None,
    unit: Literal["relu", "multiplicative"] | None = None,
    reads: bool | None = None,
    dropout: float | None = None,
    hidden_dropout: float = 0.0,
    vocab: int | None = None,
    source_vocab: int | None = None,
    length: int = 1024,
    tied: bool = False,
    init: str = "xavier",
) -> ModelSpec:
    """Build a ByteNet. Dilations double from block to block up to `max_dilation`, then start again at 1."""
    shape = resolve_size(
        SIZES, size, width=width, depth=depth, kernel=kernel, max_dilation=max_dilation, unit=unit, reads=reads,
        dropout=dropout, vocab=vocab, source_vocab=source_vocab,
    )  # fmt: skip
    period = max(int(shape["max_dilation"]), 1).bit_length()
    blocks = dict(
        dilations=tuple(1 << i % period for i in range(shape["depth"])), kernel=shape["kernel"], unit=shape["unit"],
        dropout=shape["dropout"], hidden_dropout=hidden_dropout,
    )  # fmt: skip
    source = shape.get("source_vocab") if shape["reads"] else None
    return ModelSpec(
        width=2 * shape["width"],
        length=length,
        embed=Tokens(shape["vocab"]),
        source=Tokens(source) if source else None,
        encoder=DilatedConvolutions(**blocks) if shape["reads"] else None,
        decoder=DilatedConvolutions(**blocks, stacked=shape["reads"], causal=True),
        head=Vocab(tied=tied, bias=True),
        init=init,
    )
