"""The Python interface: `regard.load`, `regard.train` and the `Model` they give. The command line is a thin layer over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.decode import Search
from regard.errors import SpecError, UnknownName
from regard.machine import resolve_device
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.recipes.merge import merge, nest
from regard.serialization.load import load_model
from regard.serialization.model_folder import find_model
from regard.tasks.common.capabilities import Aligns, Attends, Embeds, Generates, Scores, require
from regard.tasks.common.encoder_input import Pool
from regard.tasks.common.task import Output, RunOptions, Task
from regard.tasks.common.word_scores import Confidence
from regard.text import Tokenizer

SEARCH = frozenset(field.name for field in dataclasses.fields(Search))


@dataclasses.dataclass(frozen=True)
class Attention:
    """Weights (h, n, m) by the dotted name of where they are, with the tokens along both sides."""

    weights: dict[str, Tensor]
    source: list[str]
    target: list[str]

    def __getitem__(self, name: str) -> Tensor:
        return self.weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def keys(self) -> list[str]:
        return list(self.weights)


class Model:
    """A trained model, ready for use."""

    def __init__(self, net: Net, task: Task, search: Search, path: Path) -> None:
        self.net, self.task, self.search, self.path = net, task, search, path

    @property
    def spec(self) -> ModelSpec:
        """The value that built the model."""
        return self.net.spec

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokeniser of what the model writes, or reads where it writes no text."""
        if self.task.target is None:
            raise SpecError(f"{self.path} reads and writes no text, so it has no tokeniser")
        return self.task.target

    @property
    def options(self) -> list[str]:
        """What `run` can be told by name: the settings of `Search`, and what the task adds."""
        return sorted({*SEARCH, *(field.name for field in dataclasses.fields(require(self.task, Generates).Options))})

    def run(self, inputs: Sequence[str], **options: Any) -> list[str]:
        """The best output for each input. Options are those of `Search` (`beam=5`, `sample=True`, …) and of the task."""
        return [each[0].text if each else "" for each in self.run_all(inputs, **options)]

    def run_all(self, inputs: Sequence[str], *, others: Sequence[Model] = (), **options: Any) -> list[list[Output]]:
        """All `n_best` outputs with their scores, best first; `others` join as an ensemble."""
        if isinstance(inputs, str):
            raise SpecError("run takes a list of texts, got one text; write model.run([text])")
        task, own = require(self.task, Generates), self.own_options(options, besides=SEARCH)
        search = Search.parse({**self.search.plain(), **{k: v for k, v in options.items() if k in SEARCH}})
        for other in others:
            if other.task.files() != self.task.files():
                raise SpecError(f"{other.path} has another vocabulary than {self.path}; an ensemble must share one")
        nets = [self.net, *(other.net for other in others)]
        return task.run(nets, list(inputs), search, own)

    def own_options(self, options: Mapping[str, Any], *, besides: Collection[str] = ()) -> RunOptions:
        """The options that the task itself takes. Names in `besides` are left out; any other name is an error."""
        kind = require(self.task, Generates).Options
        known = {field.name for field in dataclasses.fields(kind)}
        for name in options:
            if name not in known and name not in besides:
                raise UnknownName("option", name, sorted({*known, *besides}))
        return kind(**{name: value for name, value in options.items() if name in known})

    def embed(self, texts: Sequence[str], *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        """A vector for each text (b, d), of an encoder model; `pool="first"` or "mean", `unit=False` for any length.

        As it is, vectors have length one: their products are cosines.
        """
        return require(self.task, Embeds).embed(self.net, texts, pool=pool, unit=unit)

    def score(self, inputs: Sequence[str], outputs: Sequence[str], **options: Any) -> list[float]:
        """log P(output | input) of each pair."""
        return require(self.task, Scores).score(self.net, inputs, outputs, self.own_options(options))

    def confidence(self, inputs: Sequence[str], outputs: Sequence[str], **options: Any) -> list[Confidence]:
        """How probable each word of each output is, after those before it: `.words`, `.probs`, and `.end` after them."""
        return require(self.task, Aligns).confidence(self.net, inputs, outputs, self.own_options(options))

    def align(
        self, inputs: Sequence[str], outputs: Sequence[str], *, layer: int | None = None, **options: Any
    ) -> list[list[tuple[int, int]]]:
        """For each word of each output the word of its input that was looked at most: (input word, output word), from 0.

        `layer` of the decoder, counted from 0 or from the end, says by which attention; else the last but one of three or more.
        """
        return require(self.task, Aligns).align(self.net, inputs, outputs, self.own_options(options), layer=layer)

    def attention(self, text: str, output: str | None = None, **options: Any) -> Attention:
        """Attention weights for one text and its output (the model's own unless given), by place, with token labels."""
        output = self.run([text], **options)[0] if output is None else output
        task = require(self.task, Attends)
        weights, source, target = task.attention(self.net, text, output, self.own_options(options, besides=SEARCH))
        return Attention(weights, source, target)

    def to(self, device: str) -> Model:
        self.net.to(device)
        return self

    def __repr__(self) -> str:
        return f"Model({str(self.path)!r}, {sum(p.numel() for p in self.net.parameters()):,} parameters)"


def load(path: str | Path, *, device: str = "cpu", set: Mapping[str, Any] | None = None) -> Model:
    """A model from its folder, or the best of a run folder. Opening one never runs code.

    `set` changes what no weight depends on: `{"model.decoder.block.mix.memory_length": 512}` gives it a longer memory.
    """
    folder = find_model(path)
    net, task, search = load_model(folder, merge(*(nest(name, value) for name, value in (set or {}).items())))
    return Model(net.to(torch.device(resolve_device(device))), task, search, folder.path)


def train(
    recipe: str | Mapping[str, Any],
    data: Sequence[str] = (),
    *,
    valid: Sequence[str] = (),
    set: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    start: str | Path | None = None,
    fresh: bool = False,
    anyway: bool = False,
    device: str = "auto",
    quiet: bool = False,
) -> Model:
    """Train as a recipe says and load the result. The same call again resumes, if nothing changed or `anyway`; `fresh`
    starts over."""
    from regard.training.request import TrainRequest  # here: a model is loaded and used without any of training
    from regard.training.train import run_training

    order = TrainRequest(
        recipe, tuple(map(str, data)), tuple(map(str, valid)), dict(set or {}), start=None if start is None else str(start),
        out=None if out is None else str(out), fresh=fresh, anyway=anyway, device=device, quiet=quiet,
    )  # fmt: skip
    return load(run_training(order))
