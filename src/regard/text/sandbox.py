"""A tokenizer's file is tried in a child process before it is read in ours.

The library that reads it is quick and trusting: a crafted file makes it panic, abort the process, take all memory, or
look for a pattern without end. A child with bounds on time and memory goes first; what it survives is read here in the
same way. What was tried once is not tried again in this process.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import tokenizers

from regard.errors import CheckpointError

MAX_FILE_BYTES = 64_000_000
"""Bytes of a file; the largest vocabulary that anyone publishes takes half of that."""

_ROOM, _TIMES = 512_000_000, 64  # bytes the child may take, and on top for each of the file's; unigram models need 40
_SECONDS, _PACE = 1, 4_000_000  # of computing, and one more for so many bytes: thrice what such files need
_WAIT = 60  # seconds in all, on a machine that has other things to do
_CHILD = Path(__file__).with_name("sandbox_child.py")
_ENDS = {
    -signal.SIGABRT: "it makes the library abort, or needs more memory than a file of its size should",
    -signal.SIGSEGV: "it makes the library crash",
    -signal.SIGKILL: "it takes more time than a file of its size should",
}
_checked: dict[bytes, str] = {}  # by SHA-256, what was wrong; empty if nothing was


def check_tokenizer_file(data: bytes, path: str | Path) -> None:
    """Return if the tokenizer in these bytes does no harm; `path` is what an error calls it."""
    if len(data) > MAX_FILE_BYTES:
        raise CheckpointError(
            f"{path} is not a tokenizer: it has {len(data)} bytes, and none has over {MAX_FILE_BYTES}"
        )
    digest = hashlib.sha256(data).digest()
    if digest not in _checked:
        _checked[digest] = _run_child(data)
    if _checked[digest]:
        raise CheckpointError(f"{path} is not a tokenizer: {_checked[digest]}")


def _run_child(data: bytes) -> str:
    """What goes wrong when a child tries it."""
    packages = Path(tokenizers.__file__).parents[1]
    bounds = _ROOM + _TIMES * len(data), _SECONDS + len(data) // _PACE
    # -I and -S: neither the folder we stand in nor the environment has a say in what the child imports
    order = [sys.executable, "-I", "-S", str(_CHILD), str(packages), *map(str, bounds)]
    quiet = {**os.environ, "RUST_BACKTRACE": "0", "TOKENIZERS_PARALLELISM": "false"}
    try:
        done = subprocess.run(order, input=data, capture_output=True, timeout=_WAIT, env=quiet, check=False)
    except subprocess.TimeoutExpired:
        return f"it could not be tried within {_WAIT} seconds"
    if not done.returncode:
        return ""
    if done.returncode == 1:
        return str(json.loads(done.stderr.splitlines()[-1]))
    return _ENDS.get(done.returncode, f"the process that tried it ended with {done.returncode}")
