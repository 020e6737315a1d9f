"""Contribution of each input token to a prediction.

gradient_x_input       ∂f/∂x · (x − b) for each embedding x                            (Shrikumar et al. 2017)
integrated_gradients   the gradient, averaged on the way from b to x, · (x − b)        (Sundararajan et al. 2017)
occlusion              how much f falls with b in the place of x                       (Zeiler & Fergus 2014)
attention              the attention of the last layer, averaged over heads
attention_rollout      the attention through all layers and residual connections         (Abnar & Zuidema 2020)

f is log P of one prediction, and b the embedding of padding at the same position: zeros would be no neutral input, since a
norm makes every multiple of an input the same. Scores of an encoder-decoder are given for the tokens of the source and of the
output so far.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from regard.errors import SpecError
from regard.interpret.rollout import rollout
from regard.model.net import Net
from regard.nn.blocks.head import Classes
from regard.nn.core.context import Tape
from regard.tasks.common.forward_pass import ForwardPass

ROWS = 16
"""Changed copies of an example that run together."""


@dataclasses.dataclass(frozen=True)
class Attribution:
    """A score for each token that the model reads, for one prediction. Positive: it makes the prediction likelier."""

    source: Tensor
    """(m,) of the tokens of the source; empty without an encoder-decoder."""
    tokens: Tensor
    """(n,) of the tokens of the stack with the head."""

    @property
    def all(self) -> Tensor:
        return torch.cat([self.source, self.tokens])


def gradient_x_input(net: Net, read: ForwardPass, prediction: int = 0) -> Attribution:
    """The gradient of log P with respect to each embedding, times what distinguishes it from padding."""
    return _along_path(net, read, prediction, [1.0])


def integrated_gradients(net: Net, read: ForwardPass, prediction: int = 0, steps: int = 50) -> Attribution:
    """The average gradient between the embeddings of padding and the real ones, by the midpoint rule, times the difference.

    The scores add up to log P of the prediction minus its log P after padding only, up to the error of the rule.
    """
    return _along_path(net, read, prediction, [(i + 0.5) / steps for i in range(steps)])


def occlusion(net: Net, read: ForwardPass, prediction: int = 0) -> Attribution:
    """Measure how much log P falls when a token is replaced by padding."""
    (found,) = occlude(net, read, [prediction])
    return found


@torch.no_grad()
def occlude(net: Net, read: ForwardPass, predictions: Sequence[int]) -> list[Attribution]:
    """Return the `occlusion` of several predictions, with one pass for each token: a pass gives log P of all predictions."""
    told = read.log_probs(net)
    for prediction in predictions:
        _check_prediction(told, prediction)
    plain = told.double()[0, [*predictions]]  # (p,)
    scores = {}
    for place, (x, base) in embeddings(net, read).items():
        n = x.shape[1]
        falls = []
        for begin in range(0, n, ROWS):
            rows = range(begin, min(begin + ROWS, n))
            keep = torch.ones(len(rows), n, 1, device=x.device, dtype=torch.bool)
            keep[torch.arange(len(rows)), torch.tensor(list(rows))] = False
            tape = Tape(replace={place: partial(use, other=torch.where(keep, x, base))})
            falls.append(plain - read.repeat(len(rows)).log_probs(net, tape).double()[:, [*predictions]])
        scores[place] = torch.cat(falls)  # (n, p)
    return [_by_side({place: each[:, i] for place, each in scores.items()}, read) for i in range(len(predictions))]


def attention(net: Net, read: ForwardPass, prediction: int = 0) -> Attribution:
    """The attention at the position of the prediction in the last layer, averaged over heads."""
    maps = _AttentionMaps.of(net, read)
    mix, cross = maps.of_role("mix"), maps.of_role("cross")
    return maps.attribute(None if not mix else mix[-1].mean(0), None if not cross else cross[-1].mean(0), prediction)


def attention_rollout(net: Net, read: ForwardPass, prediction: int = 0) -> Attribution:
    """The attention through all layers: how much of each token is in the position of the prediction.

    The source of an encoder-decoder is reached through the last layer's cross-attention.
    """
    maps = _AttentionMaps.of(net, read)
    mix, cross, source = maps.of_role("mix"), maps.of_role("cross"), maps.of_role("mix", "encoder")
    across = None if not cross else cross[-1].double().mean(0)
    if across is not None and source and source[0].shape[1] == source[0].shape[2] == across.shape[1]:
        across = across @ rollout(source)
    square = bool(mix) and all(w.shape[1] == w.shape[2] for w in mix)
    return maps.attribute(rollout(mix) if square else None, across, prediction)


@dataclasses.dataclass(frozen=True)
class _AttentionMaps:
    """The attention weights of a model that has some."""

    net: Net
    read: ForwardPass
    weights: dict[str, Tensor]

    @classmethod
    def of(cls, net: Net, read: ForwardPass) -> _AttentionMaps:
        weights, _, _ = read.attention(net)
        if not weights:
            raise SpecError("this model has no attention weights; use another method")
        return cls(net, read, weights)

    def of_role(self, role: str, side: str | None = None) -> list[Tensor]:
        """Weights (h, n, m) of a kind of sublayer, by layer; by default of the stack with the head."""
        side = side or ("decoder" if self.net.spec.decoder else "encoder")
        return [w for name, w in self.weights.items() if name.startswith(f"{side}.") and name.endswith(f".{role}")]

    def attribute(self, mix: Tensor | None, cross: Tensor | None, prediction: int) -> Attribution:
        """The rows of matrices (n, m) that a prediction is made from: that of its position, or all if it pools them."""
        pooled = isinstance(self.net.spec.head, Classes) and self.net.spec.head.pool == "mean"
        place = self.read.places[prediction] if self.read.places else 0

        def row(matrix: Tensor | None, tokens: int) -> Tensor:
            if matrix is None:
                return torch.zeros(tokens, dtype=torch.double)
            own = matrix[:, matrix.shape[1] - tokens :]  # before them may be a memory
            return (own.mean(0) if pooled else own[min(place, len(own) - 1)]).double()

        return Attribution(row(cross, len(self.read.source_tokens)), row(mix, len(self.read.tokens)))


def random(net: Net, read: ForwardPass, prediction: int = 0) -> Attribution:
    """Random scores, the same for the same example: what any explanation should beat."""
    seed = int(read.ids.flatten()[:64].double().abs().sum().item() * 1000) % (1 << 31) + prediction
    draw = torch.Generator().manual_seed(seed)
    return Attribution(torch.rand(len(read.source_tokens), generator=draw).double(),
                       torch.rand(len(read.tokens), generator=draw).double())  # fmt: skip


METHODS: dict[str, Callable[[Net, ForwardPass, int], Attribution]] = {
    "gradient_x_input": gradient_x_input,
    "integrated_gradients": integrated_gradients,
    "occlusion": occlusion,
    "attention": attention,
    "attention_rollout": attention_rollout,
    "random": random,
}


def _along_path(net: Net, read: ForwardPass, prediction: int, points: list[float]) -> Attribution:
    """The mean gradient at these points of the way from padding to the input, all tokens together, times the way."""
    inputs = embeddings(net, read)
    sums = {place: torch.zeros_like(x[0], dtype=torch.double) for place, (x, _) in inputs.items()}
    for begin in range(0, len(points), ROWS):
        scale = torch.tensor(points[begin : begin + ROWS], device=net.device).view(-1, 1, 1)
        scaled = {place: torch.lerp(base, x, scale.to(x)).requires_grad_() for place, (x, base) in inputs.items()}
        tape = Tape(replace={place: partial(use, other=x) for place, x in scaled.items()})
        with torch.enable_grad():
            total = _log_prob(net, read.repeat(len(scale)), prediction, tape).sum()
            grads = torch.autograd.grad(total, list(scaled.values()), materialize_grads=True)
        for place, grad in zip(scaled, grads, strict=True):
            sums[place] += grad.sum(0).double()
    way = {place: (x - base)[0] for place, (x, base) in inputs.items()}
    return _by_side({place: (way[place] * total / len(points)).sum(-1) for place, total in sums.items()}, read)


def use(_: Tensor, other: Tensor) -> Tensor:
    """A replacement that is known beforehand."""
    return other


def _log_prob(net: Net, read: ForwardPass, prediction: int, tape: Tape | None = None) -> Tensor:
    told = read.log_probs(net, tape)
    _check_prediction(told, prediction)
    return told[:, prediction].double()


def _check_prediction(told: Tensor, prediction: int) -> None:
    if not 0 <= prediction < told.shape[1]:
        raise SpecError(f"there are {told.shape[1]} predictions here, counted from 0, got {prediction}")


@torch.no_grad()
def embeddings(net: Net, read: ForwardPass) -> dict[str, tuple[Tensor, Tensor]]:
    """Return what the embeddings leave, by place: of the input, and of padding at the same positions."""
    tapes = [Tape("encoder.embed", "decoder.embed") for _ in range(2)]
    for each, tape in zip((read, read.empty()), tapes, strict=True):
        each.run(net, tape)
    return {place: (x, tapes[1].kept[place]) for place, x in tapes[0].kept.items()}


def _by_side(scores: dict[str, Tensor], read: ForwardPass) -> Attribution:
    found = {place: each.detach().cpu().double() for place, each in scores.items()}
    if read.source is None:
        (own,) = found.values()
        return Attribution(torch.zeros(0, dtype=torch.double), own)
    return Attribution(found["encoder.embed"], found["decoder.embed"])
