"""Run every measurement, or those named.

`make bench` runs all; `python -m bench train-tiny threads` runs two. Results go to `runs/results/`, with `--record` to
`results/`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from bench.results import parse

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
    "smollm": ["bench.smollm"],
}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    asked = parse(parser, words)
    unknown = [name for name in asked.parts if name not in PARTS]
    if unknown:
        print(f"no part {unknown[0]!r}; there is {', '.join(PARTS)}", file=sys.stderr)
        return 2
    for name in asked.parts or PARTS:
        began = time.monotonic()
        print(f"## {name}", flush=True)
        command = [sys.executable, "-m", *PARTS[name], *["--record"] * asked.record]
        code = subprocess.run(command, check=False).returncode
        if code:
            return code
        print(f"({time.monotonic() - began:.0f} s)\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
