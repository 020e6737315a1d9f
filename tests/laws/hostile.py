"""A law of model folders: one with wrong weights, or with an unknown part anywhere in its model, is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

import regard
from regard.errors import RegardError
from tests.hostile.place import CONFIG, WEIGHTS, Place

Tensors = dict[str, torch.Tensor]


def check_hostile(folder: Path, spare: Path) -> None:
    """Spoil copies of a folder in `spare`, each in one way, and seal them again: none is opened."""
    for number, spoil in enumerate(ways(json.loads((folder / CONFIG).read_bytes())["model"])):
        place = Place(shutil.copytree(folder, spare / str(number)), spare, spare)
        spoil(place)
        place.seal()
        with pytest.raises(RegardError):
            regard.load(place.folder)
        shutil.rmtree(place.folder)


def ways(model: Any) -> Iterator[Callable[[Place], None]]:
    """Everything that is done to a folder with this model."""
    yield lambda place: change_weights(place, lambda name, tensors: {k: v for k, v in tensors.items() if k != name})
    yield lambda place: change_weights(place, lambda name, tensors: {**tensors, "other.weight": tensors[name].clone()})
    yield lambda place: change_weights(place, lambda name, tensors: {**tensors, name: tensors[name].unsqueeze(0)})
    yield lambda place: place.write(WEIGHTS, b"\x80\x04cos\nsystem\n.")
    for path in kinds(model, "model"):
        yield lambda place, path=path: place.change(CONFIG, path, "os.system")  # type: ignore[misc]


def change_weights(place: Place, change: Callable[[str, Tensors], Tensors]) -> None:
    tensors = load((place.folder / WEIGHTS).read_bytes())
    place.write(WEIGHTS, save(change(max(tensors), tensors)))


def kinds(part: Any, path: str) -> Iterator[str]:
    """The places that say which kind a part is."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        if key == "kind":
            yield f"{path}.{key}"
        yield from kinds(value, f"{path}.{key}")
