"""How likely a model finds outputs that are given: every token of them at once, each after those before it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode.ensemble import log_probs
from regard.decode.generate import TOKENS, by_length, pad_rows
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords


@dataclasses.dataclass(frozen=True)
class Told:
    """The log-probability of each token (n,), and where it was looking (n, m) when it was written, if that was asked for."""

    log_probs: Tensor
    weights: Tensor | None = None


def score(
    net: Net,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    bos: int,
    pad: int,
    tokens: int = TOKENS,
) -> list[float]:
    """log P(target | source) of each pair; targets come with their end mark."""
    return [float(each.log_probs.sum()) for each in tell([net], sources, targets, bos=bos, pad=pad, tokens=tokens)]


def tell(
    nets: Sequence[Net],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    bos: int,
    pad: int,
    place: str | None = None,
    tokens: int = TOKENS,
) -> list[Told]:
    """Each token of each target after those before it; several nets average their probabilities.

    `place` names the cross-attention of the first net whose weights are wanted: those of its heads, averaged.
    """
    out: list[Told] = [Told(torch.zeros(0))] * len(sources)
    tape = Tape() if place is None else Tape(place)
    for indices in by_length([max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)], tokens):
        rows, wanted = [sources[i] for i in indices], [targets[i] for i in indices]
        with torch.no_grad():
            streams = [_read(net, rows, wanted, bos, pad, None if i else tape) for i, net in enumerate(nets)]
            weights = None if place is None else tape.kept.pop(place).mean(1)  # (b, n, m)
            for j, (i, target) in enumerate(zip(indices, wanted, strict=True)):  # all logits at once would be large
                want = torch.tensor(target, dtype=torch.long, device=streams[0].device).unsqueeze(1)
                each = [
                    log_probs(net, stream[j, : len(target)]).gather(1, want).squeeze(1)
                    for net, stream in zip(nets, streams, strict=True)
                ]
                mean = each[0] if len(each) == 1 else torch.stack(each).logsumexp(0) - math.log(len(each))
                seen = None if weights is None else weights[j, : len(target), : len(rows[j])].cpu()
                out[i] = Told(mean.to(torch.float64).cpu(), seen)
    return out


def places(net: Net, *, pad: int) -> list[str]:
    """What a net's decoder calls its weights of cross-attention, from the first layer to the last; none if it has none."""
    tape, ids = Tape("*.cross.weights", "*.cross.weights@*"), torch.tensor([[pad]], device=net.device)
    at = Coords.span(1, device=net.device)
    with torch.no_grad():
        net(ids, at, (ids, at), tape)
    return list(tape.kept)


def _read(
    net: Net, rows: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], bos: int, pad: int, tape: Tape | None
) -> Tensor:
    """The stream over all targets, each after the start mark."""
    source = (pad_rows(rows, pad, net.device), Coords.lengths([len(r) for r in rows], net.device))
    given = pad_rows([[bos, *t][: len(t)] for t in targets], pad, net.device)
    return net(given, Coords.lengths([len(t) for t in targets], net.device), source, tape or Tape())  # type: ignore[no-any-return]
