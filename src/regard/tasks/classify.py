"""Sentence classification: a label for a text, or for two of them and how they stand to each other (Devlin et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.labels import read_labeled
from regard.data.pairs import Pairs
from regard.decode import Search
from regard.errors import DataError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.spec import Share, spec
from regard.tasks.common.classifier import fitted, logits, mixed, places, ranked
from regard.tasks.common.encoder_input import (
    Attention,
    Reading,
    Rows,
    attended,
    batches,
    demand_room,
    frame_all,
    whole_lengths,
)
from regard.tasks.common.labeled_texts import Labelled, LabelledData
from regard.tasks.common.losses import class_loss
from regard.tasks.common.task import TASKS, EvalSet, Loss, Output, RunOptions


@spec
class ClassifyData(LabelledData):
    """The `data` part of a recipe: texts and their labels, and what the classes are read from."""

    pair: bool = False
    """Texts come in twos (columns text, other, label); in use, a tab stands between them."""
    pool: Literal["first", "mean"] = "first"
    dropout: Share = 0.1
    """On what the classes are read from, where the model to start from has no such head."""


@TASKS.add
class Classify(Labelled):
    """An encoder that says what a text is."""

    Settings = ClassifyData

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics or ("accuracy", "macro_f1")

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def read_file(cls, settings: ClassifyData, path: str) -> Pairs:
        return read_labeled(path, pair=settings.pair, columns=settings.columns)

    @classmethod
    def labels(cls, settings: ClassifyData, pairs: Pairs) -> list[str]:
        return list(pairs.target)

    def model_arguments(self) -> dict[str, Any]:
        return {"vocab": self.target.size, "length": self.settings.max_length, "next_sentence": False}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        pool, dropout = self.settings.pool, self.settings.dropout
        spec = fitted(spec, len(self.classes), pool, hidden=True, dropout=dropout)
        return demand_room(spec, self.settings.max_length)

    def encode(self, raw: Sequence[Pairs]) -> Rows:
        texts = [text for pairs in raw for text in pairs.source]
        labels = [i for pairs in raw for i in places(pairs.target, self.classes, pairs.name)]
        return Rows.of(self._framed(texts), [[i] for i in labels])

    # ------------------------------------------------------------------------------------------------ to the model

    def batch(self, examples: Rows, indices: NDArray[np.int64]) -> Reading:
        return examples.batch(indices, self.target.pad)

    def loss(self, net: Net, batch: Reading, smoothing: float) -> Loss:
        tape = Tape()
        scores = logits(net, batch.given.ids, batch.at(net), tape)
        return class_loss(net, scores, batch.labels, smoothing, tape)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self, nets: Sequence[Net], inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """The likeliest classes of each text, best first, as many as `n_best`."""
        return [ranked(row, self.classes, search.n_best) for row in self._told(nets, inputs)]

    def score(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = RunOptions()
    ) -> list[float]:
        """log P(class | text) of each pair."""
        if len(inputs) != len(outputs):
            raise DataError(f"as many outputs as inputs are needed, got {len(outputs)} for {len(inputs)}")
        wanted = places(outputs, self.classes, "what is asked about")
        return [float(row[i]) for row, i in zip(self._told([net], inputs), wanted, strict=True)]

    def attention(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> Attention:
        """Attention weights (h, n, n) by place for the text."""
        return attended(net, self.target, self._framed([text])[0])

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        return [EvalSet(pairs.source, pairs.target, RunOptions()) for pairs in raw]

    def find_too_long(self, inputs: Sequence[str], options: RunOptions = RunOptions()) -> list[int]:
        lengths = whole_lengths(self.target, inputs, pair=self.settings.pair)
        return [i for i, length in enumerate(lengths) if length > self.settings.max_length]

    def _framed(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        return frame_all(self.target, texts, self.settings.max_length, pair=self.settings.pair)

    def _told(self, nets: Sequence[Net], inputs: Sequence[str]) -> Tensor:
        """log-probabilities (b, classes) of each input."""
        out = torch.zeros(len(inputs), len(self.classes), dtype=torch.double)
        for indices, read in batches(self._framed(inputs), self.target.pad, nets[0].device):
            with torch.no_grad():
                out[indices] = mixed([logits(net, read.given.ids, read.at(net)) for net in nets]).cpu()
        return out
