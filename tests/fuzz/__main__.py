"""`python -m tests.fuzz 100000 [--seed S] [--only KIND] [--at NUMBER]`: mutants of every file that is read, through all verbs.

Prints how many mutants of each kind of file were done, refused, or worse; what was worse is kept in runs/fuzz, with the
command and what it said. The same seed gives the same mutants.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch._dynamo

from tests.fuzz.kinds import Kind, list_kinds
from tests.fuzz.seeds import make_seeds
from tests.fuzz.server import Case, Outcome, Server

KEPT = Path("runs") / "fuzz"
MAX_KEPT = 20
"""Reproducers that are kept of one kind and fault."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("count", type=int, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="KIND", help="only kinds whose name contains this")
    parser.add_argument("--at", type=int, metavar="NUMBER", help="only this mutant of a kind; prints what it says")
    parser.add_argument("--list", action="store_true", help="list the kinds")
    parser.add_argument("--quick", action="store_true", help="fewer kinds of models: less time before the first mutant")
    given = parser.parse_args(words)
    with fuzzer(given.only, quick=given.quick) as (server, kinds):
        if given.list:
            print("\n".join(kind.name for kind in kinds))
            return 0
        if given.at is not None:
            return show_one(server, Case(kinds[0], given.seed, given.at))
        counts = fuzz(server, kinds, given.count, given.seed)
    print(render(counts))
    return int(any(not is_fine(word) for _, word in counts))


class fuzzer:
    """Seeds and a warm server, in memory where the system has such a folder."""

    def __init__(self, only: str = "", *, quick: bool = False) -> None:
        self.only, self.quick = only, quick

    def __enter__(self) -> tuple[Server, list[Kind]]:
        torch.set_num_threads(1)
        memory = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(prefix="regard-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))
        try:
            make_seeds(self.root / "seeds", quick=self.quick)
            kinds = [kind for kind in list_kinds(self.root / "seeds") if self.only in kind.name]
            server = Server(self.root / "seeds", self.root / "scratch")
            server.warm(kinds, quick=self.quick)
        except BaseException:
            self.__exit__()
            raise
        return server, kinds

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def deal(kinds: Sequence[Kind], count: int, seed: int) -> Iterator[Case]:
    """So many cases, spread over the kinds by weight; the first ones of every kind come first."""
    draw, numbers = random.Random(seed), Counter[str]()
    for i in range(count):
        kind = kinds[i] if i < len(kinds) else draw.choices(kinds, [k.weight for k in kinds])[0]
        yield Case(kind, seed, numbers[kind.name])
        numbers[kind.name] += 1


def fuzz(server: Server, kinds: Sequence[Kind], count: int, seed: int) -> Counter[tuple[str, str]]:
    """Run so many mutants; returns how many of each kind had which outcome."""
    counts, began = Counter[tuple[str, str]](), time.monotonic()
    with suppress(KeyboardInterrupt):  # Ctrl-C: the table so far
        cases = list(deal(kinds, count, seed))
        for i, (case, outcome) in enumerate(zip(cases, server.run_all(cases), strict=True), 1):
            counts[group(case.kind), outcome.word] += 1
            if outcome.fault:
                keep(server, case, outcome, counts)
            if i % 500 == 0:
                bad = sum(n for (_, word), n in counts.items() if not is_fine(word))
                print(
                    f"{i} mutants, {bad} faults, {(time.monotonic() - began) / i * 1000:.0f} ms each",
                    file=sys.stderr,
                    flush=True,
                )
    return counts


def group(kind: Kind) -> str:
    """The row of a kind in the table: its first word, and for folders which file of them."""
    words = kind.name.split()
    return (
        words[0]
        if words[0] in ("data", "input", "recipe", "arguments", "gguf", "picture")
        else f"{words[0].split('-')[0]} {Path(words[-1]).name}"
    )


def is_fine(word: str) -> bool:
    return word == "done" or word.startswith("refused")


def keep(server: Server, case: Case, outcome: Outcome, counts: Counter[tuple[str, str]]) -> None:
    """Store the mutant, its command and what came of it."""
    name = f"{outcome.fault} {case.kind.name} {case.seed}-{case.number}".replace("/", "_").replace(" ", "_")
    print(f"{name}: {outcome.err.strip()[-300:]!r}", file=sys.stderr, flush=True)
    if counts[group(case.kind), outcome.word] > MAX_KEPT:
        return
    place = KEPT / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=server.scratch) as here:  # the seeds are linked there
        command, _ = case.build(server.seeds, Path(here))
        shutil.copytree(here, place / "files")
    used = f"exit {outcome.code}, {outcome.seconds:.1f} s, {outcome.memory >> 20} MB"
    said = f"regard {' '.join(command)[:2000]}\n{used}\n{outcome.err}\n{outcome.out[:5000]}"
    (place / "said.txt").write_text(said, encoding="utf-8", errors="backslashreplace")


def show_one(server: Server, case: Case) -> int:
    outcome = server.run(case)
    print(
        outcome.word,
        outcome.code,
        f"{outcome.seconds:.1f} s, {outcome.memory >> 20} MB",
        outcome.err,
        outcome.out[:2000],
        sep="\n",
    )
    return int(bool(outcome.fault))


def render(counts: Counter[tuple[str, str]]) -> str:
    """A table of kinds and outcomes."""
    words = sorted({word for _, word in counts}, key=lambda word: (not is_fine(word), word))
    rows = sorted({row for row, _ in counts})
    width = max(map(len, rows))
    lines = [f"{'':{width}}  " + "  ".join(f"{word:>12}" for word in words)]
    lines += [f"{row:{width}}  " + "  ".join(f"{counts[row, word] or '–':>12}" for word in words) for row in rows]
    total = [sum(counts[row, word] for row in rows) for word in words]
    lines.append(f"{'all':{width}}  " + "  ".join(f"{n:>12}" for n in total))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
