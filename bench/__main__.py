"""Run every measurement of speed, or those named.

`make bench` runs all; `python -m bench train-tiny threads` runs two. Results go to `runs/results/`, with `--record` to
`results/` (`make record`). The packages of all contenders must be there before anything runs; `--without NAME` leaves one out.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from importlib import import_module

from bench.entry import parse
from bench.launch import start

PARTS = {
    "train-tiny": ["bench.train", "tiny"],
    "train-base": ["bench.train", "base", "--rounds", "2"],
    "decode-tiny": ["bench.decode", "tiny"],
    "decode-base": ["bench.decode", "base", "--rounds", "2"],
    "shell-tiny": ["bench.shell", "tiny"],
    "shell-base": ["bench.shell", "base"],
    "lm-train": ["bench.lm", "train"],
    "lm-write": ["bench.lm", "write", "--rounds", "3"],
    "attention": ["bench.attention"],
    "recurrent": ["bench.recurrent"],
    "threads": ["bench.threads"],
    "processes": ["bench.processes"],
    "busy": ["bench.busy"],
    "serve": ["bench.serve", "--threads", "1"],
    "smollm": ["bench.smollm"],
}


def list_contenders(module: str) -> set[str]:
    """The names of all contenders of a bench; none if it has none."""
    found = getattr(import_module(module), "CONTENDERS", ())
    nested = found.values() if isinstance(found, dict) else ()
    return {*found, *(name for part in nested if isinstance(part, dict) for name in part)}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave out a contender")
    asked = parse(parser, words, check=False)
    if unknown := [name for name in asked.parts if name not in PARTS]:
        print(f"no part {unknown[0]!r}; there is {', '.join(PARTS)}", file=sys.stderr)
        return 2
    calls = {}
    known = set[str]()
    for part in asked.parts or PARTS:
        own = list_contenders(PARTS[part][0])
        known |= own
        calls[part] = [*PARTS[part], *(word for name in asked.without if name in own for word in ("--without", name))]
    if unknown := [name for name in asked.without if name not in known]:
        print(f"no contender {unknown[0]!r}; there is {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    options = [*["--record"] * asked.record, *["--smoke"] * asked.smoke]
    for call in calls.values():
        print(f"python -m {shlex.join([*call, *options])}", flush=True)
    if not asked.smoke:
        for part, call in calls.items():
            if code := start([*call, "--check"]).wait():
                print(f"{part} cannot run, so nothing was started", file=sys.stderr)
                return code
    for part, call in () if asked.check else calls.items():
        began = time.monotonic()
        print(f"## {part}", flush=True)
        if code := start([*call, *options]).wait():
            return code
        print(f"({time.monotonic() - began:.0f} s)\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
