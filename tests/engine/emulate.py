"""Every kernel against its plain twin, on this processor and on an emulated ARM: `python -m tests.engine.emulate`.

The emulation needs a cross compiler and QEMU's user mode (Debian: g++-aarch64-linux-gnu, qemu-user); without them it says so.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from regard.engine.compile_library import SOURCES, compile_library

CROSS, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


def find_lack() -> str | None:
    """What the emulation lacks here; None if nothing."""
    lacking = [name for name in (CROSS, EMULATOR) if shutil.which(name) is None]
    return f"no {' and no '.join(lacking)}; on Debian: apt install g++-aarch64-linux-gnu qemu-user" if lacking else None


def compare_kernels(
    seed: int = 1, *, emulate: bool = False, extra: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Compile native/compare.cpp and run it, here or emulated."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "compare"
        if emulate:
            extra = ["-static", *extra]  # nothing of ARM need be installed
            compile_library(program, main=SOURCES / "compare.cpp", compiler=[CROSS], machine="aarch64", extra=extra)
        else:
            compile_library(program, main=SOURCES / "compare.cpp", extra=extra)
        command = [*([EMULATOR] if emulate else []), str(program), str(seed)]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.engine.emulate", description=__doc__)
    arguments.add_argument("--seed", type=int, default=1)
    said = arguments.parse_args()
    codes = []
    for emulate in (False, True):
        if emulate and (lack := find_lack()):
            print(f"not emulated: {lack}")
            continue
        done = compare_kernels(said.seed, emulate=emulate)
        print(f"{EMULATOR if emulate else 'this processor'}: {done.stdout}{done.stderr[-2000:]}", end="")
        codes.append(done.returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
