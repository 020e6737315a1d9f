"""Starting from another model: what of its weights means the same is taken, and nothing of it goes unsaid.

Layers are the same by name and shape. Heads are not: a masked model's `head.dense` is no pooler, though it looks like one. So
a head's spec says which of its parts may start from another's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from regard.errors import SpecError
from regard.files.folder import Folder
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import HeadSpec
from regard.serialization.model_folder import read_config
from regard.spec import Spec
from regard.tasks.common.classifier import FILE, unpacked

NAMED = 6
"""So many weights are named before the rest are counted."""
OF_DATA = ("train", "valid", "generate", "filters", "on_bad")
"""Settings that say which data there is; a new run has its own."""
OF_VOCABULARY = ("tokenizer", "joint_vocab", "max_length")
"""Settings that go with the vocabulary, which a model keeps for life."""


@dataclasses.dataclass(frozen=True)
class Taken:
    """The names of the weights that came from the other model, of those it has in vain, and of those it could not give;
    and what those are called there that have another name.
    """

    taken: tuple[str, ...]
    left: tuple[str, ...]
    new: tuple[str, ...]
    lent: tuple[tuple[str, str], ...] = ()

    def lines(self, source: str) -> list[str]:
        out = [f"from {source}: {len(self.taken)} weights taken"]
        lent = [f"{ours} ({theirs})" for ours, theirs in self.lent]
        out += [f"taken from another place: {_listed(lent)}"] if lent else []
        out += [f"new, and yet to be learned: {_listed(self.new)}"] if self.new else []
        out += [f"left behind: {_listed(self.left)}"] if self.left else []
        return out


def take(net: Net, start: Folder, source: str, files: Mapping[str, bytes]) -> Taken:
    """Put into the net what fits it: of the ends what means the same by their specs, of the rest what has name and shape.

    `files` are the new task's own: classes of the same number may be others.
    """
    shapes, weights, old = net.shapes(), start.tensors(), ModelSpec.parse(read_config(start)["model"])
    ends = _ends(old, net.spec, known=_classes(files) == _classes(start.files))
    fits: dict[str, Tensor] = {}
    came: dict[str, str] = {}
    for name, shape in shapes.items():
        theirs = _theirs(name, ends)
        if theirs in weights and tuple(weights[theirs].shape) == shape and weights[theirs].is_floating_point():
            fits[name], came[name] = weights[theirs], theirs
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
    left = tuple(sorted(weights.keys() - came.values()))
    new = tuple(name for name in shapes if name not in fits)
    return Taken(tuple(came), left, new, tuple((ours, theirs) for ours, theirs in came.items() if ours != theirs))


def _ends(old: ModelSpec, new: ModelSpec, *, known: bool) -> dict[str, str]:
    """Where each part of the heads comes from: its own place, else the other head's pooler (BERT's next sentence)."""
    out: dict[str, str] = {}
    for end, aside in (("head", "beside"), ("beside", "head")):
        mine: HeadSpec | None = getattr(new, end)
        if mine is not None:
            lent = {part: aside for part in mine.shares(getattr(old, aside)) if part == "dense"}
            own = {part: end for part in mine.shares(getattr(old, end)) if part != "classes" or known}
            out |= {f"{end}.{part}": f"{place}.{part}" for part, place in (lent | own).items()}
    return out


def _classes(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """What a task's classes are called, if it has any."""
    return unpacked(files)["classes"] if FILE in files else ()


def _theirs(name: str, ends: Mapping[str, str]) -> str | None:
    """What the other model calls a weight of ours; None where it has nothing that means the same."""
    end, _, rest = name.partition(".")
    if end not in ("head", "beside"):
        return name
    part, _, leaf = rest.partition(".")
    found = ends.get(f"{end}.{part}")
    return None if found is None else f"{found}.{leaf}" if leaf else found


def inherited(start: Folder, task: str, settings: type[Spec]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parts of a recipe that come with a model, to be laid under what is asked for, and over it."""
    config = read_config(start)
    known = {f.name for f in dataclasses.fields(settings)}  # type: ignore[arg-type]
    own = {name: value for name, value in config["settings"].items() if name in known and name not in OF_DATA}
    same = config["task"] == task
    under = {"data": own, "decode": config["decode"]} if same else {}
    return under, {"data": {name: own[name] for name in OF_VOCABULARY if name in own}}


def _listed(names: Sequence[str]) -> str:
    more = f" … and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
