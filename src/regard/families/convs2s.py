"""ConvS2S: convolutional sequence to sequence learning.

Gehring et al. 2017: gated convolutions read and write, and every layer of the decoder attends to the source.

`widths` and `kernels` list the layers of both sides; `width`, `kernel`, `depth` and `decoder_depth` make all layers alike.
"""

from __future__ import annotations

from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.gated_convolutions import GatedConvolutions
from regard.nn.blocks.head import Vocab
from regard.nn.positions.position import Learned

SIZES: dict[str, Settings] = {
    "convs2s-iwslt": dict(
        embedding=256, widths=(256,) * 4, kernels=(3,) * 4, decoder_depth=3, dropout=0.2, vocab=32_000,
    ),
    "convs2s-multi30k": dict(
        embedding=256, widths=(512,) * 10, kernels=(3,) * 10, dropout=0.25, vocab=5_893, source_vocab=7_853,
    ),
    "convs2s-wmt-en-ro": dict(embedding=512, widths=(512,) * 20, kernels=(3,) * 20, dropout=0.2, vocab=40_000),
    "convs2s-wmt-en-de": dict(
        embedding=768, out=512, widths=(512,) * 9 + (1024,) * 4 + (2048,) * 2, kernels=(3,) * 13 + (1,) * 2,
        dropout=0.2, vocab=40_000,
    ),
    "convs2s-wmt-en-fr": dict(
        embedding=768, out=512, widths=(512,) * 6 + (768,) * 4 + (1024,) * 3 + (2048, 4096), kernels=(3,) * 13 + (1,) * 2,
        dropout=0.1, vocab=40_000,
    ),
}  # fmt: skip
"""The layers of the authors' released models, and those of the bentrevett/pytorch-seq2seq notebook for Multi30k."""
PAPER: dict[str, float] = {}
"""The paper gives no counts."""


def spec(
    size: str = "convs2s-multi30k",
    *,
    width: int | None = None,
    depth: int | None = None,
    decoder_depth: int | None = None,
    kernel: int | None = None,
    widths: tuple[int, ...] | None = None,
    kernels: tuple[int, ...] | None = None,
    embedding: int | None = None,
    out: int | None = None,
    dropout: float | None = None,
    weight_norm: bool = True,
    vocab: int | None = None,
    source_vocab: int | None = None,
    length: int = 1024,
    tied: bool = False,
    init: str = "convs2s",
) -> ModelSpec:
    """Build an encoder-decoder of gated convolutions."""
    shape = resolve_size(
        SIZES, size, decoder_depth=decoder_depth, embedding=embedding, dropout=dropout, vocab=vocab,
        source_vocab=source_vocab if vocab is None or source_vocab is not None else 0,
    )  # fmt: skip
    own_widths, own_kernels = widths or shape["widths"], kernels or shape["kernels"]
    if width is not None or kernel is not None or depth is not None:
        count = depth or len(own_widths)
        own_widths = (width,) * count if width else (own_widths + own_widths[-1:] * count)[:count]
        own_kernels = (kernel,) * count if kernel else (own_kernels + own_kernels[-1:] * count)[:count]
    writes = decoder_depth or (shape.get("decoder_depth") if depth is None and widths is None else None)
    writes = writes or len(own_widths)
    table, drop = shape["embedding"], shape["dropout"]
    left = out or (shape.get("out") if embedding is None else None)

    def layers(count: int) -> Settings:
        wide, reach = (own_widths + own_widths[-1:] * count)[:count], (own_kernels + own_kernels[-1:] * count)[:count]
        return dict(widths=wide, kernels=reach, dropout=drop, weight_norm=weight_norm)

    def tokens(count: int) -> Tokens:
        return Tokens(count, Learned(), width=table, dropout=drop)

    return ModelSpec(
        width=table,
        length=length,
        embed=tokens(shape["vocab"]),
        source=tokens(shape["source_vocab"]) if shape.get("source_vocab") else None,
        encoder=GatedConvolutions(**layers(len(own_widths))),
        decoder=GatedConvolutions(**layers(writes), out=left, attention=True, causal=True),
        head=Vocab(tied=tied, bias=True),
        init=init,
    )
