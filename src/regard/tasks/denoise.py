"""Denoising, the pre-training of BART.

An encoder-decoder reads a text with noise and writes it as it was (Lewis et al. 2019). What it has learned is a start for
summaries and other text to text (`--from`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.batch import Batch
from regard.data.bucket import ComputedLengths
from regard.data.denoising import Noise
from regard.data.documents import DocumentUnit, EvenChunks
from regard.data.example_rng import ExampleRng
from regard.data.ragged import Ragged
from regard.decode import Constraints, Draw, Search
from regard.errors import DataError, SpecError
from regard.model.net import Net
from regard.spec import Count, spec
from regard.tasks.common.data_settings import check_metrics
from regard.tasks.common.encoded_documents import StorePlace, encode_documents
from regard.tasks.common.fill_mask import MASKS, encode_masked, find_unknown_texts
from regard.tasks.common.seq2seq import Seq2Seq
from regard.tasks.common.task import TASKS, EvalSet, Output, RunOptions
from regard.tasks.common.text_corpus import CorpusTask, TextData, Texts
from regard.text import Bpe, Tokenizer, TokenizerSpec
from regard.text.words import SentenceEnds


@spec
class DenoiseData(TextData):
    """The `data` part of a recipe: text files, the length of texts, and the noise."""

    documents: DocumentUnit = "blank"
    tokenizer: TokenizerSpec = Bpe()
    max_length: Count = 512
    """Maximum number of tokens on either side, end mark included; longer documents are cut into even parts."""
    noise: Noise = Noise()
    """How a text is damaged before it is read."""
    metrics: tuple[str, ...] = ("loss",)

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        if self.max_length < 3:
            raise SpecError(
                f"max_length={self.max_length} leaves no room for a text of two tokens and its end; raise it"
            )


class WholeLengths(ComputedLengths):
    """The lengths of source and target: a text with noise is at most as long as the text."""

    def __init__(self, chunks: EvenChunks) -> None:
        self._chunks = chunks

    def __len__(self) -> int:
        return len(self._chunks)

    def __getitem__(self, which: Any, /) -> NDArray[np.integer[Any]]:
        return np.stack([self._chunks.lengths[which] + 1] * 2, -1)


@dataclasses.dataclass(frozen=True)
class DenoiseExamples:
    """Chunks of text, and the random numbers of their noise."""

    ids: EvenChunks
    lengths: WholeLengths
    left_out: int
    rng: ExampleRng = ExampleRng()
    groups: None = None
    shares: None = None

    def __len__(self) -> int:
        return len(self.ids)


@TASKS.add
class Denoise(Seq2Seq[DenoiseData, RunOptions], CorpusTask[DenoiseData]):
    """An encoder-decoder that restores a text."""

    Settings = DenoiseData
    Options = RunOptions
    settings: DenoiseData
    data_hint = "name a text file with blank lines between documents, or set data.documents"

    def __init__(self, settings: DenoiseData, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        found = [name for name in MASKS if name in tokenizer.tags]
        if not found:
            raise SpecError(
                f"this vocabulary has no mask token ({' or '.join(MASKS)}); start from a model trained by denoising"
            )
        self.mask, self._ends = tokenizer.tag(found[0]), SentenceEnds(tokenizer)

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def special_tokens(cls, settings: DenoiseData) -> Sequence[str]:
        return [MASKS[0]]

    def model_arguments(self) -> dict[str, int]:
        return {
            "vocab": self.tokenizer.size,
            "length": self.settings.max_length + 2,
            "start": self.tokenizer.bos,
        }

    def encode_texts(self, raw: Texts, place: StorePlace) -> DenoiseExamples:
        documents = encode_documents(raw.documents, self.tokenizer, place)
        chunks = EvenChunks(documents, self.settings.max_length - 1, least=2)
        if not len(chunks):
            raise DataError("a text should have at least two tokens: one to hide and one to keep")
        return DenoiseExamples(chunks, WholeLengths(chunks), chunks.left_out)

    # ------------------------------------------------------------------------------------------------ to the model

    def augment(self, examples: DenoiseExamples, seed: int, epoch: int) -> DenoiseExamples:
        return dataclasses.replace(examples, rng=ExampleRng(seed, epoch))

    def batch(self, examples: DenoiseExamples, indices: NDArray[np.int64]) -> Batch:
        whole = examples.ids.take(indices)
        noise = self.settings.noise
        damaged = [
            noise.apply(ids, self._ends.find(ids), self.mask, examples.rng.of(index))
            for index, ids in zip(indices.tolist(), whole, strict=True)
        ]
        return self.build_batch(Ragged.of(damaged), whole)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self, nets: Sequence[Net], inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """Each text as the model would have it; masks in it stand for any number of tokens."""
        draw = Draw(range(options.first, options.first + len(inputs)))
        found = self.generate(
            nets,
            self.encode_inputs(inputs, options),
            search,
            self.settings.max_length,
            draw,
            Constraints([self.tokenizer.unk, self.mask]),
        )
        return [[Output(self.tokenizer.decode(h.tokens), h.score, h.log_prob) for h in each] for each in found]

    def eval_sets(self, raw: Texts) -> list[EvalSet]:
        return []

    def find_too_long(self, inputs: Sequence[str], options: RunOptions = RunOptions()) -> list[int]:
        return [i for i, ids in enumerate(self._encode_masked(inputs)) if len(ids) >= self.settings.max_length]

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return find_unknown_texts(self.tokenizer, inputs)

    def encode_inputs(self, inputs: Sequence[str], options: RunOptions) -> list[list[int]]:
        return [[*ids[: self.settings.max_length - 1], self.tokenizer.eos] for ids in self._encode_masked(inputs)]

    def encode_outputs(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_all(outputs)

    def _encode_masked(self, inputs: Sequence[str]) -> list[list[int]]:
        return encode_masked(self.tokenizer, inputs, lambda _: self.mask)
