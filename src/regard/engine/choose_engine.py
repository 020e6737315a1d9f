"""Which engine runs a model, and why."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import torch

from regard.decode.engine import Engine, attach_engine
from regard.decode.fast_step import stamp_weights
from regard.engine import ctranslate2_engine
from regard.engine.native_engine import NativeEngine, Precision, has_float64, read_threads
from regard.engine.native_library import find_fault
from regard.engine.shortlist import Shortlist
from regard.engine.write_plan import describe_model, find_refusal
from regard.errors import SpecError, UnknownName
from regard.files.folder import WEIGHTS
from regard.files.tensors import pack
from regard.model.net import Net

EngineName = Literal["auto", "native", "ctranslate2", "torch"]
NAMES = get_args(EngineName)


@dataclasses.dataclass(frozen=True)
class Chosen:
    """An engine's name, and the reason for it in words."""

    name: str
    reason: str
    precision: Precision = "float32"
    """Of the weights that the native engine computes with."""


def choose_engine(net: Net, asked: str = "auto", device: str = "cpu", precision: Precision = "float32") -> Chosen:
    """The engine for a net. `auto` is the native one where it can run the model; another name is that engine or an error.

    `precision` is that of the weights in the model's folder.
    """
    if asked not in NAMES:
        raise UnknownName("engine", asked, NAMES)
    if asked == "torch":
        return Chosen("torch", "asked for")
    if asked == "ctranslate2":
        if refusal := ctranslate2_engine.find_refusal(net, device):
            raise SpecError(f"engine ctranslate2: {refusal}; use --engine auto")
        return Chosen("ctranslate2", "asked for")
    refusal = None if device == "cpu" else f"the native engine runs on the CPU, not on {device}"
    refusal = refusal or find_refusal(net) or find_fault()
    if refusal is None:
        return Chosen("native", "asked for" if asked == "native" else "it runs this model on the CPU", precision)
    if asked == "native":
        raise SpecError(f"engine native: {refusal}; use --engine auto")
    return Chosen("torch", refusal)


def use_engine(net: Net, chosen: Chosen, stored: bytes | None = None, *, shortlist: Shortlist | None = None) -> None:
    """Let the chosen engine decode in the place of the net.

    `stored` is the weights file that the net was loaded from; the native engine can use a `shortlist`.
    """
    if chosen.name == "torch":
        return
    if chosen.name == "ctranslate2":
        engine: Engine = ctranslate2_engine.CTranslate2Engine(net, threads=read_threads(), current=watch_weights(net))
    else:
        readable = stored is not None and not has_float64(stored, Path(WEIGHTS))
        engine = native = open_native(net, chosen.precision, stored=stored if readable else None)
        if shortlist is not None:
            native.use_shortlist(shortlist)
    attach_engine(net, engine)


def open_native(
    net: Net, precision: Precision = "float32", threads: int | None = None, *, stored: bytes | None = None
) -> NativeEngine:
    """The native engine for a net in memory, with a copy of its weights; or with those of the file that it was loaded from."""
    if stored is None:
        weights = {name: tensor.detach().cpu() for name, tensor in net.state_dict().items()}
        stored = pack({name: t.float() if t.is_floating_point() else t for name, t in weights.items()})
    threads = read_threads() if threads is None else threads
    return NativeEngine.open(
        describe_model(net), stored, precision=precision, threads=threads, current=watch_weights(net)
    )


def watch_weights(net: Net) -> Callable[[], bool]:
    """A function that tells whether the net still has the weights that it has now, and nobody watches or changes its layers."""
    there, stamp = weakref.ref(net), stamp_weights(net)

    def is_current() -> bool:
        net = there()
        if net is None or net.training or net.tape is not None or stamp_weights(net) != stamp:
            return False
        hooks = any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())
        return not hooks and not torch.is_autocast_enabled("cpu")

    return is_current
