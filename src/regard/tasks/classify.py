"""Text classification: one label per text or pair of texts.

An encoder with a classification head (Devlin et al. 2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.labels import read_labeled
from regard.data.pairs import Pairs
from regard.decode import Engine
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.spec import Plain, Share, spec
from regard.tasks.common.class_names import label_indices
from regard.tasks.common.classifier import add_class_head, average_log_probs, class_logits, wanted_class
from regard.tasks.common.encoder_frames import ClassifyFrame
from regard.tasks.common.encoder_input import check_length, encoder_pass, iterate_batches
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.labeled_texts import LabeledData, LabeledRows, LabeledTask
from regard.tasks.common.task import TASKS, EvalSet, RunOptions, check_pairs
from regard.tasks.common.text_frame import FramedText
from regard.text import Tokenizer


@spec
class ClassifyData(LabeledData):
    """The `data` part of a recipe: labeled texts, and how they are classified."""

    pair: bool = False
    """Texts come in pairs (columns text, other, label). In use, a tab separates them."""
    pool: Literal["first", "mean"] = "first"
    dropout: Share = 0.1
    """Dropout before the classification head, if the model to start from has no such head."""


@TASKS.add
class Classify(ClassifyFrame[Engine], LabeledTask[ClassifyData]):
    """An encoder that assigns a class to a text."""

    Settings = ClassifyData

    def __init__(self, settings: ClassifyData, tokenizer: Tokenizer, classes: Sequence[str]) -> None:
        super().__init__(settings, tokenizer, classes)
        self.pair = settings.pair

    @property
    def max_length(self) -> int:
        return self.settings.max_length

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
        return self.frame_inputs(texts), [[i] for i in label_indices(labels, self.classes, name)]

    # ------------------------------------------------------------------------------------------------ to the user

    def frame(self) -> Plain:
        return {"kind": "classify", "max_length": self.settings.max_length, "pair": self.settings.pair}

    def class_log_probs(self, engine: Engine, rows: Sequence[FramedText]) -> NDArray[np.floating[Any]]:
        out = torch.zeros(len(rows), len(self.classes), dtype=torch.double)
        for indices, read in iterate_batches(rows, self.tokenizer.pad, engine.nets[0].device):
            with torch.no_grad():
                out[indices] = average_log_probs(
                    [class_logits(net, read.given.ids, read.at(net)) for net in engine.nets]
                ).cpu()
        return out.numpy()

    def score(
        self, engine: Engine, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = RunOptions()
    ) -> list[float]:
        """log P(class | text) for each pair."""
        check_pairs(inputs, outputs)
        wanted = label_indices(outputs, self.classes, "what is asked about")
        found = self.class_log_probs(engine, self.frame_inputs(inputs))
        return [float(row[i]) for row, i in zip(found, wanted, strict=True)]

    def forward_pass(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> ForwardPass:
        """The text, and its class."""
        return encoder_pass(net, self.tokenizer, self.frame_inputs([text])[0], wanted_class(output, self.classes))

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        return [EvalSet(pairs.source, pairs.target, RunOptions()) for pairs in raw]
