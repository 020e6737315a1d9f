"""Masked language modeling, with next-sentence prediction.

As in BERT (Devlin et al. 2018): predict masked tokens from both sides, and whether a second segment follows the
first. RoBERTa (Liu et al. 2019) and DistilBERT omit the latter: `next_sentence: false`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import IGNORE, PaddedTokens, pad_rows
from regard.data.document_parts import DocumentPart, cut_at_line, plan_parts
from regard.data.documents import DocumentUnit, EvenChunks, split_sentences
from regard.data.example_rng import ExampleRng
from regard.data.next_sentence import SentenceStore, make_segment_pairs
from regard.data.ragged import Ragged
from regard.data.scratch import blocks, measure_lengths
from regard.data.token_masking import Masking
from regard.data.token_store import fill_store
from regard.decode import Engine, Search
from regard.errors import DataError, SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Classes, Masked, Vocab
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.spec import Count, Share, spec
from regard.tasks.common.data_settings import check_metrics
from regard.tasks.common.encoded_documents import StorePlace, encode_documents
from regard.tasks.common.encoder_input import EncoderTask
from regard.tasks.common.fill_mask import (
    MASKS,
    encode_masked,
    fill_masks,
    find_mask,
    find_unknown_texts,
    mask_log_probs,
)
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.losses import add_auxiliary, pair_counts, row_losses
from regard.tasks.common.task import TASKS, EvalSet, Loss, Output, RunOptions, check_pairs
from regard.tasks.common.text_corpus import CorpusTask, TextData, Texts
from regard.text import Tokenizer, TokenizerSpec, WordPiece
from regard.text.words import WordBoundaries

ROWS = 1 << 13
"""Number of rows that are framed at a time."""
Cutter = tuple[Sequence[range], Callable[[range], tuple[Ragged, Ragged, Ragged]]]
"""Jobs, and a function that makes the rows of a job."""
MIN_CONTEXT = 8
"""Minimum number of tokens in a row of two segments."""


@spec
class MlmData(TextData):
    """The `data` part of a recipe: text files, the length of rows, and what is masked."""

    documents: DocumentUnit = "blank"
    tokenizer: TokenizerSpec = WordPiece()
    context: Count = 128
    """Number of tokens the model reads, special tokens included."""
    next_sentence: bool = True
    """Rows have two segments, and the model predicts whether the second follows the first."""
    short_seq_prob: Share = 0.1
    """Fraction of pairs that are shorter than possible, as texts are in use."""
    dupe_factor: Count = 1
    """Number of times texts are cut into pairs, each time differently; masks are new in every epoch anyway."""
    masking: Masking = Masking()
    metrics: tuple[str, ...] = ()
    """Scores to report; by default the loss and the accuracy of masked tokens and of next sentences."""

    def __post_init__(self) -> None:
        if self.context < MIN_CONTEXT:
            raise SpecError(
                f"context should be at least {MIN_CONTEXT}, for two segments and their special tokens, got {self.context}"
            )
        if self.metrics:
            check_metrics(self.metrics)


@dataclasses.dataclass(frozen=True)
class MaskableRows:
    """Framed texts or pairs, and the random numbers that mask some of their tokens."""

    ids: Ragged
    segments: Ragged
    is_next: NDArray[np.integer[Any]] | None
    lengths: NDArray[np.int32]
    left_out: int
    rng: ExampleRng = ExampleRng()
    groups: None = None
    shares: None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclasses.dataclass(frozen=True)
class MaskedBatch:
    """Input and targets of the model: masked tokens (IGNORE elsewhere), and 0 for a segment that follows."""

    given: PaddedTokens
    wanted: Tensor
    tokens: int
    segment: Tensor | None
    next_sentence: Tensor | None

    def to(self, device: torch.device | str) -> MaskedBatch:
        segment = None if self.segment is None else self.segment.to(device)
        next_sentence = None if self.next_sentence is None else self.next_sentence.to(device)
        return MaskedBatch(self.given.to(device), self.wanted.to(device), self.tokens, segment, next_sentence)

    @property
    def at(self) -> Coords:
        at = Coords.lengths(self.given.lengths, self.given.ids.device)
        return at if self.segment is None else dataclasses.replace(at, segment=self.segment)


@TASKS.add
class Mlm(EncoderTask, CorpusTask[MlmData]):
    """An encoder that fills masks."""

    Settings = MlmData
    settings: MlmData
    data_hint = "name a text file with one sentence per line and blank lines between documents, or set data.documents"

    def __init__(self, settings: MlmData, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        self.mask = find_mask(tokenizer, "start from a masked language model")
        around, _ = tokenizer.frame([], [] if settings.next_sentence else None)
        special = {
            tokenizer.pad,
            tokenizer.bos,
            tokenizer.eos,
            tokenizer.unk,
            *map(tokenizer.tag, tokenizer.tags),
            *around,
        }
        self._maskable = ~np.isin(np.arange(tokenizer.size), list(special))
        self._room = settings.context - len(around)
        self._boundaries = WordBoundaries(tokenizer) if settings.masking.whole_words else None

    @property
    def metrics(self) -> tuple[str, ...]:
        usual = ("loss", "masked_accuracy", "next_sentence_accuracy")
        return self.settings.metrics or usual[: 2 + self.settings.next_sentence]

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def special_tokens(cls, settings: MlmData) -> Sequence[str]:
        return [MASKS[0]]

    def model_arguments(self) -> dict[str, int]:
        return {
            "vocab": self.tokenizer.size,
            "length": self.settings.context,
            "next_sentence": self.settings.next_sentence,
        }

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        """The model with a head over the vocabulary, and a second one for next-sentence prediction."""
        if spec.encoder is None or spec.decoder is not None:
            raise SpecError(
                "masked language modeling needs a model with an encoder and no decoder; use model.family: bert"
            )
        head = spec.head if isinstance(spec.head, Masked | Vocab) else Masked()
        beside = (spec.beside or Classes(2, hidden=True)) if self.settings.next_sentence else None
        return dataclasses.replace(spec, head=head, beside=beside)

    def encode_texts(self, raw: Texts, place: StorePlace) -> MaskableRows:
        """Rows that have something to mask: pairs of segments, or chunks of documents."""
        store = place.open("rows", ["ids", "segments", "is_next"])
        jobs, work = self._cut_pairs(raw, place) if self.settings.next_sentence else self._cut_chunks(raw, place)
        ids, segments, is_next = fill_store(store, jobs, work, "rows, parts")
        if not len(ids):
            raise DataError("the vocabulary knows nothing in this text; is it the right file?")
        left_out = int(is_next.ids[1::2].sum())
        return MaskableRows(
            ids,
            segments,
            is_next.ids[::2] if self.settings.next_sentence else None,
            measure_lengths(ids.ends),
            left_out,
        )

    def _cut_chunks(self, raw: Texts, place: StorePlace) -> Cutter:
        """Chunks of documents."""
        chunks = EvenChunks(encode_documents(raw.documents, self.tokenizer, place), self._room)

        def work(some: range) -> tuple[Ragged, Ragged, Ragged]:
            found = chunks.take(np.arange(some.start, some.stop))
            return self._frame([(ids.tolist(), None, False) for ids in found])

        return [range(s.start, s.stop) for s in blocks(len(chunks), ROWS)], work

    def _cut_pairs(self, raw: Texts, place: StorePlace) -> Cutter:
        """Pairs of segments, cut once for evaluation and `dupe_factor` times for training."""
        documents = self._encode_sentences(raw, place)
        if len(documents) < 2:
            raise DataError(
                f"next-sentence prediction needs at least two documents, got {len(documents)}; put blank "
                "lines between documents, set data.documents: line, or data.next_sentence: false"
            )
        laps = self.settings.dupe_factor if raw.training else 1

        def work(job: range) -> tuple[Ragged, Ragged, Ragged]:
            lap, first = divmod(job.start, len(documents))
            pairs = make_segment_pairs(
                documents,
                room=self._room,
                short_seq_prob=self.settings.short_seq_prob,
                lap=lap,
                some=range(first, first + len(job)),
            )
            sides = zip(pairs.first, pairs.second, pairs.is_next.tolist(), strict=True)
            return self._frame([(a.tolist(), b.tolist(), flag) for a, b, flag in sides])

        return [
            range(lap * len(documents) + s.start, lap * len(documents) + s.stop)
            for lap in range(laps)
            for s in documents.blocks()
        ], work

    def _encode_sentences(self, raw: Texts, place: StorePlace) -> SentenceStore:
        """The sentences of each document; the pieces of a document of several megabytes count as documents."""
        unit = self.settings.documents

        def work(part: DocumentPart) -> tuple[Ragged, Ragged]:
            split = [split_sentences(text, unit) for text in part.texts(raw.documents)]
            found = iter(self.tokenizer.encode_all([sentence for document in split for sentence in document]))
            cut = [[ids for _, ids in zip(document, found, strict=False) if ids] for document in split]
            full = [document for document in cut if document]
            return Ragged.of([[*chain(*document)] for document in full]), Ragged.of([[*map(len, d)] for d in full])

        parts = plan_parts(raw.documents, cut_at_line)
        store = place.open("sentences", ["ids", "lengths"])
        return SentenceStore(*fill_store(store, parts, work, "tokens, MB of text"))

    def _frame(self, rows: Sequence[tuple[list[int], list[int] | None, bool]]) -> tuple[Ragged, Ragged, Ragged]:
        """Rows between special tokens, their segments, and whether the second segment follows; without those that have
        nothing to mask, whose number is beside the flag of a neighbor."""
        ids, segments, flags, dropped = list[list[int]](), list[list[int]](), list[list[int]](), 0
        for first, second, is_next in rows:
            row, segment = self.tokenizer.frame(first, second)
            if self._maskable[row].any():
                ids.append(row)
                segments.append(segment)
                flags.append([is_next, dropped])
                dropped = 0
            else:
                dropped += 1
        if flags:
            flags[-1][1] += dropped
        return Ragged.of(ids), Ragged.of(segments), Ragged.of(flags)

    # ------------------------------------------------------------------------------------------------ to the model

    def augment(self, examples: MaskableRows, seed: int, epoch: int) -> MaskableRows:
        return dataclasses.replace(examples, rng=ExampleRng(seed, epoch))

    def batch(self, examples: MaskableRows, indices: NDArray[np.int64]) -> MaskedBatch:
        side = pad_rows(examples.ids, indices, self.tokenizer.pad)
        given, wanted = side.ids.numpy(), np.full(side.ids.shape, IGNORE, np.int64)
        ordinary, masking = np.flatnonzero(self._maskable), self.settings.masking
        for row, (index, length) in enumerate(zip(indices.tolist(), side.lengths, strict=True)):
            ids, rng = given[row, :length], examples.rng.of(index)
            free = np.flatnonzero(self._maskable[ids])
            joined = None
            if self._boundaries is not None:
                joined = self._boundaries.continues_word(ids)[free] & (np.diff(free, prepend=-2) == 1)
            chosen = masking.choose(free, joined, rng)
            wanted[row, chosen] = ids[chosen]
            ids[chosen] = masking.apply(ids[chosen], self.mask, ordinary, rng)
        segment = pad_rows(examples.segments, indices, 0).ids if examples.is_next is not None else None
        next_sentence = (
            None if examples.is_next is None else torch.from_numpy(1 - examples.is_next[indices].astype(np.int64))
        )
        return MaskedBatch(side, torch.from_numpy(wanted), int((wanted != IGNORE).sum()), segment, next_sentence)

    def loss(self, net: Net, batch: MaskedBatch, smoothing: float) -> Loss:
        """The sum of the mean losses of masked tokens and of next sentences, times the number of masked tokens."""
        tape, at, there = Tape(outer=net.tape), batch.at, batch.wanted != IGNORE
        stream = net(batch.given.ids, at, tape=tape)
        rows = {}
        if net.training:
            total, plain = net.loss(stream[there], batch.wanted[there], smoothing)
        else:
            streams = [row[chosen] for row, chosen in zip(stream, there, strict=True)]
            wanted = [row[chosen] for row, chosen in zip(batch.wanted, there, strict=True)]
            total, plain, rows["loss"] = row_losses(net, streams, wanted, smoothing)
            hits = [net.logits(row).argmax(-1) == right for row, right in zip(streams, wanted, strict=True)]
            counts = [[int(row.sum()), len(row)] for row in hits]
            rows["masked_accuracy"] = torch.tensor(counts, dtype=torch.double)
        if batch.next_sentence is not None:
            logits = net.logits_beside(stream, at).float()
            total = total + F.cross_entropy(logits, batch.next_sentence) * batch.tokens
            if not net.training:
                right = (logits.argmax(-1) == batch.next_sentence).unsqueeze(1)
                rows["next_sentence_accuracy"] = pair_counts(right, torch.ones_like(right))
        return Loss(add_auxiliary(total, tape, batch.tokens), plain, batch.tokens, rows)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self, engine: Engine, inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """Each text with its masks filled, independently of one another; a text without masks is returned unchanged."""
        if search.sample:
            raise SpecError("masks are filled with the likeliest tokens, not sampled; leave out --sample")
        texts = self._encode(inputs)
        found = self._log_probs(engine.nets, texts)
        return [
            fill_masks(self.tokenizer, ids, each, self._maskable, search.n_best) if each else [Output(text, 1.0, 0.0)]
            for text, ids, each in zip(inputs, texts, found, strict=True)
        ]

    def score(
        self, engine: Engine, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = RunOptions()
    ) -> list[float]:
        """log P of what outputs have at the masks of their inputs, independently of one another."""
        check_pairs(inputs, outputs)
        texts, wanted, out = self._encode(inputs), self.tokenizer.encode_all(outputs), []
        for i, (ids, whole, found) in enumerate(
            zip(texts, wanted, self._log_probs(engine.nets[:1], texts), strict=True)
        ):
            if len(ids) != len(whole) or any(a not in (b, self.mask) for a, b in zip(ids, whole, strict=True)):
                raise DataError(
                    f"output {i + 1} should be its input with a token for each mask, got {outputs[i][:80]!r}"
                )
            out.append(sum(float(log_p[whole[place]]) for place, log_p in found.items()))
        return out

    def forward_pass(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> ForwardPass:
        """The text with its masks, and what the output has at them if it is the same text without masks."""
        (ids,), (filled,) = self._encode([text]), self.tokenizer.encode_all([output])
        filled = filled if len(filled) == len(ids) else ids
        read, completed = (self.tokenizer.frame(side[: self._reach([net])])[0] for side in (ids, filled))
        wanted = [b if a == self.mask != b else IGNORE for a, b in zip(read, completed, strict=True)]
        return ForwardPass.of(net, read, wanted, tokenizer=self.tokenizer)

    def eval_sets(self, raw: Texts) -> list[EvalSet]:
        return []

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return find_unknown_texts(self.tokenizer, inputs)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts as tokens, with the mask token where a mask is written."""
        return encode_masked(self.tokenizer, texts, lambda _: self.mask)

    def _log_probs(self, nets: Sequence[Net], texts: Sequence[Sequence[int]]) -> list[dict[int, Tensor]]:
        return mask_log_probs(nets, self.tokenizer, texts, self.mask, self._reach(nets))

    def _reach(self, nets: Sequence[Net]) -> int:
        """Number of tokens of a single text that the models read at once."""
        rooms = [net.spec.room or self.settings.context for net in nets]
        return min(rooms) - len(self.tokenizer.frame([])[0])
