"""Recurrent encoder-decoders written from their papers, one sentence at a time, with loops and no batch."""

from __future__ import annotations

import torch
from torch import Tensor

W = dict[str, Tensor]


def lstm_step(w: W, path: str, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Hochreiter & Schmidhuber 1997, with a forget gate."""
    gates = (
        w[f"{path}.input.weight"] @ x
        + w[f"{path}.input.bias"]
        + w[f"{path}.hidden.weight"] @ h
        + w[f"{path}.hidden.bias"]
    )
    i, f, g, o = gates.chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_step(w: W, path: str, x: Tensor, h: Tensor) -> Tensor:
    """Cho et al. 2014; the reset gate is applied after the product, as in torch."""
    xr, xz, xn = (w[f"{path}.input.weight"] @ x + w[f"{path}.input.bias"]).chunk(3)
    hr, hz, hn = (w[f"{path}.hidden.weight"] @ h + w[f"{path}.hidden.bias"]).chunk(3)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    return (1 - z) * torch.tanh(xn + r * hn) + z * h


def sutskever(w: W, source: Tensor, target: Tensor, *, depth: int, width: int) -> Tensor:
    """Logits (n, v): read the source backwards, keep the states of every layer, write."""
    states = [(torch.zeros(width, dtype=torch.double), torch.zeros(width, dtype=torch.double)) for _ in range(depth)]
    for token in reversed(source.tolist()):
        x = w["embed.weight"][token]
        for layer in range(depth):
            states[layer] = lstm_step(w, f"encoder.blocks.{layer}.mix.forth", x, *states[layer])
            x = states[layer][0]
    out = []
    for token in target.tolist():
        x = w["embed.weight"][token]
        for layer in range(depth):
            states[layer] = lstm_step(w, f"decoder.layers.{layer}.forth", x, *states[layer])
            x = states[layer][0]
        out.append(w["head.weight"] @ x + w["head.bias"])
    return torch.stack(out)


def luong(w: W, source: Tensor, target: Tensor, *, depth: int, width: int, score: str, feeding: bool) -> Tensor:
    """Luong et al. 2015: the score of eq. 8, the attentional vector of eq. 5, input feeding of §3.3."""
    states = [(torch.zeros(width, dtype=torch.double), torch.zeros(width, dtype=torch.double)) for _ in range(depth)]
    memory = torch.zeros(len(source), width, dtype=torch.double)
    for j in reversed(range(len(source))):
        x = w["embed.weight"][source[j]]
        for layer in range(depth):
            states[layer] = lstm_step(w, f"encoder.blocks.{layer}.mix.forth", x, *states[layer])
            x = states[layer][0]
        memory = torch.cat([memory[:j], x.unsqueeze(0), memory[j + 1 :]])
    return _attend(w, target, memory, states, score=score, feeding=feeding)


def additive_both_ways(w: W, source: Tensor, target: Tensor, *, depth: int, width: int) -> Tensor:
    """What is advised: annotations and scores of Bahdanau et al. 2014, in the decoder of Luong et al. 2015.

    The decoder starts from a map of the last states of both directions: tanh of it for h, and as it is for c.
    """
    xs = [w["embed.weight"][token] for token in source.tolist()]
    last: list[Tensor] = []
    for layer in range(depth):
        outs, last = [], []
        for way in ("forth", "back"):
            h, c, each = torch.zeros(width, dtype=torch.double), torch.zeros(width, dtype=torch.double), []
            for x in xs if way == "forth" else reversed(xs):
                h, c = lstm_step(w, f"encoder.blocks.{layer}.mix.{way}", x, h, c)
                each.append(h)
            outs.append(each if way == "forth" else each[::-1])
            last.append(h)
        xs = [torch.cat(pair) for pair in zip(*outs, strict=True)]
    parts = (w["decoder.initial.weight"] @ torch.cat(last) + w["decoder.initial.bias"]).chunk(2 * depth)
    states = [(torch.tanh(parts[2 * layer]), parts[2 * layer + 1]) for layer in range(depth)]
    return _attend(w, target, torch.stack(xs), states, score="additive", feeding=True)


def _attend(
    w: W, target: Tensor, memory: Tensor, states: list[tuple[Tensor, Tensor]], *, score: str, feeding: bool
) -> Tensor:
    """Luong's decoder, from these states of its layers."""
    attended, out = torch.zeros(len(states[0][0]), dtype=torch.double), []
    for token in target.tolist():
        x = w["embed.weight"][token]
        x = torch.cat([x, attended]) if feeding else x
        for layer in range(len(states)):
            states[layer] = lstm_step(w, f"decoder.layers.{layer}.forth", x, *states[layer])
            x = states[layer][0]
        scores = []
        for h in memory:
            if score == "dot":
                scores.append(x @ h)
            elif score == "general":
                scores.append(x @ w["decoder.cross.key.weight"] @ h)
            else:
                inner = (
                    w["decoder.cross.query.weight"] @ x
                    + w["decoder.cross.query.bias"]
                    + w["decoder.cross.key.weight"] @ h
                )
                scores.append((w["decoder.cross.v.weight"] @ torch.tanh(inner)).squeeze())
        context = torch.softmax(torch.stack(scores), 0) @ memory
        attended = torch.tanh(w["decoder.combine.weight"] @ torch.cat([context, x]) + w["decoder.combine.bias"])
        out.append(w["head.weight"] @ attended + w["head.bias"])
    return torch.stack(out)


def cho(w: W, source: Tensor, target: Tensor, *, width: int) -> Tensor:
    """Cho et al. 2014: the last state of the encoder is read at every token, and by the output."""
    h = torch.zeros(width, dtype=torch.double)
    for token in source.tolist():
        h = gru_step(w, "encoder.blocks.0.mix.forth", w["embed.weight"][token], h)
    summary, out = h, []
    for token in target.tolist():
        x = w["embed.weight"][token]
        h = gru_step(w, "decoder.layers.0.forth", torch.cat([x, summary]), h)
        out.append(w["head.weight"] @ torch.cat([h, summary, x]) + w["head.bias"])
    return torch.stack(out)


def bahdanau(w: W, source: Tensor, target: Tensor, *, width: int, maxout: bool) -> Tensor:
    """Bahdanau et al. 2014: annotations of both directions, e_ij = v·tanh(W s_{i−1} + U h_j), and a maxout layer."""
    embedded = [w["embed.weight"][token] for token in source.tolist()]
    forth, back, h = [], [], torch.zeros(width, dtype=torch.double)
    for x in embedded:
        h = gru_step(w, "encoder.blocks.0.mix.forth", x, h)
        forth.append(h)
    h = torch.zeros(width, dtype=torch.double)
    for x in reversed(embedded):
        h = gru_step(w, "encoder.blocks.0.mix.back", x, h)
        back.insert(0, h)
    memory = torch.stack([torch.cat(pair) for pair in zip(forth, back, strict=True)])
    s = torch.tanh(w["decoder.initial.weight"] @ torch.cat([forth[-1], back[0]]) + w["decoder.initial.bias"])
    out = []
    for token in target.tolist():
        x = w["embed.weight"][token]
        scores = []
        for j in range(len(memory)):
            inner = w["decoder.cross.query.weight"] @ s + w["decoder.cross.query.bias"]
            inner = inner + w["decoder.cross.key.weight"] @ memory[j]
            scores.append((w["decoder.cross.v.weight"] @ torch.tanh(inner)).squeeze())
        context = torch.softmax(torch.stack(scores), 0) @ memory
        s = gru_step(w, "decoder.layers.0.forth", torch.cat([x, context]), s)
        y = torch.cat([s, context, x])
        if maxout:
            pairs = w["decoder.maxout.weight"] @ y + w["decoder.maxout.bias"]
            y = torch.stack([torch.maximum(pairs[2 * k], pairs[2 * k + 1]) for k in range(len(pairs) // 2)])
        out.append(w["head.weight"] @ y + w["head.bias"])
    return torch.stack(out)
