"""Pickles in every disguise: opening one runs a command."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.hostile.place import CONFIG, TOKENS, WEIGHTS, add, both
from tests.hostile.whole import safetensors


class Bomb:
    """Unpickled, it runs a command."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.canary}",)


def _saved(canary: Path, *, zipped: bool) -> bytes:
    file = io.BytesIO()
    torch.save({"embed.weight": torch.ones(2), "x": Bomb(canary)}, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def _zipped(canary: Path) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb(canary)))
    return file.getvalue()


def _tarred(canary: Path) -> bytes:
    file, data = io.BytesIO(), pickle.dumps(Bomb(canary))
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("pickle")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()


def _array(canary: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Bomb(canary)], dtype=object), allow_pickle=True)
    return file.getvalue()


DISGUISES: dict[str, Callable[[Path], bytes]] = {
    "a pickle": lambda canary: pickle.dumps(Bomb(canary)),
    "a pickle in letters": lambda canary: pickle.dumps(Bomb(canary), 0),
    "what torch.save wrote": lambda canary: _saved(canary, zipped=True),
    "what torch.save wrote long ago": lambda canary: _saved(canary, zipped=False),
    "a zip with a pickle": _zipped,
    "a tar with a pickle": _tarred,
    "a gzip of a pickle": lambda canary: gzip.compress(pickle.dumps(Bomb(canary))),
    "a bz2 of a pickle": lambda canary: bz2.compress(pickle.dumps(Bomb(canary))),
    "an array of objects": _array,
}
for said, made in DISGUISES.items():
    both(f"weights are {said}", lambda p, made=made: p.write(WEIGHTS, made(p.canary)))
    both(f"the tokenizer is {said}", lambda p, made=made: p.write(TOKENS, made(p.canary)))
for name in ("pytorch_model.bin", "model.pt", "weights/model.pth", "model.ckpt", "model.pkl"):
    both(f"only {name}", lambda p, name=name: (p.clear(WEIGHTS), p.write(name, _saved(p.canary, zipped=True))))
add(
    "hf",
    "an index of pickles",
    lambda p: (
        p.clear(WEIGHTS),
        p.write("part.bin", _saved(p.canary, zipped=True)),
        p.write("pytorch_model.bin.index.json", b'{"weight_map": {"a": "part.bin"}}'),
    ),
)
both("the configuration is a pickle", lambda p: p.write(CONFIG, pickle.dumps(Bomb(p.canary), 0)))
both("a pickle behind a header", lambda p: p.write(WEIGHTS, safetensors({}, pickle.dumps(Bomb(p.canary)))))
both(
    "a pickle within the configuration",
    lambda p: p.change(
        CONFIG, "model" if "task" in p.read(CONFIG) else "model_type", pickle.dumps(Bomb(p.canary), 0).decode()
    ),
)
