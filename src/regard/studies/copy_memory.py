"""The copy-memory task: recall letters after a delay.

Hochreiter & Schmidhuber 1997, Arjovsky et al. 2016. Layers read some letters, then nothing for a while, and then have to write
the letters. Where gradients vanish with the distance, a longer delay is not learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.generators import LETTERS, CopyMemory
from regard.nn.blocks.body import BodySpec
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.positions.position import Sinusoidal
from regard.spec import Plain
from regard.studies.gradient_flow import build_layers, fill_unset
from regard.studies.jobs import Outcome

ROWS, RATE, CLIP = 32, 3e-3, 1.0
SYMBOLS, ITEMS = 8, 5


class Recaller(nn.Module):
    """Embedding with sinusoidal positions, the layers in question, and a score for every letter."""

    def __init__(self, layers: BodySpec, width: int, length: int, symbols: int) -> None:
        super().__init__()
        site = Site("decoder", width, length)
        self.embed, self.position = nn.Embedding(symbols + 2, width), Sinusoidal().build(site)
        self.body = layers.build(site)
        fill_unset(self.body, width)
        self.head = nn.Linear(width, symbols)

    def forward(self, ids: Tensor) -> Tensor:
        at = Coords.span(ids.shape[1])
        y, _ = self.body(self.position.embed(self.embed(ids), at), Context(at))
        out: Tensor = self.head(y)
        return out


def encode(texts: Sequence[str], items: int) -> Tensor:
    """Letters of the source as numbers, blanks and the sign to recall after them, and a blank for each letter to write."""
    known = {letter: i for i, letter in enumerate(LETTERS[:SYMBOLS])} | {
        CopyMemory.BLANK: SYMBOLS,
        CopyMemory.GO: SYMBOLS + 1,
    }
    return torch.tensor([[known[letter] for letter in text] + [SYMBOLS] * (items - 1) for text in texts])


def run_job(settings: Plain, work: Path) -> Outcome:
    """Train on the task with a delay; returns the share of letters that are recalled in new examples."""
    delay, steps = settings["delay"], settings["steps"]
    made = CopyMemory(symbols=SYMBOLS, items=ITEMS, delay=delay, count=steps * ROWS, valid=256, seed=settings["seed"])
    train, valid = made.pairs("train"), made.pairs("valid")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings["seed"])
        net = Recaller(
            build_layers(settings["layers"], settings["width"]), settings["width"], 4 * ITEMS + delay, SYMBOLS
        )
        optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
        for step in range(steps):
            chosen = slice(step * ROWS, (step + 1) * ROWS)
            ids, wanted = encode(train.source[chosen], ITEMS), encode(train.target[chosen], 1)
            loss = F.cross_entropy(net(ids)[:, -ITEMS:].flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimizer.step()
        with torch.no_grad():
            found = net(encode(valid.source, ITEMS))[:, -ITEMS:].argmax(-1)
    share = float((found == encode(valid.target, 1)).float().mean())
    return Outcome({"recalled": share, "summary": f"{share:.0%} recalled"}, {})
