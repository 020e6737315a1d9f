"""A document of 16k tokens is encoded, trained on and decoded by a linear mixer, in a process that stays below 4 GB."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from regard.machine import peak_memory
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MixerSpec
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers import Local, Performer
from regard.nn.positions.position import Rotary

pytestmark = pytest.mark.numeric

N, NEW, WIDTH = 16384, 8, 128
MIXERS: dict[str, MixerSpec] = {
    "performer": Performer(4, position=Rotary()),
    "local": Local(4, reach=128, position=Rotary()),
}


def model(mixer: MixerSpec, causal: bool) -> ModelSpec:
    stack = Stack(Block(mix=mixer, feed=FeedForward(4 * WIDTH)), depth=1, causal=causal)
    side = {"decoder": stack} if causal else {"encoder": stack}
    return ModelSpec(WIDTH, N + NEW, Tokens(256), **side)  # type: ignore[arg-type]


def run(mixer: MixerSpec) -> dict[str, float]:
    """Encode, train one step, read it and write on; the loss before and after, and the most bytes this took."""
    torch.manual_seed(0)
    text, at = torch.randint(256, (1, N)), Coords.span(N)
    with torch.no_grad():
        encoded = model(mixer, False).build(0).eval().encode(text, at).keys
    net = model(mixer, True).build(0)
    optimiser, losses = torch.optim.SGD(net.parameters(), lr=0.5), []
    for _ in range(2):
        loss = net.loss(net(text, at), text.roll(-1, 1))[0] / N
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        stream, state = net.decode(text, at, state=net.start(1, N + NEW))
        for i in range(NEW):
            token = net.logits(stream[:, -1:]).argmax(-1)
            stream, state = net.decode(token, Coords.span(1, N + i), state=state)
    finite = bool(encoded.isfinite().all() and stream.isfinite().all())
    return {"finite": finite, "before": losses[0], "after": losses[1], "bytes": peak_memory()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXERS)
def test_sixteen_thousand_tokens(name: str) -> None:
    said = subprocess.run([sys.executable, "-m", __name__, name], capture_output=True, text=True, check=True).stdout
    found = json.loads(said)
    assert found["finite"]
    assert found["after"] < found["before"]
    assert found["bytes"] < 4 << 30


if __name__ == "__main__":
    print(json.dumps(run(MIXERS[sys.argv[1]])))
