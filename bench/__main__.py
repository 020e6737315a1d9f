"""`make bench`: every measurement, or those named. `python -m bench train-tiny threads`."""

from __future__ import annotations

import subprocess
import sys
import time

PARTS = {
    "train-tiny": ["bench.train", "tiny"],
    "train-base": ["bench.train", "base", "--rounds", "2"],
    "decode-tiny": ["bench.decode", "tiny"],
    "decode-base": ["bench.decode", "base", "--rounds", "2"],
    "lm-train": ["bench.lm", "train"],
    "lm-write": ["bench.lm", "write", "--rounds", "3"],
    "attention": ["bench.attention"],
    "threads": ["bench.threads"],
    "processes": ["bench.processes"],
    "smollm": ["bench.smollm"],
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no part {unknown[0]!r}; there is {', '.join(PARTS)}", file=sys.stderr)
        return 2
    for name in names or PARTS:
        began = time.monotonic()
        print(f"## {name}", flush=True)
        code = subprocess.run([sys.executable, "-m", *PARTS[name]], check=False).returncode
        if code:
            return code
        print(f"({time.monotonic() - began:.0f} s)\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
