"""Models that remember segments, every way of compressing, and texts run through them in segments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers.compress import CompressionSpec, Convolution, MostUsed, Pooling
from regard.nn.mixers.xl_memory import XLState
from regard.nn.positions.position import PositionSpec
from regard.nn.positions.relative import Distance

CLOSE = {"rtol": 0.0, "atol": 1e-10}
DEPTH = 3
COMPRESSIONS: list[CompressionSpec] = [
    Pooling(3, 2),
    Pooling(3, 2, "max"),
    Convolution(3, 2),
    Convolution(3, 2, loss="autoencode"),
    Convolution(3, 4, dilated=True),
    MostUsed(3, 2),
]
compressions = pytest.mark.parametrize("compress", COMPRESSIONS, ids=repr)
LEARNED = [s for s in COMPRESSIONS if isinstance(s, Convolution)]


def model(mix: Any, position: PositionSpec | None = None, **stack: Any) -> ModelSpec:
    block = Block(mix=mix, feed=FeedForward(10))
    body = Stack(block, depth=DEPTH, causal=True, position=position or Distance(), **stack)
    return ModelSpec(8, 64, Tokens(11), decoder=body)


def built(spec: ModelSpec, like: Net | None = None) -> Net:
    """In double precision, with every parameter far from its start; `like` lends its weights."""
    net = spec.build(0).double().eval()
    torch.manual_seed(1)
    for name, parameter in net.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm.weight" in name else 0.0, std=0.4)
    if like is not None:
        net.load_state_dict(like.state_dict())
    return net


def ids(rows: int, n: int, seed: int = 0) -> Tensor:
    return torch.randint(11, (rows, n), generator=torch.Generator().manual_seed(seed))


def segments(
    net: Net, tokens: Tensor, size: int, at: Coords | None = None, tape: Tape | None = None
) -> tuple[Tensor, Any]:
    """Run a text in segments that hand on their state."""
    state, out, at = net.start(tokens.shape[0], 0), [], at or Coords.span(tokens.shape[1])
    for a in range(0, tokens.shape[1], size):
        y, state = net.decode(tokens[:, a : a + size], at.part(slice(a, a + size)), state=state, tape=tape)  # type: ignore[assignment]
        out.append(y)
    return torch.cat(out, 1), state


def xl_states(state: Any) -> list[XLState]:
    return [block["mix"] for block in state.blocks]
