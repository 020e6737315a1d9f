"""Starting from another model: what of its weights fits is taken, by name and shape, and nothing of it goes unsaid."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from regard.errors import SpecError
from regard.folder import Folder
from regard.model.model import Net
from regard.model.spec import ModelSpec
from regard.spec import Spec
from regard.training.export import config_of

NAMED = 6
"""So many weights are named before the rest are counted."""
OF_DATA = ("train", "valid", "generate")
"""Settings that say which data there is; a new run has its own."""
OF_VOCABULARY = ("tokenizer", "joint", "longest")
"""Settings that go with the vocabulary, which a model keeps for life."""


@dataclasses.dataclass(frozen=True)
class Taken:
    """The names of the weights that came from the other model, of those it has in vain, and of those it could not give."""

    taken: tuple[str, ...]
    left: tuple[str, ...]
    new: tuple[str, ...]

    def lines(self, source: str) -> list[str]:
        out = [f"from {source}: {len(self.taken)} weights taken"]
        out += [f"new, and yet to be learned: {_listed(self.new)}"] if self.new else []
        out += [f"left behind: {_listed(self.left)}"] if self.left else []
        return out


def take(net: Net, start: Folder, source: str) -> Taken:
    """Put into the net what fits it. Of a head of another kind nothing does, whatever its weights are called."""
    shapes, weights, old = net.shapes(), start.tensors(), ModelSpec.parse(config_of(start)["model"])
    strange = tuple(
        f"{end}." for end in ("head", "beside") if type(getattr(old, end)) is not type(getattr(net.spec, end))
    )
    fits = {name: t for name, t in weights.items() if shapes.get(name) == tuple(t.shape) and t.is_floating_point()}
    fits = {name: t for name, t in fits.items() if not name.startswith(strange)}
    if not any(name.startswith(("encoder.", "decoder.")) and t.dim() > 1 for name, t in fits.items()):
        odd = [
            f"{name} should be {shapes[name]}, got {tuple(t.shape)}"
            for name, t in weights.items()
            if name in shapes and name not in fits
        ]
        raise SpecError(
            f"no layer of {source} fits the model asked for: {'; '.join(odd) or 'no weight has a name in common'}"
        )
    net.put(fits)
    left, new = (tuple(name for name in names if name not in fits) for names in (sorted(weights), shapes))
    return Taken(tuple(name for name in shapes if name in fits), left, new)


def inherited(start: Folder, task: str, settings: type[Spec]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parts of a recipe that come with a model, to be laid under what is asked for, and over it."""
    config = config_of(start)
    known = {f.name for f in dataclasses.fields(settings)}  # type: ignore[arg-type]
    own = {name: value for name, value in config["settings"].items() if name in known and name not in OF_DATA}
    same = config["task"] == task
    under = {"data": own, "decode": config["decode"]} if same else {}
    return under, {"data": {name: own[name] for name in OF_VOCABULARY if name in own}}


def _listed(names: Sequence[str]) -> str:
    more = f" … and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
