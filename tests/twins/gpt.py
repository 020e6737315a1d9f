"""GPT on one page: the whole model as a reader would write it on a blackboard, and the oracle of `families/gpt.py`.

Plain tensors in a dictionary, named as the model names them; nothing cached, nothing fused, one sentence at a time.
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


def gelu(x: Tensor) -> Tensor:
    """The tanh approximation that GPT was trained with."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(w: Weights, name: str, x: Tensor, heads: int) -> Tensor:
    """Each token looks at itself and the tokens before it, once a head."""
    n, d = x.shape
    e = d // heads
    q, k, v = (linear(w, f"{name}.{part}", x) for part in ("q", "k", "v"))
    seen = torch.arange(n)[:, None] >= torch.arange(n)[None, :]
    outs = []
    for h in range(heads):
        part = slice(h * e, (h + 1) * e)
        scores = q[:, part] @ k[:, part].T / math.sqrt(e)
        weights = torch.softmax(scores.where(seen, -torch.inf), -1)
        outs.append(weights @ v[:, part])
    return linear(w, f"{name}.out", torch.cat(outs, -1))


def feed_forward(w: Weights, name: str, x: Tensor) -> Tensor:
    return linear(w, f"{name}.down", gelu(linear(w, f"{name}.up", x)))


def gpt(w: Weights, ids: Tensor, *, depth: int, heads: int) -> Tensor:
    """Logits (n, v) of the next token after each of the ids (n,)."""
    x = w["embed.weight"][ids] + w["embed.position.weight"][: len(ids)]
    for i in range(depth):
        block = f"decoder.blocks.{i}"
        x = x + attention(w, f"{block}.mix", layer_norm(w, f"{block}.mix_norm", x), heads)
        x = x + feed_forward(w, f"{block}.feed", layer_norm(w, f"{block}.feed_norm", x))
    return layer_norm(w, "decoder.norm", x) @ w["embed.weight"].T
