"""Pickled weights: refused, unless trusted.

Opening a pickle can run any code that it names. Even a trusted file (`.bin`, `.pt`) runs none: torch reads it with
`weights_only`, in a child process with limits of time and memory, and what comes back is a safetensors file.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import CheckpointError
from regard.files.tensors import pack, read_tensors

if TYPE_CHECKING:
    from torch import Tensor

SECONDS = 600
"""Time limit of the child process."""

_ROOM = 4 << 30  # bytes, for torch itself
_TIMES = 4  # the bytes it may have on top, for each of the file's
_NESTS = ("state_dict", "model", "model_state_dict", "module")  # where trainers put the weights within what they save


def read(path: Path, trust: bool, *, seconds: float = SECONDS) -> dict[str, Tensor]:
    """Read the tensors of a pickle, if you `trust` its author."""
    if not trust:
        raise CheckpointError(
            f"{path} is refused: it is a pickle, and opening one can run any code it names; get the weights as safetensors, "
            "or say --trust-pickle if you know who made it: then it is opened in a process apart, as weights only"
        )
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}")
    room = _ROOM + _TIMES * path.stat().st_size
    with tempfile.TemporaryDirectory(prefix="regard-") as place:
        out = Path(place, "weights.safetensors")
        # -P: code in the current folder, perhaps the one the file came with, is not imported
        order = [
            sys.executable,
            "-P",
            "-m",
            "regard.conversion.pickle_weights",
            *map(str, (path.resolve(), out, room, seconds)),
        ]
        try:
            done = subprocess.run(order, capture_output=True, timeout=seconds, text=True, errors="replace", check=False)
        except subprocess.TimeoutExpired:
            raise CheckpointError(f"{path} was not read within {seconds:g} seconds; is it what it should be?") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()
            why = said[-1] if said else f"its process ended with {done.returncode}"
            raise CheckpointError(f"{path} holds no weights we can read: {why}")
        return read_tensors(out)


def extract_weights(saved: Any) -> dict[str, Tensor]:
    """The tensors by name in what torch loaded, perhaps nested in another dictionary."""
    import torch

    for name in _NESTS:
        if isinstance(saved, dict) and isinstance(saved.get(name), dict):
            saved = saved[name]
    if not isinstance(saved, dict):
        raise TypeError(f"it should be a dictionary of tensors, got {type(saved).__name__}")
    found = {str(name): tensor for name, tensor in saved.items() if isinstance(tensor, torch.Tensor)}
    if not found:
        raise TypeError(f"no tensors in it; there is {', '.join(map(str, [*saved][:5])) or 'nothing'}")
    return {name: tensor.detach() for name, tensor in found.items()}


def _child(path: str, out: str, room: str, seconds: str) -> int:
    """Set limits, read the pickle, write the tensors; the last line of an error is for the parent."""
    import pickle

    import torch

    resource.setrlimit(resource.RLIMIT_AS, (int(room), int(room)))
    resource.setrlimit(resource.RLIMIT_CPU, (int(float(seconds)) + 1,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)
    try:
        weights = extract_weights(torch.load(path, map_location="cpu", weights_only=True))
        Path(out).write_bytes(pack(weights))
    except (
        pickle.UnpicklingError,
        RuntimeError,
        TypeError,
        ValueError,
        EOFError,
        KeyError,
        OSError,
        MemoryError,
    ) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        print(json.dumps(first, ensure_ascii=False)[1:-1][:300], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_child(*sys.argv[1:]))
