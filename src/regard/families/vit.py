"""ViT (Dosovitskiy et al. 2020): an image is patches in a row, and then it is the Transformer's encoder, pre-norm.

Tiny and small are the shapes of Touvron et al. (2021). Images of another size than `image` need no other weights: their
places are interpolated.
"""

from __future__ import annotations

from typing import Any, Literal

from regard.families.size import sized
from regard.model.spec import ModelSpec
from regard.nn.block import Block
from regard.nn.body import Stack
from regard.nn.feedforward import FeedForward
from regard.nn.head import Classes
from regard.nn.mixers import Full
from regard.nn.norm import LayerNorm
from regard.nn.patches import Patches
from regard.nn.wiring import PreNorm

SIZES: dict[str, dict[str, Any]] = {
    "vit-ti16": dict(width=192, depth=12, heads=3, hidden=768, patch=16),
    "vit-s16": dict(width=384, depth=12, heads=6, hidden=1536, patch=16),
    "vit-b16": dict(width=768, depth=12, heads=12, hidden=3072, patch=16),
    "vit-b32": dict(width=768, depth=12, heads=12, hidden=3072, patch=32),
    "vit-l16": dict(width=1024, depth=24, heads=16, hidden=4096, patch=16),
    "vit-l32": dict(width=1024, depth=24, heads=16, hidden=4096, patch=32),
    "vit-h14": dict(width=1280, depth=32, heads=16, hidden=5120, patch=14),
}

NAMES = (
    # ours, theirs as they are in files; a row holds for the weight and the bias of a part, {} is the layer
    ("embed.first", "vit.embeddings.cls_token"),
    ("embed.position", "vit.embeddings.position_embeddings"),
    ("embed.patch", "vit.embeddings.patch_embeddings.projection"),
    ("encoder.blocks.{}.mix_norm", "vit.encoder.layer.{}.layernorm_before"),
    ("encoder.blocks.{}.mix.q", "vit.encoder.layer.{}.attention.attention.query"),
    ("encoder.blocks.{}.mix.k", "vit.encoder.layer.{}.attention.attention.key"),
    ("encoder.blocks.{}.mix.v", "vit.encoder.layer.{}.attention.attention.value"),
    ("encoder.blocks.{}.mix.out", "vit.encoder.layer.{}.attention.output.dense"),
    ("encoder.blocks.{}.feed_norm", "vit.encoder.layer.{}.layernorm_after"),
    ("encoder.blocks.{}.feed.up", "vit.encoder.layer.{}.intermediate.dense"),
    ("encoder.blocks.{}.feed.down", "vit.encoder.layer.{}.output.dense"),
    ("encoder.norm", "vit.layernorm"),
    ("head.classes", "classifier"),
)


def spec(
    size: str = "vit-b16",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    patch: int | None = None,
    image: int = 224,
    channels: int = 3,
    classes: int = 1000,
    pool: Literal["first", "mean"] = "first",
    pretraining: bool = False,
    dropout: float = 0.1,
) -> ModelSpec:
    """A classifier of images. `pool` reads a class token of its own (`first`) or, without one, the `mean` of all patches.

    `pretraining` puts the paper's hidden layer with tanh before the classes.
    """
    shape = sized(SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden, patch=patch)
    embed = Patches(image, shape["patch"], channels, first=pool == "first", dropout=dropout)
    return ModelSpec(
        width=shape["width"],
        length=embed.tokens(),
        embed=embed,
        encoder=Stack(
            Block(mix=Full(shape["heads"]), feed=FeedForward(shape["hidden"], "gelu", dropout=dropout)),
            depth=shape["depth"],
            wiring=PreNorm(LayerNorm(1e-6), dropout),
        ),
        head=Classes(classes, pool, hidden=pretraining),
        init="normal",
    )
