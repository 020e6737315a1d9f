"""Text classification: one label per text or pair of texts.

An encoder with a classification head (Devlin et al. 2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.labels import read_labeled
from regard.data.pairs import Pairs
from regard.decode import Search
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.spec import Share, spec
from regard.tasks.common.classifier import (
    add_class_head,
    average_log_probs,
    class_logits,
    label_indices,
    rank_classes,
    wanted_class,
)
from regard.tasks.common.encoder_input import (
    EncodedTexts,
    EncoderBatch,
    check_length,
    count_tokens,
    encoder_pass,
    frame_texts,
    iterate_batches,
)
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.labeled_texts import LabeledData, LabeledRows, LabeledTask
from regard.tasks.common.losses import class_loss
from regard.tasks.common.task import TASKS, EvalSet, Loss, Output, RunOptions, check_pairs


@spec
class ClassifyData(LabeledData):
    """The `data` part of a recipe: labeled texts, and how they are classified."""

    pair: bool = False
    """Whether texts come in pairs (columns text, other, label). In use, a tab separates them."""
    pool: Literal["first", "mean"] = "first"
    dropout: Share = 0.1
    """Dropout before the classification head, if the model to start from has no such head."""


@TASKS.add
class Classify(LabeledTask[ClassifyData]):
    """An encoder that assigns a class to a text."""

    Settings = ClassifyData

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics or ("accuracy", "macro_f1")

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def read_file(cls, settings: ClassifyData, path: str) -> Pairs:
        return read_labeled(path, pair=settings.pair, columns=settings.columns, header=settings.header)

    @classmethod
    def list_labels(cls, settings: ClassifyData, targets: Iterable[str]) -> Iterator[str]:
        return iter(targets)

    def model_arguments(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.size, "length": self.settings.max_length, "next_sentence": False}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        pool, dropout = self.settings.pool, self.settings.dropout
        spec = add_class_head(spec, len(self.classes), pool, hidden=True, dropout=dropout)
        return check_length(spec, self.settings.max_length)

    def encode_rows(self, texts: Sequence[str], labels: Sequence[str], name: str) -> LabeledRows:
        return self._frame(texts), [[i] for i in label_indices(labels, self.classes, name)]

    # ------------------------------------------------------------------------------------------------ to the model

    def batch(self, examples: EncodedTexts, indices: NDArray[np.int64]) -> EncoderBatch:
        return examples.batch(indices, self.tokenizer.pad)

    def loss(self, net: Net, batch: EncoderBatch, smoothing: float) -> Loss:
        tape = Tape()
        scores = class_logits(net, batch.given.ids, batch.at(net), tape)
        return class_loss(net, scores, batch.labels, smoothing, tape)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self, nets: Sequence[Net], inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """The `n_best` likeliest classes of each text, best first."""
        return [rank_classes(row, self.classes, search.n_best) for row in self._log_probs(nets, inputs)]

    def score(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = RunOptions()
    ) -> list[float]:
        """log P(class | text) for each pair."""
        check_pairs(inputs, outputs)
        wanted = label_indices(outputs, self.classes, "what is asked about")
        return [float(row[i]) for row, i in zip(self._log_probs([net], inputs), wanted, strict=True)]

    def forward_pass(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> ForwardPass:
        """The text, and its class."""
        return encoder_pass(net, self.tokenizer, self._frame([text])[0], wanted_class(output, self.classes))

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        return [EvalSet(pairs.source, pairs.target, RunOptions()) for pairs in raw]

    def find_too_long(self, inputs: Sequence[str], options: RunOptions = RunOptions()) -> list[int]:
        lengths = count_tokens(self.tokenizer, inputs, pair=self.settings.pair)
        return [i for i, length in enumerate(lengths) if length > self.settings.max_length]

    def _frame(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        return frame_texts(self.tokenizer, texts, self.settings.max_length, pair=self.settings.pair)

    def _log_probs(self, nets: Sequence[Net], inputs: Sequence[str]) -> Tensor:
        """Log-probabilities (b, classes) of the classes."""
        out = torch.zeros(len(inputs), len(self.classes), dtype=torch.double)
        for indices, read in iterate_batches(self._frame(inputs), self.tokenizer.pad, nets[0].device):
            with torch.no_grad():
                out[indices] = average_log_probs(
                    [class_logits(net, read.given.ids, read.at(net)) for net in nets]
                ).cpu()
        return out
