"""Log-probabilities of given outputs, in one pass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode.decode_request import SpecialTokens
from regard.decode.ensemble import compute_log_probs
from regard.decode.generation import BATCH_TOKENS, batch_by_length, pad_rows
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.stopping import rest


@dataclasses.dataclass(frozen=True)
class TokenScores:
    """The log-probability of each token (n,), and its attention weights over the source (n, m), if requested."""

    log_probs: Tensor
    weights: Tensor | None = None


def score(
    net: Net,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    special: SpecialTokens,
    *,
    tokens: int = BATCH_TOKENS,
) -> list[float]:
    """log P(target | source) of each pair; targets include their end mark."""
    return [float(each.log_probs.sum()) for each in score_tokens([net], sources, targets, special, tokens=tokens)]


def score_tokens(
    nets: Sequence[Net],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    special: SpecialTokens,
    *,
    place: str | None = None,
    tokens: int = BATCH_TOKENS,
) -> list[TokenScores]:
    """Score each token of each target given those before it; several nets average their probabilities.

    `place` names a cross-attention of the first net whose weights, averaged over heads, are returned too.
    """
    out: list[TokenScores] = [TokenScores(torch.zeros(0))] * len(sources)
    tape = Tape(*([] if place is None else [place]), outer=nets[0].tape)
    for indices in batch_by_length([max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)], tokens):
        rest()
        rows, wanted = [sources[i] for i in indices], [targets[i] for i in indices]
        with torch.no_grad():
            streams = [_read(net, rows, wanted, special, None if i else tape) for i, net in enumerate(nets)]
            weights = None if place is None else tape.kept.pop(place).mean(1)  # (b, n, m)
            for j, (i, target) in enumerate(zip(indices, wanted, strict=True)):  # all logits at once would be large
                want = torch.tensor(target, dtype=torch.long, device=streams[0].device).unsqueeze(1)
                each = [
                    compute_log_probs(net, stream[j, : len(target)]).gather(1, want).squeeze(1)
                    for net, stream in zip(nets, streams, strict=True)
                ]
                mean = each[0] if len(each) == 1 else torch.stack(each).logsumexp(0) - math.log(len(each))
                seen = None if weights is None else weights[j, : len(target), : len(rows[j])].cpu()
                out[i] = TokenScores(mean.to(torch.float64).cpu(), seen)
    return out


def find_cross_attention(net: Net, special: SpecialTokens) -> list[str]:
    """Tape names of the decoder's cross-attention weights, first layer to last; empty without cross-attention."""
    tape, ids = Tape("*.cross.weights", "*.cross.weights@*"), torch.tensor([[special.pad]], device=net.device)
    at = Coords.span(1, device=net.device)
    with torch.no_grad():
        net(ids, at, (ids, at), tape)
    return list(tape.kept)


def _read(
    net: Net, rows: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens, tape: Tape | None
) -> Tensor:
    """The decoder stream over all targets, each after the start mark."""
    source = (pad_rows(rows, special.pad, net.device), Coords.lengths([len(r) for r in rows], net.device))
    given = pad_rows([[special.bos, *t][: len(t)] for t in targets], special.pad, net.device)
    return net(given, Coords.lengths([len(t) for t in targets], net.device), source, tape or Tape())  # type: ignore[no-any-return]
