"""Choice of the engine that runs a model, with its reason."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal, get_args

from regard.decode.engine import Engine
from regard.engine.fallback_engine import FallbackEngine
from regard.engine.native_engine import NativeEngine, Precision, has_float64, read_threads
from regard.engine.native_library import find_fault
from regard.engine.shortlist import Shortlist
from regard.engine.torch_engine import TorchEngine
from regard.engine.write_plan import describe_model, find_refusal
from regard.errors import SpecError, UnknownName
from regard.files.folder import WEIGHTS
from regard.files.tensors import pack
from regard.model.net import Net

EngineName = Literal["auto", "native", "torch"]
NAMES = get_args(EngineName)


@dataclasses.dataclass(frozen=True)
class EngineChoice:
    """An engine's name, and the reason for it in words."""

    name: str
    reason: str
    precision: Precision = "float32"
    """Precision of the weights that the native engine computes with."""


def choose_engine(net: Net, asked: str = "auto", device: str = "cpu", precision: Precision = "float32") -> EngineChoice:
    """The engine for a net. `auto` is the native one where it can run the model; another name is that engine or an error.

    `precision` is that of the weights in the model's folder.
    """
    if asked not in NAMES:
        raise UnknownName("engine", asked, NAMES)
    if asked == "torch":
        return EngineChoice("torch", "asked for")
    refusal = None if device == "cpu" else f"the native engine runs on the CPU, not on {device}"
    refusal = refusal or find_refusal(net) or find_fault()
    if refusal is None:
        reason = "asked for" if asked == "native" else "it runs this model on the CPU"
        return EngineChoice("native", reason, precision)
    if asked == "native":
        raise SpecError(f"engine native: {refusal}; use --engine auto")
    return EngineChoice("torch", refusal)


def open_engine(
    net: Net, chosen: EngineChoice, stored: bytes | None = None, *, shortlist: Shortlist | None = None
) -> Engine:
    """The chosen engine with the weights that the net has now; what it refuses is decoded by torch.

    `stored` is the weights file that the net was loaded from; the native engine can use a `shortlist`.
    """
    torch = TorchEngine(net)
    if chosen.name == "torch":
        return torch
    readable = stored is not None and not has_float64(stored, Path(WEIGHTS))
    native = open_native(net, chosen.precision, stored=stored if readable else None)
    if shortlist is not None:
        native.use_shortlist(shortlist)
    return FallbackEngine(native, torch)


def open_native(
    net: Net, precision: Precision = "float32", threads: int | None = None, *, stored: bytes | None = None
) -> NativeEngine:
    """The native engine for a net in memory, with a copy of its weights; or with those of the file that it was loaded from."""
    if stored is None:
        weights = {name: tensor.detach().cpu() for name, tensor in net.state_dict().items()}
        stored = pack({name: t.float() if t.is_floating_point() else t for name, t in weights.items()})
    threads = read_threads() if threads is None else threads
    return NativeEngine.open(describe_model(net), stored, precision=precision, threads=threads)
