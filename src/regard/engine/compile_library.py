"""Compile the native library, with whatever compiler there is.

`make`, the wheel's build hook and `regard doctor --build` call this; nothing is ever compiled by using a model. It imports
nothing of the package, so that the build hook can run it before the package is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE / "native"
NAME = {"darwin": "libregard_engine.dylib", "win32": "regard_engine.dll"}.get(sys.platform, "libregard_engine.so")
LIBRARY = HERE / NAME
STAMP = HERE / "libregard_engine.stamp"
"""File of the fingerprint of its sources: `make` and `regard doctor --build` compile it again when they changed."""
PARTS = ("weights", "model", "team", "pages", "forward", "shortlist", "worker", "search", "batch", "interface")
PROGRAMS = ("fuzz", "compare")
"""Sources that are no part of the library: programs that test it."""
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra")
QUIET = ("-Wno-uninitialized", "-Wno-maybe-uninitialized", "-Wno-psabi")
"""GCC 12 warns about its own AVX-512 header."""
AVX512 = ("-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
X86: dict[str, tuple[str, ...]] = {
    "vnni": (*AVX512, "-mavx512vnni"),
    "avx512": AVX512,
    "avx2": ("-mavx2", "-mfma"),
    "portable": (),
}
ARM: dict[str, tuple[str, ...]] = {"neon": ("-march=armv8.2-a+dotprod",), "portable": ()}
KERNELS = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}
"""The instruction sets that kernels.cpp is compiled for; any other processor gets portable C++."""


class CompileError(Exception):
    """The library cannot be compiled here; the message says why and what to do."""


def find_compiler() -> list[str] | None:
    """The command of a C++ compiler: $CXX, the system's, or that of PyPI's `ziglang`; None if there is none."""
    if named := os.environ.get("CXX"):
        return named.split()
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "c++"] if importlib.util.find_spec("ziglang") else None


def fingerprint() -> str:
    """A checksum of everything that the library is made of."""
    digest = hashlib.sha256(repr((FLAGS, KERNELS, platform.machine())).encode())
    for path in sorted(SOURCES.glob("*")):
        if path.suffix in (".h", ".cpp") and path.stem not in PROGRAMS:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def is_current() -> bool:
    """True if the library was compiled from the sources as they are."""
    return LIBRARY.exists() and STAMP.exists() and STAMP.read_text().strip() == fingerprint()


def compile_library(
    out: Path = LIBRARY,
    *,
    extra: Sequence[str] = (),
    main: Path | None = None,
    compiler: Sequence[str] | None = None,
    machine: str | None = None,
) -> Path:
    """Compile the library to `out`, or with `main` a program; `extra` flags are for sanitizers.

    Another `compiler` and the `machine` that it compiles for are for emulation.
    """
    compiler = compiler or find_compiler()
    if compiler is None:
        raise CompileError("no C++ compiler was found; install g++ or clang, or pip install ziglang, or set CXX")
    kernels = KERNELS.get((machine or platform.machine()).lower(), {"portable": ()})
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(SOURCES / f"{part}.cpp", Path(folder) / f"{part}.o", list[str]()) for part in PARTS]
        jobs += [
            (SOURCES / "kernels.cpp", Path(folder) / f"{name}.o", [f"-DREGARD_ISA={name}", *flags])
            for name, flags in kernels.items()
        ]
        if main is not None:
            jobs.append((main, Path(folder) / "main.o", []))

        def build(job: tuple[Path, Path, list[str]]) -> None:
            source, target, flags = job
            _call([*compiler, *FLAGS, *QUIET, *flags, *extra, "-c", str(source), "-o", str(target)])

        with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
            list(pool.map(build, jobs))
        made = Path(folder) / out.name
        kind = ["-shared"] if main is None else []
        if main is None and sys.platform == "linux" and "ziglang" not in compiler:
            kind += ["-static-libstdc++", "-static-libgcc"]  # so that a wheel runs beside another compiler's library
        _call([*compiler, *kind, "-pthread", *extra, *(str(target) for _, target, _ in jobs), "-o", str(made)])
        beside = out.with_name(f".{out.name}.partial")
        shutil.copy2(made, beside)
        beside.replace(out)  # a process that has the old one open keeps it
    if out == LIBRARY:
        STAMP.write_text(fingerprint() + "\n")
    return out


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        first = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
        raise CompileError(f"{command[0]} failed: {first}")


def main() -> int:
    """`python -m regard.engine.compile_library`: compile unless it is up to date; without a compiler, say so once."""
    if is_current():
        return 0
    try:
        print(f"compiled {compile_library()}")
    except CompileError as error:
        print(f"the native engine is not compiled: {error}; models run on torch", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
