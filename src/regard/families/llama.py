"""Llama, Mistral, Qwen: modern causal decoders.

Touvron et al. 2023. RMS norms, rotary positions, gated feed-forward layers and grouped heads.

SmolLM2 and TinyLlama have the same architecture. Mistral adds a sliding window; Qwen2 has biases on queries, keys and values;
Qwen3 has none, but normalizes queries and keys and sets the head width explicitly. Llama 3 scales its angles for longer texts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

from regard.errors import SpecError
from regard.families.named_sizes import Settings, resolve_size
from regard.families.published import Config, Form, Key, Use
from regard.families.weight_map import Drop, Name, Tied
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.wiring import PreNorm
from regard.nn.core.mask import Window
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import RMSNorm
from regard.nn.mixers import Full
from regard.nn.positions.position import Rotary
from regard.nn.positions.rope_scaling import LinearScaling, Llama3Scaling, RopeScalingSpec, YarnScaling
from regard.registry import kind_of

_SMOLLM2: Settings = dict(vocab=49152, length=8192, base=1e5, eps=1e-5, tied=True)
_QWEN2: Settings = dict(vocab=151936, length=32768, base=1e6, eps=1e-6, tied=True, bias="qkv")
_QWEN3: Settings = dict(vocab=151936, length=40960, base=1e6, eps=1e-6, tied=True, head_width=128, qk_norm=True)
_LLAMA: Settings = dict(vocab=32000, base=1e4, eps=1e-5, tied=False)

SIZES: dict[str, Settings] = {
    "smollm2-135m": dict(width=576, depth=30, heads=9, kv_heads=3, hidden=1536, **_SMOLLM2),
    "smollm2-360m": dict(width=960, depth=32, heads=15, kv_heads=5, hidden=2560, **_SMOLLM2),
    "qwen2.5-0.5b": dict(width=896, depth=24, heads=14, kv_heads=2, hidden=4864, **_QWEN2),
    "qwen3-0.6b": dict(width=1024, depth=28, heads=16, kv_heads=8, hidden=3072, **_QWEN3),
    "tinyllama-1.1b": dict(width=2048, depth=22, heads=32, kv_heads=4, hidden=5632, length=2048, **_LLAMA),
    "qwen2.5-1.5b": dict(width=1536, depth=28, heads=12, kv_heads=2, hidden=8960, **_QWEN2),
    "smollm2-1.7b": dict(width=2048, depth=24, heads=32, kv_heads=32, hidden=8192, **_SMOLLM2 | dict(base=1.3e5)),
    "qwen3-1.7b": dict(width=2048, depth=28, heads=16, kv_heads=8, hidden=6144, **_QWEN3),
    "llama-2-7b": dict(width=4096, depth=32, heads=32, kv_heads=32, hidden=11008, length=4096, **_LLAMA),
    "llama-2-13b": dict(width=5120, depth=40, heads=40, kv_heads=40, hidden=13824, length=4096, **_LLAMA),
}
PAPER = {"smollm2-135m": 135e6, "smollm2-360m": 360e6, "tinyllama-1.1b": 1.1e9, "smollm2-1.7b": 1.7e9}


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
    rope_scaling: RopeScalingSpec | None = None,
    window: int | None = None,
    eps: float | None = None,
    tied: bool | None = None,
    qk_norm: bool | None = None,
    bias: bool | Literal["qkv"] | None = None,
    dropout: float = 0.0,
) -> ModelSpec:
    """Build a decoder-only model. If `heads` is set, `kv_heads` defaults to the same number; `bias` is that of attention.

    `window` is the number of tokens that a token sees, itself included; `rope_scaling` slows the angles down for longer texts.
    """
    kv_heads = heads if kv_heads is None else kv_heads
    shape = resolve_size(
        SIZES, size, width=width, depth=depth, heads=heads, kv_heads=kv_heads, head_width=head_width, hidden=hidden,
        vocab=vocab, length=length, base=base, eps=eps, tied=tied, qk_norm=qk_norm, bias=bias,
    )  # fmt: skip
    norm = RMSNorm(shape["eps"])
    mix = Full(
        shape["heads"],
        kv_heads=shape["kv_heads"],
        head_width=shape.get("head_width"),
        bias=shape.get("bias", False),
        dropout=dropout,
        mask=None if window is None else Window(window - 1),
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
            position=Rotary(shape["base"], rope_scaling=rope_scaling),
        ),
        head=Vocab(tied=shape["tied"]),
        init="normal",
    )


# ------------------------------------------------------------------------------------------------- published form


def _read_rope(config: Config) -> tuple[float, RopeScalingSpec | None]:
    """Read the base of the rotary angles and their scaling; newer files have both in one place."""
    said = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    base = float(said.get("rope_theta") or config.get("rope_theta") or 1e4)
    kind = said.get("rope_type", said.get("type", "default"))
    if kind not in _ROPE_SCALINGS:
        raise SpecError(f"rotary positions of type {kind!r} are not supported; available: {', '.join(_ROPE_SCALINGS)}")
    make, keys = _ROPE_SCALINGS[kind]
    if make is None:
        return base, None
    said["original_max_position_embeddings"] = (
        said.get("original_max_position_embeddings") or config["max_position_embeddings"]
    )
    given = {ours: said[theirs] for theirs, ours in keys.items() if said.get(theirs) is not None}
    if said.get("mscale") and said.get("mscale_all_dim") and "attention_factor" not in given:
        gains = (1 + 0.1 * said[name] * math.log(said["factor"]) for name in ("mscale", "mscale_all_dim"))
        given["attention_factor"] = next(gains) / next(gains)
    return base, make(**given)


def _write_rope(value: tuple[float, RopeScalingSpec | None]) -> Settings:
    base, rope_scaling = value
    said: Settings = {
        "rope_type": "default" if rope_scaling is None else kind_of(type(rope_scaling)),
        "rope_theta": base,
    }
    for theirs, ours in _ROPE_SCALINGS[said["rope_type"]][1].items():
        if (own := getattr(rope_scaling, ours)) is not None:
            said[theirs] = own
    return {"rope_theta": base, "rope_parameters": said}


_LONG = {"factor": "factor", "original_max_position_embeddings": "original_length"}
_ROPE_SCALINGS: dict[str, tuple[Callable[..., RopeScalingSpec] | None, dict[str, str]]] = {
    "default": (None, {}),
    "linear": (LinearScaling, {"factor": "factor"}),
    "llama3": (Llama3Scaling, {**_LONG, **{k: k for k in ("low_freq_factor", "high_freq_factor")}}),
    "yarn": (
        YarnScaling,
        {**_LONG, **{k: k for k in ("beta_fast", "beta_slow", "attention_factor", "truncate")}},
    ),
}
"""Our scalings by their names, with their names for the fields."""


def _keys(eps: float, length: int, vocab: int, *more: Key) -> tuple[Key, ...]:
    return (
        Key("width", "width", "hidden_size", 4096),
        Key("depth", "decoder.depth", "num_hidden_layers", 32),
        Key("heads", "decoder.block.mix.heads", "num_attention_heads", 32),
        Key(
            "kv_heads", "decoder.block.mix.kv_heads", "num_key_value_heads",
            read=lambda c: c.get("num_key_value_heads") or c.get("num_attention_heads", 32),
        ),
        Key("hidden", "decoder.block.feed.width", "intermediate_size", 11008),
        Key("vocab", "embed.vocab", "vocab_size", vocab),
        Key("length", "length", "max_position_embeddings", length),
        Key("eps", "decoder.wiring.norm.eps", "rms_norm_eps", eps),
        Key("tied", "head.tied", "tie_word_embeddings", False),
        Key(
            ("base", "rope_scaling"), ("decoder.position.base", "decoder.position.rope_scaling"), "rope_parameters",
            read=_read_rope, write=_write_rope,
        ),
        *more,
    )  # fmt: skip


def _head_width(config: Config) -> int | None:
    """Return their head width, or None if it is width / heads."""
    own = config.get("head_dim")
    return None if own is None or own * config["num_attention_heads"] == config["hidden_size"] else int(own)


_HEAD_WIDTH = Key(
    "head_width", "decoder.block.mix.head_width", "head_dim", read=_head_width,
    write=lambda v: {} if v is None else {"head_dim": v},
)  # fmt: skip


def _window(config: Config) -> int | None:
    """Return the window if it is the same in all layers; Qwen's lower layers may have none."""
    if not config.get("use_sliding_window"):
        return None
    depth, whole = config.get("num_hidden_layers", 32), config.get("max_window_layers", 28)
    kinds = set(config.get("layer_types") or [_FULL] * (whole > 0) + [_SLIDING] * (depth > whole))
    if len(kinds) > 1:
        raise SpecError("some layers have a sliding window and others do not, which is not supported")
    return None if kinds == {_FULL} else config.get("sliding_window", 4096)


_FULL, _SLIDING = "full_attention", "sliding_attention"
_WINDOW = Key(
    "window", "decoder.block.mix.mask.reach", "sliding_window", read=lambda c: c.get("sliding_window", 4096),
    back=lambda reach: None if reach is None else reach + 1,
)  # fmt: skip
_QWEN_WINDOW = dataclasses.replace(
    _WINDOW,
    read=_window,
    write=lambda v: {"sliding_window": v, "use_sliding_window": v is not None, "max_window_layers": 0},
)
_BIAS = Key("bias", "decoder.block.mix.bias", "attention_bias", False, {True: True, False: False})
_ONLY: Settings = dict(hidden_act=("silu",), mlp_bias=(False,), attention_dropout=(0,))

NAMES = (
    Name("embed", "model.embed_tokens"),
    Name("decoder.blocks.{}.mix_norm", "model.layers.{}.input_layernorm"),
    Name("decoder.blocks.{}.mix.q", "model.layers.{}.self_attn.q_proj"),
    Name("decoder.blocks.{}.mix.k", "model.layers.{}.self_attn.k_proj"),
    Name("decoder.blocks.{}.mix.v", "model.layers.{}.self_attn.v_proj"),
    Name("decoder.blocks.{}.mix.out", "model.layers.{}.self_attn.o_proj"),
    Name("decoder.blocks.{}.mix.q_norm", "model.layers.{}.self_attn.q_norm"),
    Name("decoder.blocks.{}.mix.k_norm", "model.layers.{}.self_attn.k_norm"),
    Name("decoder.blocks.{}.feed_norm", "model.layers.{}.post_attention_layernorm"),
    Name("decoder.blocks.{}.feed.gate", "model.layers.{}.mlp.gate_proj"),
    Name("decoder.blocks.{}.feed.up", "model.layers.{}.mlp.up_proj"),
    Name("decoder.blocks.{}.feed.down", "model.layers.{}.mlp.down_proj"),
    Name("decoder.norm", "model.norm"),
    Name("head", "lm_head"),
    Tied("lm_head.weight", of="model.embed_tokens.weight"),
    Drop("model.layers.{}.self_attn.rotary_emb.inv_freq"),
)

FORMS = (
    Form(
        "llama",
        spec,
        keys=_keys(
            1e-6, 2048, 32000, _HEAD_WIDTH, _BIAS
        ),
        names=NAMES,
        uses={"LlamaForCausalLM": Use("lm")},
        prefix="model.",
        fixed=dict(qk_norm=False),
        only=_ONLY,
    ),
    Form(
        "qwen2",
        spec,
        keys=_keys(1e-6, 32768, 151936, _QWEN_WINDOW),
        names=NAMES,
        uses={"Qwen2ForCausalLM": Use("lm")},
        prefix="model.",
        fixed=dict(qk_norm=False, bias="qkv"),
        only=_ONLY,
    ),
    Form(
        "qwen3",
        spec,
        keys=_keys(
            1e-6, 32768, 151936, dataclasses.replace(_HEAD_WIDTH, read=lambda c: c.get("head_dim", 128)),
            _BIAS, _QWEN_WINDOW,
        ),
        names=NAMES,
        uses={"Qwen3ForCausalLM": Use("lm")},
        prefix="model.",
        fixed=dict(qk_norm=True),
        only=_ONLY,
    ),
    Form(
        "mistral",
        spec,
        keys=_keys(1e-6, 131072, 32000, _HEAD_WIDTH, _WINDOW),
        names=NAMES,
        uses={"MistralForCausalLM": Use("lm")},
        prefix="model.",
        fixed=dict(qk_norm=False, bias=False),
        only=_ONLY,
    ),
)  # fmt: skip
