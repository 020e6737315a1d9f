"""The Transformer of "Attention is all you need" on one page, section by section; the oracle of `families/transformer.py`.

Plain tensors in a dictionary, named as the model names them; nothing cached, nothing fused, one pair of sentences at a time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def layer_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    """§3.2.1, equation 1: softmax(QKᵀ/√d_k)V; in the decoder, what lies ahead is set to −∞ before the softmax."""
    scores = q @ k.T / math.sqrt(k.shape[-1])
    if seen is not None:
        scores = scores.where(seen, -torch.inf)
    return torch.softmax(scores, -1) @ v


def multi_head(w: Weights, name: str, x: Tensor, memory: Tensor, heads: int, seen: Tensor | None = None) -> Tensor:
    """§3.2.2: Concat(head_1, …, head_h) W^O; queries from x, keys and values from the memory."""
    q, k, v = linear(w, f"{name}.q", x), linear(w, f"{name}.k", memory), linear(w, f"{name}.v", memory)
    parts = [slice(i * q.shape[1] // heads, (i + 1) * q.shape[1] // heads) for i in range(heads)]
    return linear(w, f"{name}.out", torch.cat([attention(q[:, p], k[:, p], v[:, p], seen) for p in parts], -1))


def feed_forward(w: Weights, name: str, x: Tensor) -> Tensor:
    """§3.3, equation 2: max(0, xW₁ + b₁)W₂ + b₂."""
    return linear(w, f"{name}.down", linear(w, f"{name}.up", x).clamp(min=0))


def embedding(w: Weights, ids: Tensor) -> Tensor:
    """§3.4 and §3.5: the shared table times √d_model, plus sines and cosines of the position."""
    d = w["embed.weight"].shape[1]
    waves = torch.empty(len(ids), d, dtype=w["embed.weight"].dtype)
    for pos in range(len(ids)):
        for i in range(0, d, 2):
            waves[pos, i] = math.sin(pos / 10000 ** (i / d))
            waves[pos, i + 1] = math.cos(pos / 10000 ** (i / d))
    return w["embed.weight"][ids] * math.sqrt(d) + waves


def encode(w: Weights, source: Tensor, *, depth: int, heads: int) -> Tensor:
    """§3.1: LayerNorm(x + Sublayer(x)), twice a layer."""
    x = embedding(w, source)
    for i in range(depth):
        block = f"encoder.blocks.{i}"
        x = layer_norm(w, f"{block}.mix_norm", x + multi_head(w, f"{block}.mix", x, x, heads))
        x = layer_norm(w, f"{block}.feed_norm", x + feed_forward(w, f"{block}.feed", x))
    return x


def transformer(w: Weights, source: Tensor, target: Tensor, *, depth: int, heads: int) -> Tensor:
    """Logits (n, v) of the next token after each of the target's (n,), given the source's (m,)."""
    memory = encode(w, source, depth=depth, heads=heads)
    x = embedding(w, target)
    past = torch.arange(len(target))[:, None] >= torch.arange(len(target))[None, :]
    for i in range(depth):
        block = f"decoder.blocks.{i}"
        x = layer_norm(w, f"{block}.mix_norm", x + multi_head(w, f"{block}.mix", x, x, heads, past))
        x = layer_norm(w, f"{block}.cross_norm", x + multi_head(w, f"{block}.cross", x, memory, heads))
        x = layer_norm(w, f"{block}.feed_norm", x + feed_forward(w, f"{block}.feed", x))
    return x @ w["embed.weight"].T
