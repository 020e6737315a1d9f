"""What nanoGPT's CPU configuration reaches on the whole validation split, trained its way: `python -m bench.nano`.

Its published 1.88 is the mean over twenty random batches. Here its model and loop, re-implemented, are judged on every token of
the split, as `regard train gpt` is; and five times by twenty batches, to see how far such a mean may be from that.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.entry import Mode, find_data, parse
from bench.lm import CONTEXT, LAYERS, ROWS, NanoGPT
from bench.results import write

STEPS, WARM, PEAK, FLOOR = 2000, 100, 1e-3, 1e-4
SEEDS = (1337, 1, 2)
"""The first is its own."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("text", type=Path, nargs="?", help="by default tinyshakespeare")
    said = parse(arguments, seeds=SEEDS)
    text = (said.text or find_data("tinyshakespeare", "input.txt")).read_text(encoding="utf-8")
    if said.smoke:
        text = text[:4000]
    letters = {letter: i for i, letter in enumerate(sorted(set(text)))}
    ids = torch.tensor([letters[letter] for letter in text])
    train, valid = ids[: int(0.9 * len(ids))], ids[int(0.9 * len(ids)) :]
    whole: list[float] = []
    estimates: list[float] = []
    for seed in said.seed:
        torch.manual_seed(seed)
        net = trained(train)
        whole.append(round(judged(net, valid), 4))
        estimates += [round(statistics.fmean(loss(net, *drawn(valid)).item() for _ in range(20)), 3) for _ in range(5)]
        print(seed, whole[-1], estimates[-5:], flush=True)
    figures = {
        "loss on the whole split, mean": round(statistics.fmean(whole), 4),
        "each seed": whole,
        "lowest mean of twenty batches": min(estimates),
        "highest": max(estimates),
    }
    title = "nanoGPT's CPU configuration, its model and loop re-implemented, tinyshakespeare"
    print(write("gpt-nano", title=title, figures=figures))


def trained(text: Tensor) -> NanoGPT:
    net = NanoGPT()
    for name, weight in net.named_parameters():
        if weight.dim() > 1:
            feeds_stream = ".1.out." in name or name.endswith(".3.2.weight")
            nn.init.normal_(weight, std=0.02 / math.sqrt(2 * LAYERS) if feeds_stream else 0.02)
    matrices, vectors = ([p for p in net.parameters() if (p.dim() > 1) == large] for large in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.99))
    for step in range(2 if Mode.smoke else STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss(net, *drawn(text)).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return net.eval()


def rate(step: int) -> float:
    if step < WARM:
        return PEAK * (step + 1) / (WARM + 1)
    return FLOOR + 0.5 * (1 + math.cos(math.pi * (step - WARM) / (STEPS - WARM))) * (PEAK - FLOOR)


def drawn(text: Tensor) -> tuple[Tensor, Tensor]:
    """Random windows, and what follows each token."""
    places = torch.randint(len(text) - CONTEXT, (ROWS, 1)) + torch.arange(CONTEXT)
    return text[places], text[places + 1]


def loss(net: NanoGPT, given: Tensor, wanted: Tensor) -> Tensor:
    return F.cross_entropy(net(given).flatten(0, 1), wanted.flatten())


@torch.no_grad()
def judged(net: NanoGPT, text: Tensor) -> float:
    """A token's mean loss, every token in the windows of one context after another."""
    count = (len(text) - 1) // CONTEXT * CONTEXT
    given, wanted = (torch.split(text[k : count + k].view(-1, CONTEXT), 64) for k in (0, 1))
    return math.fsum(loss(net, *each).item() * each[1].numel() for each in zip(given, wanted, strict=True)) / count


if __name__ == "__main__":
    main()
