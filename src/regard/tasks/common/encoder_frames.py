"""Texts to classes, labels and vectors, around an encoder.

A user of such a model needs it besides the model itself. Nothing here needs torch, so that a model can run without it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.labels import Unit, join_units
from regard.decode.search import Search
from regard.tasks.common.class_names import rank_classes
from regard.tasks.common.task import Output, RunOptions
from regard.tasks.common.text_frame import FramedText, count_tokens, frame_texts
from regard.text import Tokenizer
from regard.text.word_ids import align_words

N = TypeVar("N")
"""Reader of texts: an engine, or an encoder that the native engine runs."""
Numbers = NDArray[np.floating[Any]]
UNITS = {"words": re.compile(r"\S+"), "letters": re.compile(r"(?s).")}


class EncoderFrame(Generic[N]):
    """Reads texts of at most `max_length` tokens, special tokens included."""

    Options = RunOptions
    tokenizer: Tokenizer
    pair = False
    """True if a text is two, with a tab between them."""

    @property
    def max_length(self) -> int:
        raise NotImplementedError

    def frame_inputs(self, texts: Sequence[str]) -> list[FramedText]:
        return frame_texts(self.tokenizer, texts, self.max_length, pair=self.pair)

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return self.tokenizer.mostly_unknown(inputs)

    def _find_too_long(self, inputs: Sequence[str]) -> list[int]:
        lengths = count_tokens(self.tokenizer, inputs, pair=self.pair)
        return [i for i, length in enumerate(lengths) if length > self.max_length]


class ClassifyFrame(EncoderFrame[N]):
    """Assigns a class to a text."""

    classes: tuple[str, ...]

    def class_log_probs(self, engine: N, rows: Sequence[FramedText]) -> Numbers:
        """The log-probability of every class for each row, (b, classes); for an ensemble, of the mean."""
        raise NotImplementedError

    def run(
        self, engine: N, inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """The `n_best` likeliest classes of each text, best first."""
        found = self.class_log_probs(engine, self.frame_inputs(inputs)).tolist()
        return [rank_classes(row, self.classes, search.n_best) for row in found]

    def find_too_long(self, inputs: Sequence[str], options: RunOptions = RunOptions()) -> list[int]:
        return self._find_too_long(inputs)


class TagFrame(EncoderFrame[N]):
    """Labels each word or character of a text; a long text is read in parts."""

    classes: tuple[str, ...]

    @property
    def unit(self) -> Unit:
        raise NotImplementedError

    def token_log_probs(self, engine: N, rows: Sequence[FramedText]) -> list[Numbers]:
        """The log-probability of every class for each token of each row, (n, classes); for an ensemble, of the mean."""
        raise NotImplementedError

    def run(
        self, engine: N, inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """The likeliest label of each word or character, in the format of the training data."""
        out = []
        for log_probs in self.label_log_probs(engine, inputs):
            sure = log_probs.max(1) if len(log_probs) else np.zeros(0)
            labels, total = (
                [self.classes[i] for i in log_probs.argmax(1).tolist()] if len(log_probs) else [],
                float(sure.sum()),
            )
            more = {"labels": labels, "probabilities": np.exp(sure).tolist()}
            out.append([Output(join_units(labels, self.unit), total / max(len(labels), 1), total, more)])
        return out

    def label_log_probs(self, engine: N, inputs: Sequence[str]) -> list[Numbers]:
        """Log-probabilities (labels, classes) of the labels of each input."""
        texts = self.tokenize(inputs)
        pieces = [(i, piece) for i, (ids, _) in enumerate(texts) for piece in self.split_row(ids)]
        rows = self.token_log_probs(engine, [self.tokenizer.frame(piece) for _, piece in pieces])
        front, whole = self.around[0], [list[Numbers]() for _ in texts]
        for (i, piece), log_probs in zip(pieces, rows, strict=True):
            whole[i].append(log_probs[front : front + len(piece)])
        return [np.concatenate(parts)[first] for parts, (_, first) in zip(whole, texts, strict=True)]

    @property
    def around(self) -> tuple[int, int]:
        """The number of special tokens before and after a text."""
        row, _ = self.tokenizer.frame([-1])
        return row.index(-1), len(row) - row.index(-1) - 1

    def tokenize(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        """The tokens of each text, and which of them represent its words or characters."""
        plain = [text.strip() for text in texts]
        where = [[found.span() for found in UNITS[self.unit].finditer(text)] for text in plain]
        return align_words(self.tokenizer, plain, where)

    def split_row(self, row: list[int]) -> list[list[int]]:
        """Parts that the model can read."""
        room = self.max_length - sum(self.around)
        return [row[i : i + room] for i in range(0, max(len(row), 1), room)]


class EmbedFrame(EncoderFrame[N]):
    """Turns a text into a vector."""

    def embed_rows(self, engine: N, rows: Sequence[FramedText]) -> Numbers:
        """A vector for each row, (b, d), as the task's settings say; for an ensemble, the mean."""
        raise NotImplementedError

    def run(
        self, engine: N, inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """The vector of each text, as numbers separated by spaces; of an ensemble, the mean."""
        rows = self.embed_rows(engine, self.frame_inputs(inputs)).tolist()
        return [[Output(" ".join(f"{x:.6g}" for x in row), more={"vector": row})] for row in rows]

    def find_too_long(self, inputs: Sequence[str], options: RunOptions = RunOptions()) -> list[int]:
        return self._find_too_long(inputs)
