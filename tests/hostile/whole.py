"""The honest folders that `folders.py` spoils: one of ours, one for Hugging Face, and a GGUF file; all of them tiny."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from regard.conversion.hf_export import export_model
from regard.conversion.task_config import make_lm
from regard.families import gpt
from regard.serialization.model_folder import write_model
from regard.text import Tokenizer
from regard.text.tokenizer_specs import Words

LINES = ["the cat sat on the mat", "a b a b the mat"] * 3


def make(ours: Path, theirs: Path) -> None:
    """A model of ours, and the same for Hugging Face."""
    tokenizer = Tokenizer.train(LINES, Words(min_count=1))
    spec = gpt.spec(width=8, depth=1, heads=2, vocab=tokenizer.size, length=16)
    net = spec.build(seed=1)
    name, task, search = make_lm(spec, tokenizer)
    write_model(ours, task=task, name=name, net=net, search=search, weights=net.state_dict(), card="# tiny\n")
    theirs.mkdir()
    for file, data in export_model(spec, net.state_dict(), task, search).files.items():
        (theirs / file).write_bytes(data)


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with this header, which may say anything of the bytes behind it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def gguf(pairs: bytes = b"", tensors: bytes = b"", counts: tuple[int, int] = (0, 0), version: int = 3) -> bytes:
    """A GGUF file: how many tensors and pairs it promises, and the bytes of both."""
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + pairs + tensors + bytes(64)


def text(word: bytes) -> bytes:
    return struct.pack("<Q", len(word)) + word


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
