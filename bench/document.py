"""A document of 16k tokens in under 4 GB: encoded, learned from and gone on with by a linear mixer, a process for each.

`python -m bench.document` takes the first 16,384 characters of tinyshakespeare, or of another text. Causal FAVOR+ reads it,
makes a training step over all of it, and decodes from the state it left; the same mixer without causality encodes it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bench.entry import Mode, find_data, parse
from bench.launch import call
from bench.results import write
from regard.machine import peak_memory
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Classes
from regard.nn.core.coords import Coords
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers import Performer
from regard.nn.positions.position import Sinusoidal
from regard.report.table import Table

LENGTH, SMOKE_LENGTH, LIMIT, MORE = 16_384, 256, 4096, 64
WIDTH, DEPTH, HEADS = 256, 4, 4


def net(vocab: int, *, causal: bool) -> Net:
    block = Block(mix=Performer(HEADS, 128), feed=FeedForward(4 * WIDTH))
    stack = Stack(block, depth=DEPTH, causal=causal, recompute=True)  # in training, what is inside blocks is not stored
    embed = Tokens(vocab, position=Sinusoidal())
    if causal:
        return ModelSpec(WIDTH, LENGTH, embed, decoder=stack).build(1)
    return ModelSpec(WIDTH, LENGTH, embed, encoder=stack, head=Classes(2, pool="mean")).build(1)


def encode(ids: torch.Tensor, vocab: int) -> dict[str, float]:
    """One vector of the whole document."""
    made, at = net(vocab, causal=False).eval(), Coords.span(LENGTH)
    with torch.no_grad():
        told = made.logits(made(ids, at), at)
    return {"finite": float(torch.isfinite(told).all())}


def train(ids: torch.Tensor, vocab: int) -> dict[str, float]:
    """Three steps over all of it, each forward, backward and update."""
    made, losses = net(vocab, causal=True).train(), []
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-3)
    for _ in range(3):
        loss, plain = made.loss(made(ids[:, :-1], Coords.span(LENGTH - 1)), ids[:, 1:])
        (loss / (LENGTH - 1)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(plain) / (LENGTH - 1))
    return {"loss before": losses[0], "loss after two steps": losses[-1]}


def decode(ids: torch.Tensor, vocab: int) -> dict[str, float]:
    """Read it, then write on, a token at a time: the state does not grow."""
    made = net(vocab, causal=True).eval()
    with torch.no_grad():
        stream, state = made.decode(ids, Coords.span(LENGTH), state=made.start(1, LENGTH + MORE))
        token, began = made.logits(stream[:, -1:]).argmax(-1), time.perf_counter()
        for i in range(MORE):
            stream, state = made.decode(token, Coords.span(1, LENGTH + i), state=state)
            token = made.logits(stream).argmax(-1)
    assert state is not None
    numbers = sum(t.numel() for t in state.flat().values())
    return {"tokens a second": MORE / (time.perf_counter() - began), "numbers remembered": numbers}


PARTS: dict[str, Callable[[torch.Tensor, int], dict[str, float]]] = {"encode": encode, "train": train, "decode": decode}


def work(part: str, text: str) -> None:
    """One part in a process of its own, and what it took."""
    global LENGTH
    if Mode.smoke:
        LENGTH = SMOKE_LENGTH
    letters = Path(text).read_text(encoding="utf-8")[:LENGTH]
    kinds = sorted(set(letters))
    if len(letters) < LENGTH:
        raise SystemExit(f"{text} should have {LENGTH} characters, it has {len(letters)}")
    ids, began = torch.tensor([[kinds.index(letter) for letter in letters]]), time.perf_counter()
    found = PARTS[part](ids, len(kinds))
    peak = peak_memory() / 2**20
    print(json.dumps({"peak MB": round(peak), "seconds": time.perf_counter() - began, **found}))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("text", nargs="?", help="by default tinyshakespeare")
    arguments.add_argument("--worker", choices=PARTS)
    said = parse(arguments)
    text = said.text or str(find_data("tinyshakespeare", "input.txt"))
    if said.worker:
        return work(said.worker, text)
    figures: dict[str, dict[str, float]] = {}
    for part in PARTS:
        told = call(["bench.document", text, "--worker", part, *["--smoke"] * said.smoke])
        figures[part] = {name: round(value, 3) for name, value in json.loads(told.splitlines()[-1]).items()}
    rows = tuple((part, f["seconds"], f["peak MB"]) for part, f in figures.items())
    print(Table(("part", "seconds", "peak MB"), rows).markdown())
    too_much = [part for part, f in figures.items() if f["peak MB"] >= LIMIT]
    title = f"A document of {LENGTH:,} tokens, performer, {DEPTH} layers of width {WIDTH}, under {LIMIT} MB"
    print(write("document", title=title, figures=figures), file=sys.stderr)
    if too_much:
        raise SystemExit(f"more than {LIMIT} MB: {', '.join(too_much)}")
    return None


if __name__ == "__main__":
    main()
