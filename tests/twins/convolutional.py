"""ConvS2S and ByteNet written from their papers, one sentence at a time, with loops over tokens and no batch."""

from __future__ import annotations

import torch
from torch import Tensor

W = dict[str, Tensor]
HALF = 0.5**0.5


def normed(w: W, path: str, x: Tensor) -> Tensor:
    """A map with weight normalization: rows g·v/‖v‖."""
    v = w[f"{path}.weight"]
    rows = [g * row / row.square().sum().sqrt() for g, row in zip(w[f"{path}.gain"], v, strict=True)]
    return torch.stack(rows) @ x + w[f"{path}.bias"]


def window(xs: list[Tensor], t: int, offsets: list[int]) -> Tensor:
    """The tokens around t, zeros beyond the ends."""
    zero = torch.zeros_like(xs[0])
    return torch.cat([xs[t + o] if 0 <= t + o < len(xs) else zero for o in offsets])


def gated_layer(w: W, path: str, xs: list[Tensor], offsets: list[int]) -> list[Tensor]:
    out = []
    for t in range(len(xs)):
        a, b = normed(w, f"{path}.conv.linear", window(xs, t, offsets)).chunk(2)
        out.append(a * torch.sigmoid(b))
    return out


def shortcut(w: W, path: str, x: Tensor) -> Tensor:
    return normed(w, f"{path}.shortcut", x) if f"{path}.shortcut.gain" in w else x


def convs2s(w: W, source: Tensor, target: Tensor, *, kernels: tuple[int, ...]) -> Tensor:
    """Gehring et al. 2017, sections 3.1 to 3.4; z receives its gradient divided by the number of decoder layers."""
    tables = w["embed.weight"], w["embed.position.weight"]
    e = [tables[0][token] + tables[1][j] for j, token in enumerate(source.tolist())]
    g = [tables[0][token] + tables[1][i] for i, token in enumerate(target.tolist())]
    xs = [normed(w, "encoder.enter", x) for x in e]
    for layer, k in enumerate(kernels):
        path = f"encoder.blocks.{layer}"
        hs = gated_layer(w, path, xs, list(range(-((k - 1) // 2), k - (k - 1) // 2)))
        xs = [(h + shortcut(w, path, x)) * HALF for h, x in zip(hs, xs, strict=True)]
    z = [normed(w, "encoder.leave", x) for x in xs]
    z = [x.detach() + (x - x.detach()) / len(kernels) for x in z]
    values = [(x + y) * HALF for x, y in zip(z, e, strict=True)]
    xs = [normed(w, "decoder.enter", x) for x in g]
    for layer, k in enumerate(kernels):
        path, new = f"decoder.blocks.{layer}", []
        for i, h in enumerate(gated_layer(w, path, xs, list(range(1 - k, 1)))):
            d = (normed(w, f"{path}.query", h) + g[i]) * HALF
            a = torch.softmax(torch.stack([d @ key for key in z]), 0)
            m = len(z)
            c = sum(share * value for share, value in zip(a, values, strict=True)) * m * (1 / m) ** 0.5
            h = (normed(w, f"{path}.out", c) + h) * HALF
            new.append((h + shortcut(w, path, xs[i])) * HALF)
        xs = new
    return torch.stack([w["head.weight"] @ normed(w, "decoder.leave", x) + w["head.bias"] for x in xs])


def norm(w: W, path: str, x: Tensor) -> Tensor:
    centered = x - x.mean()
    return centered / (centered.square().mean() + 1e-5).sqrt() * w[f"{path}.weight"] + w[f"{path}.bias"]


def affine(w: W, path: str, x: Tensor) -> Tensor:
    return w[f"{path}.weight"] @ x + w[f"{path}.bias"]


def bytenet_block(w: W, path: str, xs: list[Tensor], offsets: list[int], unit: str) -> list[Tensor]:
    """Kalchbrenner et al. 2016, figure 3."""
    hs = [affine(w, f"{path}.down", norm(w, f"{path}.down_norm", x).relu()) for x in xs]
    if unit == "relu":
        hs = [norm(w, f"{path}.conv_norm", h).relu() for h in hs]
        hs = [affine(w, f"{path}.conv.linear", window(hs, t, offsets)) for t in range(len(hs))]
    else:
        new = []
        for t, h in enumerate(hs):
            parts = affine(w, f"{path}.conv.linear", window(hs, t, offsets)).chunk(4)
            g1, g2, g3, u = (norm(w, f"{path}.gate_norms.{i}", part) for i, part in enumerate(parts))
            u = torch.tanh(u)
            new.append(torch.sigmoid(g1) * torch.tanh(torch.sigmoid(g2) * h + torch.sigmoid(g3) * u))
        hs = new
    return [x + affine(w, f"{path}.up", norm(w, f"{path}.up_norm", h).relu()) for x, h in zip(xs, hs, strict=True)]


def bytenet(w: W, source: Tensor, target: Tensor, *, dilations: tuple[int, ...], kernel: int, unit: str) -> Tensor:
    """Encoder and decoder; past the end of the source the decoder reads its tokens alone."""
    xs = [w["embed.weight"][token] for token in source.tolist()]
    for layer, dilation in enumerate(dilations):
        offsets = [(i - (kernel - 1) // 2) * dilation for i in range(kernel)]
        xs = bytenet_block(w, f"encoder.blocks.{layer}", xs, offsets, unit)
    ys = [w["embed.weight"][token] for token in target.tolist()]
    ys = [y + xs[t] if t < len(xs) else y for t, y in enumerate(ys)]
    for layer, dilation in enumerate(dilations):
        offsets = [(i - kernel + 1) * dilation for i in range(kernel)]
        ys = bytenet_block(w, f"decoder.blocks.{layer}", ys, offsets, unit)
    return torch.stack([affine(w, "head", norm(w, "decoder.norm", y).relu()) for y in ys])
