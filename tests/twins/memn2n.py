"""The End-to-End Memory Network written from its paper, one story at a time, with loops and no batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

W = dict[str, Tensor]


def sentence(w: W, words: Sequence[int], *, table: int, width: int, encoding: str) -> Tensor:
    """§4.1: the sum of l_j · A x_j over the words j = 1 … J."""
    vectors = w["embed.weight"][:, table * width : (table + 1) * width]
    words = [word for word in words if word]
    out = torch.zeros(width, dtype=torch.double)
    for j, word in enumerate(words, 1):
        weights = []
        for k in range(1, width + 1):
            if encoding == "bag":
                weights.append(1.0)
            elif encoding == "position":
                weights.append((1 - j / len(words)) - (k / width) * (1 - 2 * j / len(words)))
            else:
                from_middle = (j - (len(words) + 1) / 2) * (k - (width + 1) / 2)
                weights.append(1 + 4 * from_middle / (width * len(words)))
        out = out + torch.tensor(weights, dtype=torch.double) * vectors[word]
    return out


def memn2n(
    w: W,
    rows: Sequence[Sequence[int]],
    *,
    width: int,
    hops: int,
    tying: str,
    encoding: str,
    linear: bool = False,
    slots: int = 0,
) -> Tensor:
    """Logits (v,) of the answer; rows are the question and the story from the newest sentence backwards.

    The story fills a memory of at least `slots` sentences; the rest of it holds zeros.
    """

    def story(table: int) -> Tensor:
        ago = w["embed.ago"][:, table * width : (table + 1) * width]
        found = [
            sentence(w, row, table=table, width=width, encoding=encoding) + ago[i] for i, row in enumerate(rows) if i
        ]
        found += [torch.zeros(width, dtype=torch.double)] * (slots - len(found))
        return torch.stack(found) if found else torch.zeros(0, width, dtype=torch.double)

    u = sentence(w, rows[0], table=0 if tying == "adjacent" else 1, width=width, encoding=encoding)
    for hop in range(hops):
        m, c = (story(hop), story(hop + 1)) if tying == "adjacent" else (story(0), story(2))
        p = m @ u if linear else torch.softmax(m @ u, 0)
        u = (u if tying == "adjacent" else w["encoder.recur.weight"] @ u) + p @ c
    answer = w["embed.weight"][:, -width:] if tying == "adjacent" else w["head.weight"]
    return answer @ u
