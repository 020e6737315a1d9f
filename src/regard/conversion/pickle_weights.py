"""Pickled weights: refused, unless trusted.

Opening a pickle can run any code that it names. Even a trusted file (`.bin`, `.pt`) runs none: torch reads it with
`weights_only`, in a child process with limits on time and memory, and what comes back is a safetensors file.
"""

from __future__ import annotations

import io
import pickletools
import re
import resource
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import CheckpointError
from regard.files.tensors import pack, read_tensors

if TYPE_CHECKING:
    from torch import Tensor

SECONDS = 600
"""Time limit of the child process."""

_BASE_MEMORY = 4 << 30  # bytes that torch itself needs
_MEMORY_PER_BYTE = 4  # additional bytes per byte of the file
_NESTS = ("state_dict", "model", "model_state_dict", "module")  # where trainers put the weights in what they save
_DAMAGED, _REFUSED = 1, 2  # exit codes of the child
_MAX_PICKLE = 64 << 20  # bytes of a pickle that are searched for names
_MAX_NAMES = 3  # names of code in a message
_PLAIN = ("torch.", "collections.OrderedDict", "_codecs.encode")  # what files of weights name
_WAY_OUT = "get the weights as safetensors, or as a dictionary of tensors alone (torch.save(model.state_dict(), …))"


def read(path: Path, trust: bool, *, seconds: float = SECONDS) -> dict[str, Tensor]:
    """Read the tensors of a pickle, if you `trust` its author."""
    if not trust:
        raise CheckpointError(
            f"{path} is refused: it is a pickle, and opening a pickle can run any code that it names; get the weights as "
            "safetensors, or, if you know the author, add --trust-pickle: only tensors are read then, in a separate process"
        )
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}")
    memory = _BASE_MEMORY + _MEMORY_PER_BYTE * path.stat().st_size
    with tempfile.TemporaryDirectory(prefix="regard-") as place:
        out = Path(place, "weights.safetensors")
        # -P: code in the current folder, perhaps the one the file came with, is not imported
        order = [
            sys.executable,
            "-P",
            "-m",
            "regard.conversion.pickle_weights",
            *map(str, (path.resolve(), out, memory, seconds)),
        ]
        try:
            done = subprocess.run(order, capture_output=True, timeout=seconds, text=True, errors="replace", check=False)
        except subprocess.TimeoutExpired:
            raise CheckpointError(f"{path} could not be read within {seconds:g} seconds; {_WAY_OUT}") from None
        if done.returncode:
            raise CheckpointError(f"{path} {_read_reason(done.returncode, done.stderr)}")
        return read_tensors(out)


def _read_reason(code: int, said: str) -> str:
    """Tell why the child failed: in its own words, or by its exit code if it was killed."""
    lines = said.strip().splitlines()
    if code not in (_DAMAGED, _REFUSED) or not lines:
        return f"could not be read: the process that opened it ended with {code}; {_WAY_OUT}"
    verdict = "is refused, even with --trust-pickle" if code == _REFUSED else "has no usable weights"
    return f"{verdict}: {lines[-1]}; {_WAY_OUT}"


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
        keys = ", ".join(str(key)[:40] for key in [*saved][:5])
        raise TypeError(f"it should have tensors, got {keys or 'an empty dictionary'}")
    return {name: tensor.detach() for name, tensor in found.items()}


def find_code(path: Path) -> list[str]:
    """The functions and classes that a file names beyond those of tensors, in order; nothing of it is run."""
    found: dict[str, None] = {}
    for stream in _open_pickles(path):
        strings: list[str] = []
        with suppress(ValueError, IndexError, KeyError, UnicodeDecodeError):  # the end of what is a pickle
            while True:
                for code, value, _ in pickletools.genops(stream):
                    if code.name in ("GLOBAL", "INST"):
                        found[str(value).replace(" ", ".")] = None
                    elif code.name == "STACK_GLOBAL":  # the two texts before it
                        found[".".join(strings[-2:])] = None
                    elif isinstance(value, str):
                        strings = [*strings[-1:], value]
    return [name[:60] for name in found if not name.startswith(_PLAIN)]


def _open_pickles(path: Path) -> Iterator[io.BytesIO]:
    """The pickles in a file: those of an archive, or the file itself."""
    if zipfile.is_zipfile(path):
        with suppress(zipfile.BadZipFile, OSError, RuntimeError), zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith(".pkl"):
                    with archive.open(entry) as file:
                        yield io.BytesIO(file.read(_MAX_PICKLE))
        return
    with path.open("rb") as file:
        yield io.BytesIO(file.read(_MAX_PICKLE))


def _is_script(path: Path) -> bool:
    """True if a file is a TorchScript archive."""
    with suppress(zipfile.BadZipFile, OSError):
        return zipfile.is_zipfile(path) and any("/code/" in name for name in zipfile.ZipFile(path).namelist())
    return False


def explain_failure(error: BaseException, path: Path) -> tuple[int, str]:
    """The exit code and the reason why torch did not read a file, without torch's own advice."""
    if isinstance(error, MemoryError) or "allocate" in str(error):
        return _DAMAGED, "it needs too much memory for a file of its size"
    if isinstance(error, TypeError) and str(error).startswith("it should "):
        return _DAMAGED, str(error)
    if _is_script(path):
        return _REFUSED, "it is a TorchScript program, not a file of weights"
    names = find_code(path)
    if refused := re.search(r"GLOBAL ([\w.]+)", str(error)):  # the one that torch did not allow
        names = list(dict.fromkeys([refused[1], *names]))
    if names:
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        listed = ", ".join(names[:_MAX_NAMES]) + more
        return _REFUSED, f"it contains code or objects besides tensors ({listed}); nothing in it was run"
    return _DAMAGED, "it is damaged, or not a file that torch.save wrote"


def _child(path: str, out: str, memory: str, seconds: str) -> int:
    """Set limits, read the pickle, write the tensors; the last line of an error is for the parent."""
    import torch

    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (int(float(seconds)) + 1,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)
    try:
        weights = extract_weights(torch.load(path, map_location="cpu", weights_only=True))
        Path(out).write_bytes(pack(weights))
    except Exception as error:  # whatever a damaged file makes torch raise
        code, reason = explain_failure(error, Path(path))
        print(reason.encode("unicode_escape").decode(), file=sys.stderr)
        return code
    return 0


if __name__ == "__main__":
    sys.exit(_child(*sys.argv[1:]))
