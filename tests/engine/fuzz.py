"""Fuzz the native library under address and undefined-behavior sanitizers: `python -m tests.engine.fuzz --calls 1000000`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np

from regard.engine.compile_library import SOURCES, compile_library
from regard.engine.engine_plan import flatten_plan
from regard.engine.quantized_weights import pack_weights, quantize_weights
from regard.engine.write_plan import describe_model
from regard.files.tensors import list_tensors, pack
from tests.engine.models import ALL, build

QUANTIZED: tuple[Literal["int8", "int4"], ...] = ("int8", "int4")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-g", "-fno-omit-frame-pointer")


def write_seeds(path: Path) -> None:
    """Every small model of the tests, as the fuzz program reads them."""
    with path.open("wb") as file:
        for spec in ALL.values():
            net = build(spec)
            plan = describe_model(net)
            small = [quantize_weights(net.state_dict(), plan, to) for to in QUANTIZED]
            files = [pack(net.state_dict()), *map(pack, small), *(pack_weights(weights, plan) for weights in small)]
            for data in files:
                flat = flatten_plan(plan, list_tensors(data, path))
                file.write(np.int64(len(flat)).tobytes() + flat.tobytes() + np.int64(len(data)).tobytes() + data)


def fuzz(calls: int, seed: int) -> subprocess.CompletedProcess[str]:
    """Compile the fuzz program and run it."""
    with tempfile.TemporaryDirectory() as folder:
        seeds, program = Path(folder) / "seeds", Path(folder) / "fuzz"
        write_seeds(seeds)
        compile_library(program, extra=SANITIZERS, main=SOURCES / "fuzz.cpp")
        limits = {"ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=2048", **os.environ}
        return subprocess.run(
            [str(program), str(seeds), str(calls), str(seed)], capture_output=True, text=True, env=limits, check=False
        )


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--calls", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=1)
    said = arguments.parse_args()
    done = fuzz(said.calls, said.seed)
    print(done.stdout, end="")
    print(done.stderr[-4000:], end="", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
