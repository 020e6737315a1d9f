"""Base of the tasks that restore corrupted texts.

The encoder reads a corrupted text and the decoder writes what restores it. Documents are cut into chunks, and each chunk is
corrupted anew in every epoch. A subclass defines the corruption.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.batch import Batch
from regard.data.bucket import ComputedLengths
from regard.data.documents import DocumentUnit, EvenChunks
from regard.data.example_rng import ExampleRng, Rng
from regard.data.ragged import Ragged
from regard.errors import DataError
from regard.spec import Count, spec
from regard.tasks.common.data_settings import check_metrics
from regard.tasks.common.encoded_documents import StorePlace, encode_documents
from regard.tasks.common.fill_mask import find_unknown_texts
from regard.tasks.common.seq2seq import Seq2Seq
from regard.tasks.common.task import EvalSet, RunOptions
from regard.tasks.common.text_corpus import CorpusTask, TextData, Texts

Ids = NDArray[np.int32]


@spec
class CorruptionData(TextData):
    """Text files, and the length of texts."""

    documents: DocumentUnit = "blank"
    max_length: Count = 512
    """Maximum number of tokens on either side, end mark included; longer documents are cut into even parts."""
    metrics: tuple[str, ...] = ("loss",)

    def __post_init__(self) -> None:
        check_metrics(self.metrics)


class CorruptedLengths(ComputedLengths):
    """The lengths of source and target, which follow from the length of a chunk."""

    def __init__(self, chunks: EvenChunks, table: Sequence[tuple[int, int]]) -> None:
        self._chunks, self._table = chunks, np.array(table)

    def __len__(self) -> int:
        return len(self._chunks)

    def __getitem__(self, which: Any, /) -> NDArray[np.integer[Any]]:
        return np.asarray(self._table[self._chunks.lengths[which]])


@dataclasses.dataclass(frozen=True)
class CorruptedChunks:
    """Chunks of documents, and the random numbers of their corruption."""

    ids: EvenChunks
    lengths: CorruptedLengths
    left_out: int
    rng: ExampleRng = ExampleRng()
    groups: None = None
    shares: None = None

    def __len__(self) -> int:
        return len(self.ids)


S = TypeVar("S", bound=CorruptionData)


class CorruptionTask(Seq2Seq[S, RunOptions], CorpusTask[S]):
    """An encoder-decoder that restores texts."""

    Options = RunOptions
    settings: S
    data_hint = "name a text file with blank lines between documents, or set data.documents"

    # ------------------------------------------------------------------------------------------------ of each task

    def longest_chunk(self) -> int:
        """Number of tokens of the longest text that fits into `max_length` on either side."""
        raise NotImplementedError

    def corrupted_lengths(self, length: int) -> tuple[int, int]:
        """The maximum lengths of source and target of a chunk of so many tokens, at least two; end marks included."""
        raise NotImplementedError

    def corrupt(self, ids: Ids, rng: Rng) -> tuple[Ids, Ids]:
        """Return what the encoder reads of a chunk, and what the decoder should write."""
        raise NotImplementedError

    def encode_masked(self, inputs: Sequence[str]) -> list[list[int]]:
        """The tokens of texts in which users wrote masks."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------ of all

    def encode_texts(self, raw: Texts, place: StorePlace) -> CorruptedChunks:
        longest = self.longest_chunk()
        chunks = EvenChunks(encode_documents(raw.documents, self.tokenizer, place), longest, least=2)
        if not len(chunks):
            raise DataError("a text should have at least two tokens: one to corrupt and one to keep")
        table = [(0, 0), (0, 0), *map(self.corrupted_lengths, range(2, longest + 1))]
        return CorruptedChunks(chunks, CorruptedLengths(chunks, table), chunks.left_out)

    def augment(self, examples: CorruptedChunks, seed: int, epoch: int) -> CorruptedChunks:
        return dataclasses.replace(examples, rng=ExampleRng(seed, epoch))

    def batch(self, examples: CorruptedChunks, indices: NDArray[np.int64]) -> Batch:
        chunks = zip(indices.tolist(), examples.ids.take(indices), strict=True)
        pairs = [self.corrupt(ids, examples.rng.of(index)) for index, ids in chunks]
        source, target = (Ragged.of(side) for side in zip(*pairs, strict=True))
        return self.build_batch(source, target)

    def eval_sets(self, raw: Texts) -> list[EvalSet]:
        return []

    def find_too_long(self, inputs: Sequence[str], options: RunOptions = RunOptions()) -> list[int]:
        return [i for i, ids in enumerate(self.encode_masked(inputs)) if len(ids) >= self.settings.max_length]

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return find_unknown_texts(self.tokenizer, inputs)

    def encode_inputs(self, inputs: Sequence[str], options: RunOptions) -> list[list[int]]:
        return [[*ids[: self.settings.max_length - 1], self.tokenizer.eos] for ids in self.encode_masked(inputs)]
