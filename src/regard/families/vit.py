"""ViT: a pre-norm encoder over image patches.

Dosovitskiy et al. 2020.

The tiny and small sizes are from Touvron et al. (2021). Images of another size than `image` use the same weights: positions are
interpolated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from regard.families.named_sizes import Settings, resolve_size
from regard.families.published import ACTIVATIONS, CLASSES, Config, Form, Key, Use
from regard.families.weight_map import Name
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.head import Classes, Vector
from regard.nn.blocks.patches import Patches
from regard.nn.blocks.wiring import PreNorm
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import Full

SIZES: dict[str, Settings] = {
    "vit-ti16": dict(width=192, depth=12, heads=3, hidden=768, patch=16),
    "vit-s16": dict(width=384, depth=12, heads=6, hidden=1536, patch=16),
    "vit-b16": dict(width=768, depth=12, heads=12, hidden=3072, patch=16),
    "vit-b32": dict(width=768, depth=12, heads=12, hidden=3072, patch=32),
    "vit-l16": dict(width=1024, depth=24, heads=16, hidden=4096, patch=16),
    "vit-l32": dict(width=1024, depth=24, heads=16, hidden=4096, patch=32),
    "vit-h14": dict(width=1280, depth=32, heads=16, hidden=5120, patch=14),
}

PAPER = {"vit-ti16": 5e6, "vit-s16": 22e6, "vit-b16": 86e6, "vit-l16": 307e6, "vit-h14": 632e6}


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
    classes: int | None = 1000,
    pool: Literal["first", "mean"] = "first",
    pretraining: bool = False,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    activation: str = "gelu",
    eps: float = 1e-6,
) -> ModelSpec:
    """Build an image classifier. `pool` reads a class token (`first`) or, without one, the `mean` of all patches.

    `pretraining` adds the paper's tanh layer before the classes; without `classes` the model returns the pooled vector.
    """
    shape = resolve_size(SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden, patch=patch)
    embed = Patches(image, shape["patch"], channels, first=pool == "first", dropout=dropout)
    return ModelSpec(
        width=shape["width"],
        length=embed.tokens(),
        embed=embed,
        encoder=Stack(
            Block(
                mix=Full(shape["heads"], dropout=attention_dropout),
                feed=FeedForward(shape["hidden"], activation, dropout=dropout),
            ),
            depth=shape["depth"],
            wiring=PreNorm(LayerNorm(eps), dropout),
        ),
        head=Vector(pool, pretraining) if classes is None else Classes(classes, pool, hidden=pretraining),
        init="normal",
    )


# ------------------------------------------------------------------------------------------------- published form


def _read_square(name: str, usual: int) -> Callable[[Config], int]:
    """Return a reader for a side length given as one number or as two equal ones."""

    def read(config: Config) -> int:
        side = config.get(name, usual)
        sides = set(side) if isinstance(side, list | tuple) else {side}
        if len(sides) > 1:
            raise ValueError("only square images and patches are supported")
        return int(sides.pop())

    return read


def _infer_pooler(config: Config, names: Iterable[str]) -> Config:
    """Tell a body with a pooler from one without."""
    bare = config.get("architectures") == ["ViTModel"] and not any(
        name.endswith("pooler.dense.weight") for name in names
    )
    return {**config, "architectures": ["ViTModel without a pooler"]} if bare else config


_LAYER = "vit.encoder.layer.{}"
FORMS = (
    Form(
        "vit",
        spec,
        keys=(
            Key("width", "width", "hidden_size", 768),
            Key("depth", "encoder.depth", "num_hidden_layers", 12),
            Key("heads", "encoder.block.mix.heads", "num_attention_heads", 12),
            Key("hidden", "encoder.block.feed.width", "intermediate_size", 3072),
            Key("image", "embed.side", "image_size", read=_read_square("image_size", 224)),
            Key("patch", "embed.patch", "patch_size", read=_read_square("patch_size", 16)),
            Key("channels", "embed.channels", "num_channels", 3),
            Key("activation", "encoder.block.feed.activation", "hidden_act", "gelu", ACTIVATIONS),
            Key("eps", "encoder.wiring.norm.eps", "layer_norm_eps", 1e-12),
            Key("dropout", "encoder.wiring.dropout", "hidden_dropout_prob", 0.0),
            Key("attention_dropout", "encoder.block.mix.dropout", "attention_probs_dropout_prob", 0.0),
        ),
        names=(
            Name("embed.first", "vit.embeddings.cls_token", lead=2),
            Name("embed.position", "vit.embeddings.position_embeddings", lead=1),
            Name("embed.patch", "vit.embeddings.patch_embeddings.projection"),
            Name("encoder.blocks.{}.mix_norm", f"{_LAYER}.layernorm_before"),
            Name("encoder.blocks.{}.mix.q", f"{_LAYER}.attention.attention.query"),
            Name("encoder.blocks.{}.mix.k", f"{_LAYER}.attention.attention.key"),
            Name("encoder.blocks.{}.mix.v", f"{_LAYER}.attention.attention.value"),
            Name("encoder.blocks.{}.mix.out", f"{_LAYER}.attention.output.dense"),
            Name("encoder.blocks.{}.feed_norm", f"{_LAYER}.layernorm_after"),
            Name("encoder.blocks.{}.feed.up", f"{_LAYER}.intermediate.dense"),
            Name("encoder.blocks.{}.feed.down", f"{_LAYER}.output.dense"),
            Name("encoder.norm", "vit.layernorm"),
        ),
        uses={
            "ViTForImageClassification": Use(
                "image", (Name("head.classes", "classifier"),), dict(pretraining=False),
                (CLASSES,),
            ),
            "ViTModel": Use(
                "image", (Name("head.dense", "vit.pooler.dense"),), dict(classes=None, pretraining=True), bare=True
            ),
            "ViTModel without a pooler": Use("image", fixed=dict(classes=None, pretraining=False), bare=True),
        },
        prefix="vit.",
        fixed=dict(pool="first"),
        only=dict(qkv_bias=(True,), pooler_act=("tanh",)),
        infer=_infer_pooler,
    ),
)  # fmt: skip
