"""Token classification: one label per word or character."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import IGNORE
from regard.data.labels import Unit, join_units, read_tagged, split_units
from regard.data.pairs import Pairs
from regard.decode import Search
from regard.errors import DataError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.spec import Share, spec
from regard.tasks.common.classifier import add_class_head, average_log_probs, class_logits, label_indices
from regard.tasks.common.encoder_input import (
    EncodedTexts,
    EncoderBatch,
    FramedText,
    check_length,
    encoder_pass,
    iterate_batches,
)
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.labeled_texts import LabeledData, LabeledRows, LabeledTask
from regard.tasks.common.losses import class_loss
from regard.tasks.common.task import TASKS, EvalSet, Loss, Output, RunOptions, check_pairs
from regard.text import Tokenizer
from regard.text.word_ids import align_words

UNITS = {"words": re.compile(r"\S+"), "letters": re.compile(r"(?s).")}


@spec
class TagData(LabeledData):
    """The `data` part of a recipe: texts with one label per word or character. Long texts are read in parts."""

    unit: Unit = "words"
    dropout: Share = 0.1
    """Dropout before the classification head, if the model to start from has no such head."""


@TASKS.add
class Tag(LabeledTask[TagData]):
    """An encoder that labels each word or character."""

    Settings = TagData

    def __init__(self, settings: TagData, tokenizer: Tokenizer, classes: Sequence[str]) -> None:
        super().__init__(settings, tokenizer, classes)
        around, _ = tokenizer.frame([-1])
        self._front, self._back = around.index(-1), len(around) - around.index(-1) - 1

    @property
    def metrics(self) -> tuple[str, ...]:
        usual = {"words": ("word_accuracy", "word_macro_f1"), "letters": ("letter_accuracy", "letter_macro_f1")}
        return self.settings.metrics or usual[self.settings.unit]

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def read_file(cls, settings: TagData, path: str) -> Pairs:
        return read_tagged(path, settings.unit, columns=settings.columns, header=settings.header)

    @classmethod
    def list_labels(cls, settings: TagData, targets: Iterable[str]) -> Iterator[str]:
        return (label for row in targets for label in split_units(row, settings.unit))

    def model_arguments(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.size, "length": self.settings.max_length, "next_sentence": False}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        spec = add_class_head(spec, len(self.classes), None, hidden=False, dropout=self.settings.dropout)
        return check_length(spec, self.settings.max_length)

    def encode_rows(self, texts: Sequence[str], labels: Sequence[str], name: str) -> LabeledRows:
        framed, wanted = list[FramedText](), list[list[int]]()
        for (ids, first), row in zip(self._tokenize(texts), labels, strict=True):
            marks = np.full(len(ids), IGNORE)
            marks[first] = label_indices(split_units(row, self.settings.unit), self.classes, name)
            framed += [self.tokenizer.frame(piece) for piece in self._split(ids)]
            wanted += [self._align_labels(piece) for piece in self._split(marks.tolist())]
        return framed, wanted

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
        """The likeliest label of each word or character, in the format of the training data."""
        out = []
        for told in self._log_probs(nets, inputs):
            sure, best = told.max(-1) if len(told) else (torch.empty(0), torch.empty(0, dtype=torch.long))
            labels, total = [self.classes[i] for i in best.tolist()], float(sure.sum())
            more = {"labels": labels, "probabilities": sure.exp().tolist()}
            out.append([Output(join_units(labels, self.settings.unit), total / max(len(labels), 1), total, more)])
        return out

    def score(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = RunOptions()
    ) -> list[float]:
        """log P(labels | text) for each pair."""
        check_pairs(inputs, outputs)
        out = []
        for told, output in zip(self._log_probs([net], inputs), outputs, strict=True):
            wanted = label_indices(split_units(output, self.settings.unit), self.classes, "what is asked about")
            if len(wanted) != len(told):
                raise DataError(f"there are {len(told)} {self.settings.unit} to label, got {len(wanted)} labels")
            out.append(float(told.gather(1, torch.tensor(wanted, dtype=torch.long).unsqueeze(1)).sum()))
        return out

    def forward_pass(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> ForwardPass:
        """The text, or the first part of a long one, and its labels."""
        ids, places = self._tokenize([text])[0]
        labels = label_indices(split_units(output, self.settings.unit), self.classes, "what is asked about")
        row = [IGNORE] * len(ids)
        for place, label in zip(places, labels, strict=False):
            row[place] = label
        part, wanted = self._split(ids)[0], self._split(row)[0]
        return encoder_pass(net, self.tokenizer, self.tokenizer.frame(part), self._align_labels(wanted))

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        return [EvalSet(pairs.source, pairs.target, RunOptions()) for pairs in raw]

    def _tokenize(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        """The tokens of each text, and which of them represent its words or characters."""
        plain = [text.strip() for text in texts]
        where = [[found.span() for found in UNITS[self.settings.unit].finditer(text)] for text in plain]
        return align_words(self.tokenizer, plain, where)

    def _split(self, row: list[int]) -> list[list[int]]:
        """Parts that the model can read."""
        room = self.settings.max_length - self._front - self._back
        return [row[i : i + room] for i in range(0, max(len(row), 1), room)]

    def _align_labels(self, labels: list[int]) -> list[int]:
        """The labels of a part, aligned with its tokens once it is framed."""
        return [IGNORE] * self._front + labels + [IGNORE] * self._back

    def _log_probs(self, nets: Sequence[Net], inputs: Sequence[str]) -> list[Tensor]:
        """Log-probabilities (labels, classes) of the labels of each input."""
        texts = self._tokenize(inputs)
        pieces = [(i, piece) for i, (ids, _) in enumerate(texts) for piece in self._split(ids)]
        found = [torch.empty(0, len(self.classes), dtype=torch.double)] * len(pieces)
        for indices, read in iterate_batches(
            [self.tokenizer.frame(p) for _, p in pieces], self.tokenizer.pad, nets[0].device
        ):
            with torch.no_grad():
                told = average_log_probs([class_logits(net, read.given.ids, read.at(net)) for net in nets]).cpu()
            for row, j in enumerate(indices):
                found[j] = told[row, self._front : self._front + len(pieces[j][1])]
        whole: list[list[Tensor]] = [[] for _ in texts]
        for (i, _), part in zip(pieces, found, strict=True):
            whole[i].append(part)
        return [torch.cat(parts)[first] for parts, (_, first) in zip(whole, texts, strict=True)]
