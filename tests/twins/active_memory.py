"""The Neural GPU and its extension written from their papers: one text at a time, loops over columns, rows and steps."""

from __future__ import annotations

import torch
from torch import Tensor

W = dict[str, Tensor]
Cells = list[list[Tensor]]
"""The vector in each column and row."""


def convolve(u: Tensor, bias: Tensor, cells: Cells, column: int, row: int) -> Tensor:
    """U∗s + B at one cell: the sum over the nine cells around it, of which those outside are zero."""
    out = bias
    for i in range(3):
        for j in range(3):
            c, r = column + i - 1, row + j - 1
            if 0 <= c < len(cells) and 0 <= r < len(cells[0]):
                out = out + u[:, :, i, j] @ cells[c][r]
    return out


def cutoff(x: Tensor) -> Tensor:
    """σ'(x) = max(0, min(1, 1.2σ(x) − 0.1))."""
    return torch.maximum(torch.zeros_like(x), torch.minimum(torch.ones_like(x), 1.2 * torch.sigmoid(x) - 0.1))


def each(cells: Cells, make: object) -> Cells:
    return [[make(c, r) for r in range(len(cells[0]))] for c in range(len(cells))]  # type: ignore[operator]


def cgru(w: W, path: str, s: Cells, p: Cells | None, copy: int | None) -> Cells:
    """CGRU(s), or CGRU^d(s, p) with an output tape."""

    def weight(name: str) -> Tensor:
        copies = w[f"{path}.{name}"]
        return sum(copies) / len(copies) if copy is None else copies[copy]  # type: ignore[return-value]

    def beside(a: Cells) -> Cells:
        return (
            a
            if p is None
            else [[torch.cat([x, y]) for x, y in zip(*both, strict=True)] for both in zip(a, p, strict=True)]
        )

    read = beside(s)
    gates = each(s, lambda c, r: cutoff(convolve(weight("gates.weight"), weight("gates.bias"), read, c, r)).chunk(2))
    reset = beside(each(s, lambda c, r: gates[c][r][1] * s[c][r]))
    new = each(s, lambda c, r: torch.tanh(convolve(weight("candidate.weight"), weight("candidate.bias"), reset, c, r)))
    return each(s, lambda c, r: gates[c][r][0] * s[c][r] + (1 - gates[c][r][0]) * new[c][r])


def read(w: W, source: Tensor, rows: int, depth: int, copies: int | None) -> Cells:
    """n steps of CGRUs on n symbols; with `copies`, step i uses copy i mod R, otherwise all use their mean."""
    zero = torch.zeros_like(w["embed.weight"][0])
    s = [[w["embed.weight"][symbol], *[zero] * (rows - 1)] for symbol in source.tolist()]
    for i in range(len(source)):
        for layer in range(depth):
            s = cgru(w, f"encoder.cells.{layer}", s, None, None if copies is None else i % copies)
    return s


def neural_gpu(w: W, source: Tensor, target: Tensor, *, rows: int, depth: int, copies: int | None = None) -> Tensor:
    """Kaiser & Sutskever 2015, section 2: l_k = O s_fin[0, k]; past the last column there is nothing."""
    s = read(w, source, rows, depth, copies)
    zero = torch.zeros_like(s[0][0])
    return torch.stack([w["head.weight"] @ (s[k][0] if k < len(s) else zero) for k in range(len(target))])


def extended_neural_gpu(w: W, source: Tensor, target: Tensor, *, rows: int, depth: int) -> Tensor:
    """Kaiser & Bengio 2016, section 3; `target` are the symbols before each one, the first of which is the start mark."""
    d = read(w, source, rows, depth, None)
    zero = torch.zeros_like(d[0][0])
    p = [[zero] * rows for _ in d]
    out = []
    for k in range(len(target)):
        if k == len(d):
            d, p = [*d, [zero] * rows], [*p, [zero] * rows]
        if k > 0:
            p = [*p[: k - 1], [w["embed.weight"][target[k]]] * rows, *p[k:]]
        for layer in range(depth):
            d = cgru(w, f"decoder.cells.{layer}", d, p, None)
        out.append(w["head.weight"] @ d[k][0])
    return torch.stack(out)
