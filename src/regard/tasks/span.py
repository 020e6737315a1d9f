"""Span corruption, the pre-training of T5.

An encoder-decoder reads a text with masked spans and writes them (Raffel et al. 2019).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.batch import Batch
from regard.data.bucket import ComputedLengths
from regard.data.documents import DocumentUnit, EvenChunks
from regard.data.example_rng import ExampleRng
from regard.data.ragged import Ragged
from regard.data.span_corruption import Spans, corrupt, restore
from regard.decode import Constraints, Draw, Search
from regard.errors import DataError, SpecError
from regard.model.net import Net
from regard.spec import Count, spec
from regard.tasks.common.data_settings import check_metrics
from regard.tasks.common.encoded_documents import StorePlace, encode_documents
from regard.tasks.common.fill_mask import MARK, encode_masked, find_unknown_texts
from regard.tasks.common.seq2seq import Seq2Seq
from regard.tasks.common.task import TASKS, EvalSet, Output, RunOptions
from regard.tasks.common.text_corpus import CorpusTask, TextData, Texts
from regard.text import Bpe, Tokenizer, TokenizerSpec

SENTINEL = "<extra_id_{}>"


@spec
class SpanData(TextData):
    """The `data` part of a recipe: text files, the length of texts, and the masked spans."""

    documents: DocumentUnit = "blank"
    tokenizer: TokenizerSpec = Bpe()
    max_length: Count = 512
    """Maximum number of tokens on either side, end mark included; texts are as long as that permits."""
    spans: Spans = Spans()
    sentinels: Annotated[int, Field(ge=1, le=100_000)] = 100
    metrics: tuple[str, ...] = ("loss",)

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        raw = self.spans.longest_text(self.max_length)
        if raw < 2:
            raise SpecError(f"max_length={self.max_length} leaves no room for a text with a masked span; raise it")
        needed = self.spans.span_counts(raw)[1] + self.spans.final_sentinel
        if needed > self.sentinels:
            raise SpecError(f"texts of {raw} tokens need {needed} sentinels, got sentinels={self.sentinels}")


class CorruptedLengths(ComputedLengths):
    """The lengths of source and target of each chunk."""

    def __init__(self, chunks: EvenChunks, spans: Spans, longest: int) -> None:
        self._chunks = chunks
        self._table = np.array([(0, 0), (0, 0), *(spans.lengths(n) for n in range(2, longest + 1))])

    def __len__(self) -> int:
        return len(self._chunks)

    def __getitem__(self, which: Any, /) -> NDArray[np.integer[Any]]:
        return np.asarray(self._table[self._chunks.lengths[which]])


@dataclasses.dataclass(frozen=True)
class SpanExamples:
    """Chunks of text, and the random numbers that choose the masked spans."""

    ids: EvenChunks
    lengths: CorruptedLengths
    left_out: int
    rng: ExampleRng = ExampleRng()
    groups: None = None
    shares: None = None

    def __len__(self) -> int:
        return len(self.ids)


@TASKS.add
class Span(Seq2Seq[SpanData, RunOptions], CorpusTask[SpanData]):
    """An encoder-decoder that fills masked spans."""

    Settings = SpanData
    Options = RunOptions
    settings: SpanData
    data_hint = "name a text file with blank lines between documents, or set data.documents"

    def __init__(self, settings: SpanData, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        names = [SENTINEL.format(k) for k in range(settings.sentinels)]
        if missing := [name for name in names if name not in tokenizer.tags]:
            raise SpecError(
                f"this vocabulary has {len(names) - len(missing)} of {len(names)} sentinels, {missing[0]} is missing; "
                "set data.sentinels, or start from a model trained on span corruption"
            )
        self.sentinels = [tokenizer.tag(name) for name in names]

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def special_tokens(cls, settings: SpanData) -> Sequence[str]:
        return [SENTINEL.format(k) for k in range(settings.sentinels)]

    def model_arguments(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.size, "length": self.settings.max_length + 2}

    def encode_texts(self, raw: Texts, place: StorePlace) -> SpanExamples:
        longest = self.settings.spans.longest_text(self.settings.max_length)
        chunks = EvenChunks(encode_documents(raw.documents, self.tokenizer, place), longest, least=2)
        if not len(chunks):
            raise DataError("a text should have at least two tokens: one to mask and one to keep")
        return SpanExamples(chunks, CorruptedLengths(chunks, self.settings.spans, longest), chunks.left_out)

    # ------------------------------------------------------------------------------------------------ to the model

    def augment(self, examples: SpanExamples, seed: int, epoch: int) -> SpanExamples:
        return dataclasses.replace(examples, rng=ExampleRng(seed, epoch))

    def batch(self, examples: SpanExamples, indices: NDArray[np.int64]) -> Batch:
        spans, sentinels, pairs = self.settings.spans, np.asarray(self.sentinels, np.int32), []
        for index, ids in zip(indices.tolist(), examples.ids.take(indices), strict=True):
            laid = spans.draw_spans(len(ids), examples.rng.of(index))
            pairs.append(corrupt(ids, laid, sentinels, final_sentinel=spans.final_sentinel))
        source, target = (Ragged.of(side) for side in zip(*pairs, strict=True))
        return self.build_batch(source, target)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self, nets: Sequence[Net], inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """Each text with its masks filled; a text without masks is returned unchanged."""
        sources, open_ = self.encode_inputs(inputs, options), [i for i, text in enumerate(inputs) if MARK.search(text)]
        draw, banned = Draw([options.first + i for i in open_]), Constraints([self.tokenizer.unk])
        found = self.generate(nets, [sources[i] for i in open_], search, self.settings.max_length, draw, banned)
        out = [[Output(text, 0.0, 0.0)] for text in inputs]
        for i, hypotheses in zip(open_, found, strict=True):
            whole = [restore(sources[i][:-1], h.tokens, self.sentinels) for h in hypotheses]
            out[i] = [
                Output(self.tokenizer.decode(ids), h.score, h.log_prob)
                for ids, h in zip(whole, hypotheses, strict=True)
            ]
        return out

    def eval_sets(self, raw: Texts) -> list[EvalSet]:
        return []

    def find_too_long(self, inputs: Sequence[str], options: RunOptions = RunOptions()) -> list[int]:
        return [i for i, ids in enumerate(self._encode_masked(inputs)) if len(ids) >= self.settings.max_length]

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return find_unknown_texts(self.tokenizer, inputs)

    def encode_inputs(self, inputs: Sequence[str], options: RunOptions) -> list[list[int]]:
        return [[*ids[: self.settings.max_length - 1], self.tokenizer.eos] for ids in self._encode_masked(inputs)]

    def encode_outputs(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[list[int]]:
        return [self._encode_target(text, output) for text, output in zip(inputs, outputs, strict=True)]

    def _encode_masked(self, inputs: Sequence[str]) -> list[list[int]]:
        for text in inputs:
            if (count := len(MARK.findall(text))) > len(self.sentinels):
                raise DataError(
                    f"a text has {count} masks, but this model only {len(self.sentinels)} sentinels; shorten the text"
                )
        return encode_masked(self.tokenizer, inputs, self.sentinels.__getitem__)

    def _encode_target(self, text: str, output: str) -> list[int]:
        """What the decoder should write to turn a text with masks into the output."""
        parts = [self.tokenizer.decode(self.tokenizer.encode(part)) for part in MARK.split(text)]
        whole = self.tokenizer.decode(self.tokenizer.encode(output))
        match = re.fullmatch(r"\s*(.*?)\s*".join(map(re.escape, parts)), whole, re.DOTALL)
        if match is None:
            raise DataError(f"the output should be its input with text at each mask, got {output[:80]!r}")
        fills = self.tokenizer.encode_all(match.groups())
        return [t for sentinel, ids in zip(self.sentinels, fills, strict=False) for t in (sentinel, *ids)]
