"""Training speed of the LSTM encoder-decoder beside a plain loop around `torch.nn.LSTM`. `python -m bench.recurrent`.

Both have the same widths and number of parameters, the same dropout, the same batches by length, float32 and fused Adam. Ours
trains as `regard train` does: rows are divided among threads, and the loss never holds all logits. The plain loop is what one
writes first: embeddings, nn.LSTM with a packed source, a linear map to all logits, cross-entropy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from bench import corpus as made
from bench.entry import Mode, choose, parse
from bench.race import best_and_median, divide, race, serve
from bench.results import write
from regard.data.batch import IGNORE, Batch, pad_rows
from regard.families import lstm
from regard.machine import keep_large_blocks, limit_kernel_caches
from regard.nn.core.coords import Coords
from regard.nn.core.rng import new_seed
from regard.report.table import Table
from regard.training.step.data_parallel import ThreadGroup, split_rows

SHAPES: dict[str, dict[str, Any]] = {
    "small": dict(width=256, embedding=256, depth=1, dropout=0.3),
    "published": dict(width=512, embedding=256, depth=2, dropout=0.5),
}
"""`published` is the LSTM of the Multi30k notebooks."""
TOKENS, SMOKE_TOKENS, WARM = 2048, 64, 2
CONTENDERS = ("regard", "torch.nn.LSTM")
Rows = NDArray[np.int64]


class Plain(nn.Module):
    """The model as it is written first."""

    def __init__(self, width: int, embedding: int, depth: int, dropout: float) -> None:
        super().__init__()
        inner = dropout if depth > 1 else 0.0
        self.source, self.embed = nn.Embedding(made.VOCAB, embedding), nn.Embedding(made.VOCAB, embedding)
        self.reads = nn.LSTM(embedding, width, depth, dropout=inner, batch_first=True)
        self.writes = nn.LSTM(embedding, width, depth, dropout=inner, batch_first=True)
        self.head, self.dropout = nn.Linear(width, made.VOCAB), nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: list[int], given: Tensor) -> Tensor:
        read = self.dropout(self.source(source))
        packed = pack_padded_sequence(read, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        _, state = self.reads(packed)
        y, _ = self.writes(self.dropout(self.embed(given)), state)
        out: Tensor = self.head(y)
        return out


Make = Callable[[Rows], Batch]
Backward = Callable[[Rows, Make], None]


def build(name: str, shape: str) -> tuple[nn.Module, Backward]:
    """A contender, and what computes the gradients of a batch."""
    torch.manual_seed(1)
    if name == "torch.nn.LSTM":
        plain = Plain(**SHAPES[shape])

        def cross_entropy(rows: Rows, make: Make) -> None:
            batch = make(rows)
            assert batch.source is not None
            logits = plain(batch.source.ids, batch.source.lengths, batch.given.ids)
            F.cross_entropy(logits.flatten(0, 1), batch.wanted.flatten(), ignore_index=IGNORE).backward()

        return plain, cross_entropy
    keep_large_blocks()
    limit_kernel_caches(torch.get_num_threads())
    group = ThreadGroup.choose(torch.get_num_threads(), TOKENS, "cpu")
    sizes = dict(vocab=made.VOCAB, source_vocab=made.VOCAB, attention="none", bidirectional=False, reverse_source=False)
    net = lstm.spec(**SHAPES[shape], **sizes).build(seed=1).train()  # type: ignore[arg-type]

    def by_rows(rows: Rows, make: Make) -> None:
        batches = [make(part) for part in split_rows(rows, group.count)]
        tokens = sum(batch.tokens for batch in batches)

        def loss(batch: Batch) -> tuple[Tensor, float]:
            assert batch.source is not None
            source = (batch.source.ids, Coords.lengths(batch.source.lengths))
            stream = net(batch.given.ids, Coords.lengths(batch.given.lengths), source)
            total, plain = net.loss(stream, batch.wanted)
            return total / tokens, float(plain)

        group.run(net, loss, [(batch, new_seed()) for batch in batches])

    return net, by_rows


def work(name: str, shape: str, steps: int) -> None:
    """One contender: build, warm up, then `steps` batches a turn."""
    source, target = made.corpus(200) if Mode.smoke else made.corpus()
    order, place = made.bucketed(source, target, SMOKE_TOKENS if Mode.smoke else TOKENS), 0
    net, backward = build(name, shape)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def make(rows: Rows) -> Batch:
        wanted = pad_rows(target, rows, IGNORE, after=2)
        given, read = pad_rows(target, rows, 0, before=1), pad_rows(source, rows, 0, after=2)
        return Batch(given, wanted.ids, read, sum(wanted.lengths))

    def train(rows: Rows) -> int:
        backward(rows, make)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return int(target.lengths[rows].sum()) + len(rows)

    def turn(case: str) -> dict[str, float]:
        nonlocal place
        tokens, began, work = 0, time.perf_counter(), time.process_time()
        for _ in range(steps):
            tokens, place = tokens + train(order[place % len(order)]), place + 1
        return {
            "tokens_per_s": tokens / (time.perf_counter() - began),
            "tokens_per_cpu_s": tokens / (time.process_time() - work),
        }

    for _ in range(0 if Mode.smoke else WARM):
        train(order[-1 - place])
    serve(turn)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--shape", choices=SHAPES, default="small")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--steps", type=int, default=8)
    said = parse(arguments, contenders=CONTENDERS)
    if said.worker:
        work(said.worker, said.shape, said.steps)
        return
    names = choose(said, CONTENDERS)
    steps, rounds, more = (1, 1, ["--smoke"]) if said.smoke else (said.steps, said.rounds, [])
    counts = {name: sum(p.numel() for p in build(name, said.shape)[0].parameters()) for name in names}
    words = ["bench.recurrent", "--shape", said.shape, "--steps", str(steps), *more, "--worker"]
    found = race({name: [*words, name] for name in names}, rounds)
    mine = best_and_median(found["regard"], "tokens_per_s") if "regard" in found else (None, None)
    figures = {}
    for name, rows in found.items():
        best, median = best_and_median(rows, "tokens_per_s")
        figures[name] = {
            "best tokens/s": round(best), "median": round(median), "regard is faster by": divide(mine[0], best),
            "by the median": divide(mine[1], median), "peak MB": round(max(row["peak_mb"] for row in rows)),
            "parameters": counts[name],
        }  # fmt: skip
    head = tuple(figures[names[0]])
    print(Table(("contender", *head), tuple((name, *row.values()) for name, row in figures.items())).markdown())
    title = f"Training speed of an LSTM encoder-decoder ({said.shape}), target tokens a second, float32"
    if not said.only:
        threads = torch.get_num_threads()
        print(write(f"bench-recurrent-{said.shape}", title=title, figures=figures, threads=threads))


if __name__ == "__main__":
    main()
