"""Resources of this machine: cores, memory, devices, bfloat16."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import platform
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from regard.errors import SpecError, UnknownName

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


@dataclasses.dataclass(frozen=True)
class Machine:
    """Facts about this machine that settings depend on."""

    processor: str
    cores: int
    memory: int
    bf16: bool
    """True if the processor multiplies bfloat16 matrices natively; otherwise bfloat16 is slower than float32."""


@lru_cache(maxsize=1)
def machine() -> Machine:
    """Find out about this machine, once."""
    info = _cpu_info()
    flags = set(info.get("flags", "").split())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    native = bool(flags & {"avx512_bf16", "amx_bf16"}) or "bf16" in info.get("Features", "").split()
    return Machine(info.get("model name", platform.processor() or platform.machine()), cores, _memory(), native)


def resolve_device(name: str) -> str:
    """Check a device name; `auto` is the fastest device that torch finds."""
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return next(device for device, found in there.items() if found)
    kind = re.sub(r"(?<=^cuda):\d+$", "", name)
    if kind not in there:
        raise UnknownName("device", name, ["auto", *there])
    if not there[kind]:
        raise SpecError(f"torch finds no device {name!r} on this machine; use --device auto")
    return name


def versions() -> dict[str, str]:
    """The versions that results may depend on."""
    import torch

    import regard

    return {"regard": regard.__version__, "torch": torch.__version__, "python": platform.python_version()}


def precision(asked: str, device: str) -> str:
    """The precision that `train.precision` stands for on a device.

    `auto` is float32 on a processor that does not multiply bfloat16 matrices, bfloat16 on an accelerator, and stays `auto`
    where only a measurement can tell: a run makes it when it starts.
    """
    if asked != "auto":
        return asked
    if device != "cpu":
        return "bfloat16"
    return "auto" if machine().bf16 else "float32"


def keep_large_blocks() -> bool:
    """Tell glibc to keep large freed blocks: the next training step needs the same sizes again.

    By default every large tensor is mapped and zeroed anew, and each thread keeps blocks of its own. Returns whether the
    allocator accepted.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    trim_threshold, top_pad, mmap_threshold, arenas = -1, -2, -3, -8
    wanted = ((mmap_threshold, 1 << 30), (trim_threshold, (1 << 31) - 1), (top_pad, 64 << 20), (arenas, 1))
    return all(mallopt(option, value) == 1 for option, value in wanted)


KERNELS = 16
"""Compiled bfloat16 kernels kept for each thread: what one pass through a model needs before the shapes change."""


def limit_kernel_caches(threads: int) -> None:
    """Keep few of the kernels that oneDNN compiles for every shape; takes effect before the first bfloat16 product.

    Each takes about a megabyte, every batch has new shapes, and by default a thousand are kept: a gigabyte, of which the
    next batch uses next to nothing. Existing settings of the user stay.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):  # of oneDNN, and of torch's layer above it
        os.environ.setdefault(name, str(KERNELS * threads))


SPINS = "2000"
"""Number of times a waiting thread checks before it sleeps: a few microseconds."""


def wait_politely() -> None:
    """Let threads that wait for one another sleep soon instead of spinning; only has an effect before torch is loaded.

    A spinning thread holds the core its neighbour needs: beside another busy program training then goes faster by two
    fifths, and alone slower by a twentieth (results/bench-threads.json). Existing settings of the user stay.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def _cpu_info() -> dict[str, str]:
    """The first processor's entry in /proc/cpuinfo; empty elsewhere."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text(errors="replace").split("\n\n")[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _memory() -> int:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return 0
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_memory() -> int:
    """Bytes of memory that are available; 0 if unknown."""
    path = Path("/proc/meminfo")
    if not path.exists():
        return 0
    lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    free = int(lines.get("MemAvailable", "0 kB").split()[0]) * 1024
    limits = [_number(path) for path in (*LIMITS, *_own_limits())]
    return min([free, *(limit for limit in limits if limit), *_address_space()])


def peak_memory() -> int:
    """Peak memory of this process in bytes; 0 if unknown.

    On Linux `ru_maxrss` is of no use for this: a new process inherits the peak of the one that started it.
    """
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(), flags=re.M)):
        return int(found[1]) * 1024
    peak = 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _own_limits() -> Iterator[Path]:
    """The memory limits of this process's control group and of those around it."""
    path = Path("/proc/self/cgroup")
    groups = [line.partition("::")[2] for line in path.read_text().splitlines()] if path.exists() else []
    for group in filter(None, groups):
        place = LIMITS[0].parent / group.strip("/")
        yield from (folder / LIMITS[0].name for folder in (place, *place.parents) if LIMITS[0].parent in folder.parents)


def _address_space() -> list[int]:
    """Return what is left of the address space, if it is limited (`ulimit -v`)."""
    if resource is None or (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) == resource.RLIM_INFINITY:
        return []
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return [max(limit - pages * os.sysconf("SC_PAGE_SIZE"), 1)]


LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Memory limits of a container, in both versions of Linux control groups."""


def _number(path: Path) -> int | None:
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else None
