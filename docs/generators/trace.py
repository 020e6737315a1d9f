"""The files a pair of texts passes from `regard train` to a saved folder, found by running them.

A tiny model is trained while a profiler notes each file of the package when a function of it is first called, and the
file that called it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import itertools
import os
import pkgutil
import sys
import tempfile
from pathlib import Path
from types import FrameType
from unittest import mock

import numpy as np
from torch import Tensor, nn

import regard
from docs.generators.spec_docs import first_line
from docs.generators.tree import PACKAGE

WORDS = ("zirkon", "quartz", "basalt", "marble")
PAIRS = [(f"{a} {b} .", f"{b} {a} !") for a in WORDS for b in ("red", "green", "blue", "black")]
SETTINGS = (
    "train.steps=2", "train.threads=1", "train.precision=float32", "train.schedule={kind: constant}",
    "model.width=16", "model.heads=2", "model.depth=1", "model.hidden=16", "data.tokenizer=chars",
)  # fmt: skip
COMMAND = ["train", "translate", "pairs.tsv", "--quiet", *(word for one in SETTINGS for word in ("--set", one))]
TRANSPARENT = {"spec.py", "registry.py", "errors.py"}
"""Machinery that calls back: what it calls is put down to who called it."""


def hops(everything: bool = False) -> list[tuple[str, str]]:
    """Each file that the pair passes, in order, with the file that called it ("" for the first).

    A file counts if one of its functions takes or returns texts, token ids, a batch or activations; with `everything`,
    if one of its functions is called at all.
    """
    _import_all()
    seen: dict[str, str] = {}
    folder = f"{PACKAGE}{os.sep}"
    clear = {f"{folder}{name}" for name in TRANSPARENT}

    def note(frame: FrameType, event: str, returned: object) -> None:
        name = frame.f_code.co_filename
        if event not in ("call", "return") or name in seen or not name.startswith(folder) or name in clear:
            return
        values = _arguments(frame) if event == "call" else [returned]
        if not everything and seen and not any(map(carries, values)):
            return
        caller = frame.f_back
        while caller is not None and (
            not caller.f_code.co_filename.startswith(folder) or caller.f_code.co_filename in {name, *clear}
        ):
            caller = caller.f_back
        seen[name] = "" if caller is None else caller.f_code.co_filename

    from regard.__main__ import main

    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        Path("pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
        quiet = io.TextIOWrapper(io.BytesIO())
        with mock.patch.multiple(sys, argv=["regard", *COMMAND], stdout=quiet, stderr=quiet):
            sys.setprofile(note)
            try:
                main()
            except SystemExit as end:
                if end.code:
                    quiet.flush()
                    raise RuntimeError(quiet.buffer.getvalue().decode()) from None  # type: ignore[attr-defined]
            finally:
                sys.setprofile(None)
    return [(_short(name), _short(caller)) for name, caller in seen.items()]


def carries(value: object, depth: int = 2) -> bool:
    """Whether a value is the pair, or holds it: its text, its tokens, what the model makes of them."""
    if isinstance(value, nn.Module | nn.Parameter | type):
        return False
    if isinstance(value, str):
        return any(word in value for word in WORDS)
    if isinstance(value, Tensor | np.ndarray):
        return value.ndim > 0
    if not depth:
        return False
    if dataclasses.is_dataclass(value):
        return any(carries(getattr(value, f.name, None), depth - 1) for f in dataclasses.fields(value))
    if isinstance(value, dict):
        return any(carries(one, depth - 1) for one in itertools.islice(value.values(), 4))
    return isinstance(value, list | tuple) and any(carries(one, depth - 1) for one in value[:4])


def _arguments(frame: FrameType) -> list[object]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals[name] for name in names if name in frame.f_locals]


def _import_all() -> None:
    """Import every module first, so that only calls of the run itself are seen."""
    for module in pkgutil.walk_packages(regard.__path__, "regard."):
        if not module.name.endswith(("__main__", "sandbox_child", "worker", "libregard_engine")):
            importlib.import_module(module.name)


def _short(name: str) -> str:
    return str(Path(name).relative_to(PACKAGE)) if name else ""


def page() -> str:
    """The files as a table."""
    rows = ["| | file | called by | what it is |", "|--:|---|---|---|"]
    for i, (name, caller) in enumerate(hops(), 1):
        rows.append(f"| {i} | `{name}` | {f'`{caller}`' if caller else '–'} | {first_line(PACKAGE / name)} |")
    return "\n".join(rows)
