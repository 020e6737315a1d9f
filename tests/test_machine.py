"""What the machine says of itself is believed only where it says it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard import machine as module
from regard.machine import (
    KERNELS,
    SPINS,
    Machine,
    free_memory,
    keep_large_blocks,
    limit_kernel_caches,
    machine,
    precision,
)

INTEL = "processor\t: 0\nmodel name\t: Some Xeon\nflags\t\t: fpu avx2 {flag}\n\nprocessor\t: 1\nmodel name\t: Other\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd {flag}\n"


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    machine.cache_clear()
    yield
    machine.cache_clear()


def says(patch: pytest.MonkeyPatch, text: str) -> None:
    patch.setattr(module, "_cpu_info", lambda: _read(text))


def _read(text: str) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "exists", lambda self: True)
        patch.setattr(Path, "read_text", lambda self, errors: text)
        return REAL()


REAL = module._cpu_info


def test_this_machine() -> None:
    here = machine()
    assert here is machine()
    assert here.cores >= 1
    assert here.memory > 1 << 28
    assert here.processor
    assert free_memory() == 0 or 1 << 20 < free_memory() <= here.memory


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="the system does not say how much memory is free")
@pytest.mark.parametrize(("text", "least"), [("1048576\n", True), ("max\n", False), ("", False)])
def test_a_container_may_take_less_than_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, least: bool
) -> None:
    (tmp_path / "memory.max").write_text(text)
    monkeypatch.setattr(module, "LIMITS", (tmp_path / "memory.max", tmp_path / "absent"))
    assert (free_memory() == 1 << 20) is least


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="the system does not say how much memory is free")
def test_a_limited_address_space_counts() -> None:
    """As after `ulimit -v`."""
    code = """
import resource
from regard.machine import free_memory
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
print(free_memory())
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 0 < int(told) < 1 << 30


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not say how much memory was used")
def test_the_peak_is_that_of_the_process_itself() -> None:
    """Not that of the large process which started it."""
    child = "from regard.machine import peak_memory; print(peak_memory())"
    parent = f"""
import subprocess, sys
held = bytearray(b"x") * (1 << 29)
print(subprocess.run([sys.executable, "-c", {child!r}], capture_output=True, text=True, check=True).stdout)
"""
    told = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True).stdout
    assert 1 << 20 < int(told) < 1 << 28


@pytest.mark.parametrize(
    ("text", "native"),
    [
        (INTEL.format(flag="avx512_bf16"), True),
        (INTEL.format(flag="amx_bf16 amx_tile"), True),
        (INTEL.format(flag="avx512f"), False),
        (INTEL.format(flag="not_avx512_bf16x"), False),
        (ARM.format(flag="bf16"), True),
        (ARM.format(flag="ebf16"), False),
        ("", False),
        ("no colon here\n: :\n", False),
    ],
)
def test_native_bfloat16(monkeypatch: pytest.MonkeyPatch, text: str, native: bool) -> None:
    says(monkeypatch, text)
    assert machine().bf16 is native
    assert precision("auto", "cpu") == ("auto" if native else "float32")


def test_the_first_processor_gives_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, INTEL.format(flag=""))
    assert machine().processor == "Some Xeon"


def test_where_there_is_no_such_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert REAL() == {}


def test_precision_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for native in (True, False):
        monkeypatch.setattr(module, "machine", lambda native=native: Machine("x", 1, 1, native))
        assert precision("float32", "cuda") == "float32"
        assert precision("bfloat16", "cpu") == "bfloat16"
        assert precision("auto", "cuda") == "bfloat16"
        assert precision("auto", "cpu") == ("auto" if native else "float32")


def test_the_allocator_takes_the_hint_or_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform.startswith("linux") and "glibc" in os.confstr("CS_GNU_LIBC_VERSION"):
        assert keep_large_blocks()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_large_blocks()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_large_blocks()


def test_threads_wait_politely_unless_told_otherwise() -> None:
    code = "import os, regard.machine as m; m.wait_politely(); print(os.environ.get('GOMP_SPINCOUNT'))"
    bare = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    for own, wanted in (({}, SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")):
        said = subprocess.run([sys.executable, "-c", code], env=bare | own, capture_output=True, text=True, check=True)
        assert said.stdout.strip() == wanted


def test_few_compiled_kernels_are_kept_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    limit_kernel_caches(3)
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == str(3 * KERNELS)
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
