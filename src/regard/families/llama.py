"""Llama (Touvron et al. 2023) and its kin: a causal decoder with RMS norms, rotary positions, gates and grouped heads.

SmolLM2 and TinyLlama have this very shape; Qwen3 also normalises queries and keys, and sets the width of a head apart.
"""

from __future__ import annotations

from typing import Any

from regard.families.size import sized
from regard.model.spec import ModelSpec
from regard.nn.block import Block
from regard.nn.body import Stack
from regard.nn.embed import Tokens
from regard.nn.feedforward import FeedForward
from regard.nn.head import Vocab
from regard.nn.mixers import Full
from regard.nn.norm import RMSNorm
from regard.nn.position import Rotary
from regard.nn.wiring import PreNorm

_SMOLLM2: dict[str, Any] = dict(vocab=49152, length=8192, base=1e5, eps=1e-5, tied=True)
_QWEN3: dict[str, Any] = dict(vocab=151936, length=40960, base=1e6, eps=1e-6, tied=True, head_width=128, qk_norm=True)
_LLAMA: dict[str, Any] = dict(vocab=32000, base=1e4, eps=1e-5, tied=False)

SIZES: dict[str, dict[str, Any]] = {
    "smollm2-135m": dict(width=576, depth=30, heads=9, kv_heads=3, hidden=1536, **_SMOLLM2),
    "smollm2-360m": dict(width=960, depth=32, heads=15, kv_heads=5, hidden=2560, **_SMOLLM2),
    "qwen3-0.6b": dict(width=1024, depth=28, heads=16, kv_heads=8, hidden=3072, **_QWEN3),
    "tinyllama-1.1b": dict(width=2048, depth=22, heads=32, kv_heads=4, hidden=5632, length=2048, **_LLAMA),
    "smollm2-1.7b": dict(width=2048, depth=24, heads=32, kv_heads=32, hidden=8192, **_SMOLLM2 | dict(base=1.3e5)),
    "qwen3-1.7b": dict(width=2048, depth=28, heads=16, kv_heads=8, hidden=6144, **_QWEN3),
    "llama-2-7b": dict(width=4096, depth=32, heads=32, kv_heads=32, hidden=11008, length=4096, **_LLAMA),
    "llama-2-13b": dict(width=5120, depth=40, heads=40, kv_heads=40, hidden=13824, length=4096, **_LLAMA),
}

NAMES = (
    # ours, theirs; a row holds for the weight and the bias of a part, {} is the layer
    ("embed", "model.embed_tokens"),
    ("decoder.blocks.{}.mix_norm", "model.layers.{}.input_layernorm"),
    ("decoder.blocks.{}.mix.q", "model.layers.{}.self_attn.q_proj"),
    ("decoder.blocks.{}.mix.k", "model.layers.{}.self_attn.k_proj"),
    ("decoder.blocks.{}.mix.v", "model.layers.{}.self_attn.v_proj"),
    ("decoder.blocks.{}.mix.out", "model.layers.{}.self_attn.o_proj"),
    ("decoder.blocks.{}.mix.q_norm", "model.layers.{}.self_attn.q_norm"),
    ("decoder.blocks.{}.mix.k_norm", "model.layers.{}.self_attn.k_norm"),
    ("decoder.blocks.{}.feed_norm", "model.layers.{}.post_attention_layernorm"),
    ("decoder.blocks.{}.feed.gate", "model.layers.{}.mlp.gate_proj"),
    ("decoder.blocks.{}.feed.up", "model.layers.{}.mlp.up_proj"),
    ("decoder.blocks.{}.feed.down", "model.layers.{}.mlp.down_proj"),
    ("decoder.norm", "model.norm"),
    ("head", "lm_head"),
)


def spec(
    size: str = "smollm2-135m",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_width: int | None = None,
    hidden: int | None = None,
    vocab: int | None = None,
    length: int | None = None,
    base: float | None = None,
    eps: float | None = None,
    tied: bool | None = None,
    qk_norm: bool | None = None,
    dropout: float = 0.0,
) -> ModelSpec:
    """A decoder-only model without a single bias. Heads given by hand share no keys unless `kv_heads` says so."""
    shape = sized(
        SIZES, size, width=width, depth=depth, heads=heads, kv_heads=kv_heads or heads, head_width=head_width, hidden=hidden,
        vocab=vocab, length=length, base=base, eps=eps, tied=tied, qk_norm=qk_norm,
    )  # fmt: skip
    norm = RMSNorm(shape["eps"])
    mix = Full(
        shape["heads"],
        kv_heads=shape["kv_heads"],
        head_width=shape.get("head_width"),
        bias=False,
        dropout=dropout,
        qk_norm=norm if shape.get("qk_norm") else None,
    )
    return ModelSpec(
        width=shape["width"],
        length=shape["length"],
        embed=Tokens(shape["vocab"], dropout=dropout),
        decoder=Stack(
            Block(mix=mix, feed=FeedForward(shape["hidden"], "silu", gated=True, bias=False)),
            depth=shape["depth"],
            causal=True,
            wiring=PreNorm(norm, dropout),
            position=Rotary(shape["base"]),
        ),
        head=Vocab(tied=shape["tied"]),
        init="normal",
    )
