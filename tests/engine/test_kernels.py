"""The kernels of ARM, emulated, compute what their plain twin computes; `test_native_engine.py` has those of this processor."""

from __future__ import annotations

import pytest

from tests.engine.emulate import compare_kernels, find_lack


@pytest.mark.slow
def test_kernels_of_arm_agree_with_their_plain_twin() -> None:
    if lack := find_lack():
        pytest.skip(lack)
    done = compare_kernels(emulate=True, extra=["-O1"])
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("neon: ") and done.stdout.endswith(" comparisons, 0 differ\n")
