"""Fine-tuning: start from another model, choose what learns.

Weights of the other model are taken where they mean the same: layers by name and shape, heads by what their specs say (a
masked model's `head.dense` is no pooler, though it looks like one). Every weight is accounted for in the output.

freeze       the embedding and this many blocks of each stack, or whatever patterns name, stay as they are
layer_decay  each block learns slower than the one above it by this factor (Howard & Ruder 2018; Clark et al. 2020)
lora         low-rank adapters learn instead of the maps they stand beside (Hu et al. 2021)

height       0: embedding, and what a stack owns for all blocks    1 … n: its blocks    n + 1: its last norm, heads
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.engine.quantized_weights import restore_weights
from regard.errors import SpecError
from regard.files.folder import Folder
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import HeadSpec
from regard.nn.layers.lora import Lora, adapt
from regard.serialization.model_folder import read_config
from regard.spec import Plain, Spec, spec
from regard.tasks.common.class_names import CLASSES_FILE, unpack_classes

BLOCK = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.")
LOW = re.compile(r"(embed|source)\.|(encoder|decoder)\.(position|shared)\.")


@spec
class FineTuning(Spec):
    """Weights that learn. With `lora`, only the adapters and the weights that the initial model lacks."""

    freeze: Annotated[int, Field(ge=0)] | tuple[str, ...] = 0
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    lora: Lora | None = None

    def apply(self, net: nn.Module, new: Collection[str], seed: int) -> None:
        """Add adapters and freeze weights in place; `new` weights are those that the initial model lacks."""
        if self.lora is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                learns = {*adapt(net, self.lora), *new}
            for name, parameter in net.named_parameters():
                parameter.requires_grad_(name in learns)
        names = dict(net.named_parameters())
        for name in self._frozen(names):
            names[name].requires_grad_(False)
        if not any(p.requires_grad for p in names.values()):
            raise SpecError("train.finetune freezes every weight: nothing is left to train")

    def factors(self, names: Iterable[str]) -> dict[str, float]:
        """The factor of the learning rate for each weight."""
        heights = Heights(names := list(names))
        return {name: self.layer_decay ** heights.below(name) for name in names}

    def _frozen(self, names: Collection[str]) -> list[str]:
        if isinstance(self.freeze, int):
            heights = Heights(names)
            if self.freeze > heights.least:
                raise SpecError(f"train.finetune.freeze is {self.freeze} blocks, but a stack has only {heights.least}")
            return [name for name in names if self.freeze and heights.of(name) <= self.freeze]
        for pattern in self.freeze:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise SpecError(f"no weight matches {pattern!r} (train.finetune.freeze); `regard show` lists the names")
        return [name for name in names if any(fnmatchcase(name, pattern) for pattern in self.freeze)]


class Heights:
    """The height of each weight in its stack; see the module docstring."""

    def __init__(self, names: Iterable[str]) -> None:
        self.depths: dict[str, int] = {}
        for match in filter(None, map(BLOCK.match, names)):
            self.depths[match[1]] = max(self.depths.get(match[1], 0), int(match[2]) + 1)
        self.least, self.most = min(self.depths.values(), default=0), max(self.depths.values(), default=0)

    def of(self, name: str) -> int:
        if match := BLOCK.match(name):
            return int(match[2]) + 1
        return 0 if LOW.match(name) else self._top(name)

    def below(self, name: str) -> int:
        """The number of blocks from a weight to the top of its stack."""
        return self._top(name) - self.of(name)

    def _top(self, name: str) -> int:
        """One above the last block of its stack; for embedding and heads, of the deepest stack."""
        return self.depths.get(name.partition(".")[0], self.most) + 1


MAX_NAMES = 6
"""Maximum number of weights listed by name."""
OF_DATA = ("train", "valid", "generate", "filters", "on_bad", "columns", "header")
"""Settings that name the data; a new run has its own."""
OF_VOCABULARY = ("tokenizer", "joint_vocab", "max_length")
"""Settings of the vocabulary, which a model keeps."""


@dataclasses.dataclass(frozen=True)
class Initialization:
    """Names of the weights taken from the other model, of its unused ones, of new ones, and of those renamed."""

    taken: tuple[str, ...]
    left: tuple[str, ...]
    new: tuple[str, ...]
    lent: tuple[tuple[str, str], ...] = ()

    def lines(self, source: str) -> list[str]:
        out = [f"from {source}: {len(self.taken)} weights taken"]
        lent = [f"{ours} ({theirs})" for ours, theirs in self.lent]
        out += [f"taken from another part: {_list_names(lent)}"] if lent else []
        out += [f"new, to be trained: {_list_names(self.new)}"] if self.new else []
        out += [f"not used: {_list_names(self.left)}"] if self.left else []
        return out


def initialize_from(net: Net, start: Folder, source: str, files: Mapping[str, bytes]) -> Initialization:
    """Copy the weights that fit: layers by name and shape, heads by what their specs say.

    `files` are those of the new task: equally many classes may still be different ones.
    """
    shapes, weights, old = net.shapes(), restore_weights(start.tensors()), ModelSpec.parse(read_config(start)["model"])
    ends = _ends(old, net.spec, known=_classes(files) == _classes(start.files))
    fits: dict[str, Tensor] = {}
    came: dict[str, str] = {}
    for name, shape in shapes.items():
        theirs = _theirs(name, ends)
        if theirs in weights and tuple(weights[theirs].shape) == shape and weights[theirs].is_floating_point():
            fits[name], came[name] = weights[theirs], theirs
    maps = [name for name, shape in shapes.items() if len(shape) > 1]
    layers = [
        name for name in maps if name.startswith(("encoder.", "decoder."))
    ] or maps  # a memory network has only tables
    if not any(name in fits for name in layers):
        odd = [
            f"{name} should be {shapes[name]}, got {tuple(t.shape)}"
            for name, t in weights.items()
            if name in shapes and name not in fits
        ]
        raise SpecError(f"no layer of {source} fits this model: {'; '.join(odd) or 'no weight has a name in common'}")
    net.load_weights(fits)
    left = tuple(sorted(weights.keys() - came.values()))
    new = tuple(name for name in shapes if name not in fits)
    return Initialization(
        tuple(came), left, new, tuple((ours, theirs) for ours, theirs in came.items() if ours != theirs)
    )


def _ends(old: ModelSpec, new: ModelSpec, *, known: bool) -> dict[str, str]:
    """The source of each part of the heads: the same head, or the pooler of the other head (BERT's next sentence)."""
    out: dict[str, str] = {}
    for end, aside in (("head", "beside"), ("beside", "head")):
        mine: HeadSpec | None = getattr(new, end)
        if mine is not None:
            lent = {part: aside for part in mine.shares(getattr(old, aside)) if part == "dense"}
            own = {part: end for part in mine.shares(getattr(old, end)) if part != "classes" or known}
            out |= {f"{end}.{part}": f"{place}.{part}" for part, place in (lent | own).items()}
    return out


def _classes(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """The names of a task's classes, if it has any."""
    return unpack_classes(files)["classes"] if CLASSES_FILE in files else ()


def _theirs(name: str, ends: Mapping[str, str]) -> str | None:
    """The name of a weight in the other model; None if it has no equivalent."""
    end, _, rest = name.partition(".")
    if end not in ("head", "beside"):
        return name
    part, _, leaf = rest.partition(".")
    found = ends.get(f"{end}.{part}")
    return None if found is None else f"{found}.{leaf}" if leaf else found


def inherit_settings(start: Folder, task: str, settings: type[Spec]) -> tuple[Plain, Plain]:
    """The recipe settings that a model brings: defaults, and those that cannot be changed."""
    config = read_config(start)
    known = {f.name for f in dataclasses.fields(settings)}  # type: ignore[arg-type]
    own = {name: value for name, value in config["settings"].items() if name in known and name not in OF_DATA}
    same = config["task"] == task
    under = {"data": own, "decode": config["decode"]} if same else {}
    return under, {"data": {name: own[name] for name in OF_VOCABULARY if name in own}}


def _list_names(names: Sequence[str]) -> str:
    more = f" … and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
