"""What this machine's matrix products reach, measured in the same race as what is compared with it."""

from __future__ import annotations

import time

import torch

from bench.race import serve

SIZE = 1536


def gflops(dtype: torch.dtype, seconds: float = 0.3) -> float:
    """The best of several products of large matrices, in GFLOPS."""
    a, b = (torch.randn(SIZE, SIZE).to(dtype) for _ in range(2))
    best, end = 0.0, time.perf_counter() + seconds
    while best == 0.0 or time.perf_counter() < end:
        began = time.perf_counter()
        torch.mm(a, b)
        best = max(best, 2e-9 * SIZE**3 / (time.perf_counter() - began))
    return best


if __name__ == "__main__":
    serve(lambda case: {"float32": gflops(torch.float32), "bfloat16": gflops(torch.bfloat16)})
