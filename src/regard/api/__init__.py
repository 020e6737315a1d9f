"""The Python interface; the command line is a layer over it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.api.trained_model import Attention, Model

__all__ = ["Attention", "Model", "load", "train"]


def load(
    path: str | Path, *, device: str = "cpu", engine: str = "auto", set: Mapping[str, object] | None = None
) -> Model:
    """Load a model folder, or the final model of a run folder (or its best so far). Opening one never runs code.

    `engine` is what generates outputs: "native" (the library of the package), "torch", or "auto": the native one where
    it can run the model.
    `set` changes settings that no weight depends on: `{"model.decoder.block.mix.memory_length": 512}` gives a longer memory.
    """
    import torch  # here, as what follows: `regard run` may do without

    from regard.api.trained_model import Model
    from regard.engine.choose_engine import choose_engine, open_engine
    from regard.engine.native_engine import stored_precision
    from regard.engine.shortlist import SHORTLIST, Shortlist
    from regard.files.folder import WEIGHTS
    from regard.machine import resolve_device
    from regard.recipes.merge import merge_settings
    from regard.serialization.load import load_model
    from regard.serialization.model_folder import CARD, find_model

    folder = find_model(path)
    net, task, search = load_model(folder, merge_settings(set or {}))
    card = folder.files[CARD].decode(errors="replace") if CARD in folder.files else ""
    where = resolve_device(device)
    chosen = choose_engine(net, engine, where, stored_precision(folder[WEIGHTS], folder.path / WEIGHTS))
    given = Shortlist.from_bytes(folder[SHORTLIST], folder.path / SHORTLIST) if SHORTLIST in folder else None
    opened = open_engine(net.to(torch.device(where)), chosen, folder[WEIGHTS], shortlist=given)
    return Model(opened, task, search, folder.path, card, chosen)


def train(
    recipe: str | Mapping[str, object],
    data: Sequence[str | Path] = (),
    *,
    valid: Sequence[str | Path] = (),
    set: Mapping[str, object] | None = None,
    out: str | Path | None = None,
    start: str | Path | None = None,
    fresh: bool = False,
    anyway: bool = False,
    device: str = "auto",
    tensorboard: bool = False,
    quiet: bool = False,
) -> Model:
    """Train a model by a recipe and load the result.

    The same call again resumes an interrupted run, or loads a finished one; `fresh` starts over, and `anyway` resumes
    although the recipe or the data changed. `start` is a model to start from.
    """
    from regard.training.request import TrainRequest  # here: loading and using a model needs nothing of training
    from regard.training.train import run_training

    request = TrainRequest(
        recipe, tuple(map(str, data)), tuple(map(str, valid)), dict(set or {}), start=None if start is None else str(start),
        out=None if out is None else str(out), fresh=fresh, anyway=anyway, device=device, tensorboard=tensorboard, quiet=quiet,
    )  # fmt: skip
    return load(run_training(request))


def __getattr__(name: str) -> object:
    """Import a class when it is first used."""
    if name in ("Attention", "Model"):
        return getattr(importlib.import_module("regard.api.trained_model"), name)
    raise AttributeError(f"module 'regard.api' has no attribute {name!r}")
