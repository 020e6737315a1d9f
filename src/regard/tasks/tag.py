"""Token classification: one label per word or character."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from regard.data.batch import IGNORE
from regard.data.labels import Unit, read_tagged, split_units
from regard.data.pairs import Pairs
from regard.decode import Engine
from regard.errors import DataError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.spec import Plain, Share, spec
from regard.tasks.common.class_names import label_indices
from regard.tasks.common.classifier import add_class_head, average_log_probs, class_logits
from regard.tasks.common.encoder_frames import Numbers, TagFrame
from regard.tasks.common.encoder_input import check_length, encoder_pass, iterate_batches
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.labeled_texts import LabeledData, LabeledRows, LabeledTask
from regard.tasks.common.task import TASKS, EvalSet, RunOptions, check_pairs
from regard.tasks.common.text_frame import FramedText


@spec
class TagData(LabeledData):
    """The `data` part of a recipe: texts with one label per word or character. Long texts are read in parts."""

    unit: Unit = "words"
    dropout: Share = 0.1
    """Dropout before the classification head, if the model to start from has no such head."""


@TASKS.add
class Tag(TagFrame[Engine], LabeledTask[TagData]):
    """An encoder that labels each word or character."""

    Settings = TagData

    @property
    def max_length(self) -> int:
        return self.settings.max_length

    @property
    def unit(self) -> Unit:
        return self.settings.unit

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
        for (ids, first), row in zip(self.tokenize(texts), labels, strict=True):
            marks = np.full(len(ids), IGNORE)
            marks[first] = label_indices(split_units(row, self.settings.unit), self.classes, name)
            framed += [self.tokenizer.frame(piece) for piece in self.split_row(ids)]
            wanted += [self._align_labels(piece) for piece in self.split_row(marks.tolist())]
        return framed, wanted

    # ------------------------------------------------------------------------------------------------ to the user

    def frame(self) -> Plain:
        return {"kind": "tag", "max_length": self.settings.max_length, "unit": self.settings.unit}

    def token_log_probs(self, engine: Engine, rows: Sequence[FramedText]) -> list[Numbers]:
        found: list[Numbers] = [np.empty((0, len(self.classes)))] * len(rows)
        for indices, read in iterate_batches(rows, self.tokenizer.pad, engine.nets[0].device):
            with torch.no_grad():
                log_probs = (
                    average_log_probs([class_logits(net, read.given.ids, read.at(net)) for net in engine.nets])
                    .cpu()
                    .numpy()
                )
            for row, j in enumerate(indices):
                found[j] = log_probs[row, : len(rows[j][0])]
        return found

    def score(
        self, engine: Engine, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = RunOptions()
    ) -> list[float]:
        """log P(labels | text) for each pair."""
        check_pairs(inputs, outputs)
        out = []
        for log_probs, output in zip(self.label_log_probs(engine, inputs), outputs, strict=True):
            wanted = label_indices(split_units(output, self.settings.unit), self.classes, "what is asked about")
            if len(wanted) != len(log_probs):
                raise DataError(f"there are {len(log_probs)} {self.settings.unit} to label, got {len(wanted)} labels")
            out.append(float(log_probs[np.arange(len(wanted)), wanted].sum()))
        return out

    def forward_pass(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> ForwardPass:
        """The text, or the first part of a long one, and its labels."""
        ids, places = self.tokenize([text])[0]
        labels = label_indices(split_units(output, self.settings.unit), self.classes, "what is asked about")
        row = [IGNORE] * len(ids)
        for place, label in zip(places, labels, strict=False):
            row[place] = label
        part, wanted = self.split_row(ids)[0], self.split_row(row)[0]
        return encoder_pass(net, self.tokenizer, self.tokenizer.frame(part), self._align_labels(wanted))

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        return [EvalSet(pairs.source, pairs.target, RunOptions()) for pairs in raw]

    def _align_labels(self, labels: list[int]) -> list[int]:
        """The labels of a part, aligned with its tokens once it is framed."""
        front, back = self.around
        return [IGNORE] * front + labels + [IGNORE] * back
