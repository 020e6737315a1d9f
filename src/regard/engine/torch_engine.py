"""torch as an engine: every model, every search, ensembles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.decode.decode_request import Hypothesis, Request, SpecialTokens
from regard.decode.generation import generate
from regard.decode.scoring import score_tokens
from regard.decode.torch_batch import TorchBatch
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.stopping import check_stops


class TorchEngine:
    """A net, or several that average their probabilities, as the other engines are used."""

    name = "torch"

    def __init__(self, *nets: Net) -> None:
        self.nets = nets

    @property
    def length(self) -> int:
        return min(net.spec.length for net in self.nets)

    @property
    def room(self) -> int | None:
        return min((net.spec.room for net in self.nets if net.spec.room is not None), default=None)

    def find_refusal(self, request: Request) -> str | None:
        return None

    def encode(self, source: Sequence[int]) -> NDArray[np.float32]:
        check_stops()
        net = self.nets[0]
        ids = torch.tensor([[*source]], device=net.device)
        with torch.no_grad():
            keys = net.encode(ids, Coords.span(len(source), device=net.device)).keys[0]
        out: NDArray[np.float32] = keys.float().cpu().numpy()
        return out

    def decode(self, request: Request) -> list[list[Hypothesis]]:
        return generate(self.nets, request)

    def open_batch(self) -> TorchBatch:
        return TorchBatch(self.nets)

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens
    ) -> list[list[float]]:
        return [each.log_probs.tolist() for each in score_tokens(self.nets, sources, targets, special)]
