"""Check tokenizer files in a child process before use.

The library trusts its files: a crafted one can make it panic, abort the process, allocate all memory, or match a pattern
forever. A child process with limits on time and memory reads the file first. Each file is checked once per process.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import tokenizers

from regard.errors import CheckpointError

MAX_FILE_BYTES = 64_000_000
"""Maximum size of a file; the largest published vocabularies have half of it."""

_ROOM, _TIMES = 512_000_000, 64  # memory limit in bytes, plus per byte of the file; unigram models need 40
_SECONDS, _PACE = 1, 4_000_000  # CPU limit, plus a second per so many bytes: three times what real files need
_WAIT = 60  # seconds in total, on a busy machine
_CHILD = Path(__file__).with_name("sandbox_child.py")
_ENDS = {
    -signal.SIGABRT: "it makes the library abort, or needs too much memory for a file of its size",
    -signal.SIGSEGV: "it makes the library crash",
    -signal.SIGKILL: "it takes too much time for a file of its size",
}
_checked: dict[bytes, str] = {}  # the fault by SHA-256; empty if there is none
_begun: dict[bytes, threading.Thread] = {}


def begin_check(data: bytes) -> None:
    """Begin to check a file in the background; `check_tokenizer_file` then waits for the result."""
    digest = hashlib.sha256(data).digest()
    if len(data) <= MAX_FILE_BYTES and digest not in _checked and digest not in _begun:
        thread = threading.Thread(target=lambda: _checked.update({digest: _run_child(data)}), daemon=True)
        _begun[digest] = thread
        thread.start()


def check_tokenizer_file(data: bytes, path: str | Path) -> None:
    """Raise an error if the tokenizer in these bytes is harmful; `path` names it in the message."""
    if len(data) > MAX_FILE_BYTES:
        raise CheckpointError(f"{path} is not a tokenizer: it has {len(data)} bytes; the limit is {MAX_FILE_BYTES}")
    digest = hashlib.sha256(data).digest()
    if begun := _begun.pop(digest, None):
        begun.join()
    if digest not in _checked:
        _checked[digest] = _run_child(data)
    if _checked[digest]:
        raise CheckpointError(f"{path} is not a tokenizer: {_checked[digest]}")


def _run_child(data: bytes) -> str:
    """Read the file in a child process and return the fault, if any."""
    packages = Path(tokenizers.__file__).parents[1]
    bounds = _ROOM + _TIMES * len(data), _SECONDS + len(data) // _PACE
    # -I and -S: neither the working directory nor the environment affects what the child imports
    order = [sys.executable, "-I", "-S", str(_CHILD), str(packages), *map(str, bounds)]
    quiet = {**os.environ, "RUST_BACKTRACE": "0", "TOKENIZERS_PARALLELISM": "false"}
    try:
        done = subprocess.run(order, input=data, capture_output=True, timeout=_WAIT, env=quiet, check=False)
    except subprocess.TimeoutExpired:
        return f"it could not be checked within {_WAIT} seconds"
    if not done.returncode:
        return ""
    if done.returncode == 1:
        return str(json.loads(done.stderr.splitlines()[-1]))
    return _ENDS.get(done.returncode, f"the process that checked it ended with {done.returncode}")
