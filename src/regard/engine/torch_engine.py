"""torch as an engine: every model, every search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.decode.decode_request import Constraints, Draw, Hypothesis, SpecialTokens
from regard.decode.generation import generate_on_torch
from regard.decode.scoring import score_tokens
from regard.decode.search import Search
from regard.decode.torch_batch import TorchBatch
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.stopping import check_stops


class TorchEngine:
    """A net, as the other engines are used."""

    name = "torch"

    def __init__(self, net: Net) -> None:
        self.net = net

    @property
    def length(self) -> int:
        return self.net.spec.length

    @property
    def room(self) -> int | None:
        return self.net.spec.room

    def is_current(self) -> bool:
        return True

    def find_refusal(self, search: Search, constraints: Constraints) -> str | None:
        return None

    def encode(self, source: Sequence[int]) -> NDArray[np.float32]:
        check_stops()
        ids = torch.tensor([[*source]], device=self.net.device)
        with torch.no_grad():
            keys = self.net.encode(ids, Coords.span(len(source), device=self.net.device)).keys[0]
        out: NDArray[np.float32] = keys.float().cpu().numpy()
        return out

    def decode(
        self,
        sources: Sequence[Sequence[int]],
        search: Search,
        special: SpecialTokens,
        *,
        constraints: Constraints = Constraints(),
        draw: Draw = Draw(),
    ) -> list[list[Hypothesis]]:
        return generate_on_torch([self.net], sources, search, special, constraints=constraints, draw=draw)

    def open_batch(self) -> TorchBatch:
        return TorchBatch([self.net])

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens
    ) -> list[list[float]]:
        return [each.log_probs.tolist() for each in score_tokens([self.net], sources, targets, special)]
