"""BERT (Devlin et al. 2018): an encoder that reads both ways, post-norm, taught to fill in masked tokens.

Pre-training has a second head, which says whether the second of two segments follows the first. RoBERTa (Liu et al. 2019)
and DistilBERT (Sanh et al. 2019) do without it; the one has a single segment, the other none.
"""

from __future__ import annotations

from typing import Any

from regard.families.size import sized
from regard.model.spec import ModelSpec
from regard.nn.block import Block
from regard.nn.body import Stack
from regard.nn.embed import Tokens
from regard.nn.feedforward import FeedForward
from regard.nn.head import Classes, Masked
from regard.nn.mixers import Full
from regard.nn.norm import LayerNorm
from regard.nn.position import Learned
from regard.nn.wiring import PostNorm

_BERT: dict[str, Any] = dict(vocab=30522, segments=2, follows=True, shift=0, eps=1e-12)
_ROBERTA: dict[str, Any] = dict(vocab=50265, segments=1, follows=False, shift=2, eps=1e-5)
_BASE: dict[str, Any] = dict(width=768, depth=12, heads=12, hidden=3072)
_LARGE: dict[str, Any] = dict(width=1024, depth=24, heads=16, hidden=4096)

SIZES: dict[str, dict[str, Any]] = {
    "distilbert-base": _BASE | _BERT | dict(depth=6, segments=0, follows=False),
    "bert-base": _BASE | _BERT,
    "roberta-base": _BASE | _ROBERTA,
    "bert-large": _LARGE | _BERT,
    "roberta-large": _LARGE | _ROBERTA,
}

NAMES = (
    # ours, theirs; a row holds for the weight and the bias of a part, {} is the layer
    ("embed", "bert.embeddings.word_embeddings"),
    ("embed.position", "bert.embeddings.position_embeddings"),
    ("embed.segment", "bert.embeddings.token_type_embeddings.weight"),
    ("embed.norm", "bert.embeddings.LayerNorm"),
    ("encoder.blocks.{}.mix.q", "bert.encoder.layer.{}.attention.self.query"),
    ("encoder.blocks.{}.mix.k", "bert.encoder.layer.{}.attention.self.key"),
    ("encoder.blocks.{}.mix.v", "bert.encoder.layer.{}.attention.self.value"),
    ("encoder.blocks.{}.mix.out", "bert.encoder.layer.{}.attention.output.dense"),
    ("encoder.blocks.{}.mix_norm", "bert.encoder.layer.{}.attention.output.LayerNorm"),
    ("encoder.blocks.{}.feed.up", "bert.encoder.layer.{}.intermediate.dense"),
    ("encoder.blocks.{}.feed.down", "bert.encoder.layer.{}.output.dense"),
    ("encoder.blocks.{}.feed_norm", "bert.encoder.layer.{}.output.LayerNorm"),
    ("head.dense", "cls.predictions.transform.dense"),
    ("head.norm", "cls.predictions.transform.LayerNorm"),
    ("head.bias", "cls.predictions.bias"),
    ("head.bias", "cls.predictions.decoder.bias"),
    ("head.weight", "cls.predictions.decoder.weight"),
    ("beside.dense", "bert.pooler.dense"),
    ("beside.classes", "cls.seq_relationship"),
)
CLASSIFIER = (
    ("head.dense", "bert.pooler.dense"),
    ("head.classes", "classifier"),
)
"""Instead of the last rows, where the head is a classifier."""


def spec(
    size: str = "bert-base",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    vocab: int | None = None,
    segments: int | None = None,
    follows: bool | None = None,
    shift: int | None = None,
    eps: float | None = None,
    classes: int | None = None,
    length: int = 512,
    dropout: float = 0.1,
) -> ModelSpec:
    """An encoder-only model; with `classes` it has a classifier on its first token, and neither head of pre-training.

    `follows` is the head for the next sentence; `shift` leaves room before the first position, as RoBERTa does.
    """
    shape = sized(
        SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden, vocab=vocab, segments=segments, follows=follows,
        shift=shift, eps=eps,
    )  # fmt: skip
    norm = LayerNorm(shape["eps"])
    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=Tokens(
            shape["vocab"],
            position=Learned(shape["shift"]),
            norm=norm,
            dropout=dropout,
            segments=shape["segments"],
        ),
        encoder=Stack(
            Block(mix=Full(shape["heads"], dropout=dropout), feed=FeedForward(shape["hidden"], "gelu")),
            depth=shape["depth"],
            wiring=PostNorm(norm, dropout),
        ),
        head=Masked("gelu", norm) if classes is None else Classes(classes, hidden=True, dropout=dropout),
        beside=Classes(2, hidden=True) if classes is None and shape["follows"] else None,
        init="normal",
    )
