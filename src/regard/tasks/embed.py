"""Sentence embedding: vectors that are close if texts are.

Learned from pairs of texts with the same meaning (Reimers & Gurevych 2019): each text should be closer to its partner
than to all others in the batch (in-batch negatives; van den Oord et al. 2018, Henderson et al. 2017). Larger batches
are harder.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from regard.data.batch import IGNORE
from regard.data.pair_reader import Corpus, OnBad, fill_columns, read_corpus, read_splits
from regard.data.pairs import LineSample, Pairs, fingerprint
from regard.data.ragged import Ragged
from regard.data.scratch import measure_lengths
from regard.decode import Engine
from regard.errors import DataError, SpecError
from regard.files.folder import TOKENIZER
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Vector
from regard.spec import Count, Plain, spec
from regard.tasks.common.data_settings import PairData, check_metrics, configure_files, name_corpus
from regard.tasks.common.encoded_documents import StorePlace
from regard.tasks.common.encoded_pairs import encode_chunks
from regard.tasks.common.encoder_frames import EmbedFrame
from regard.tasks.common.encoder_input import (
    EncodedTexts,
    EncoderBatch,
    EncoderTask,
    check_length,
    embed_framed,
    embed_texts,
    encoder_pass,
    load_tokenizer,
    pool_rows,
)
from regard.tasks.common.example_names import quote_examples
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.losses import pair_counts
from regard.tasks.common.task import (
    TASKS,
    BatchOrder,
    Dataset,
    EvalSet,
    Loss,
    RunOptions,
    TextSide,
    check_pairs,
)
from regard.tasks.common.text_frame import FramedText, Pool, frame_texts
from regard.tasks.common.training_hooks import bucket
from regard.text import Bpe, Tokenizer, TokenizerSpec


@spec
class EmbedData(PairData):
    """The `data` part of a recipe: pairs of texts with the same meaning, and how a text becomes a vector."""

    tokenizer: TokenizerSpec = Bpe(4000)
    max_length: Count = 128
    """Maximum number of tokens the model reads of a text, special tokens included."""
    pool: Pool = "mean"
    unit: bool = True
    """Vectors have length one, so that their product is the cosine."""
    scale: Annotated[float, Field(gt=0, le=1000)] = 20.0
    """Factor for cosines before the softmax (inverse temperature)."""
    metrics: tuple[str, ...] = ("pair_accuracy",)

    def __post_init__(self) -> None:
        check_metrics(self.metrics)


CANDIDATES = 100
"""Maximum number of pairs among which a text must find its partner in evaluation."""


@dataclasses.dataclass(frozen=True)
class FixedBatches:
    """Batches that are equal in every epoch."""

    batches: list[NDArray[np.int64]]

    def epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        return self.batches


@dataclasses.dataclass(frozen=True)
class TextPairRows:
    """Both texts of each pair, and a hash of each text."""

    first: EncodedTexts
    second: EncodedTexts
    same: NDArray[np.int64]
    lengths: NDArray[np.int32]
    groups: None = None
    shares: None = None
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.first)


@dataclasses.dataclass(frozen=True)
class ContrastiveBatch:
    first: EncoderBatch
    second: EncoderBatch
    same: Tensor
    """The ids of the first and of the second texts (b, 2)."""

    @property
    def tokens(self) -> int:
        return len(self.same)

    def to(self, device: torch.device | str) -> ContrastiveBatch:
        return ContrastiveBatch(self.first.to(device), self.second.to(device), self.same.to(device))


@TASKS.add
class Embed(EmbedFrame[Engine], EncoderTask):
    """An encoder whose pooled output is the vector of a text."""

    Settings = EmbedData
    Options = RunOptions
    in_batch_negatives: Literal[True] = True

    def __init__(self, settings: EmbedData, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer

    @property
    def max_length(self) -> int:
        return self.settings.max_length

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        return configure_files(name_corpus(files), name_corpus(valid))

    @classmethod
    def read_test(cls, settings: EmbedData, files: Sequence[str]) -> list[Pairs]:
        return cls.read_test_pairs(settings, files, None)

    @classmethod
    def read_test_pairs(cls, settings: EmbedData, files: Sequence[str], on_bad: OnBad | None) -> list[Pairs]:
        (corpus,) = fill_columns([Corpus(paths=tuple(files))], settings.columns, settings.header)
        return [read_corpus(corpus, on_bad=on_bad)]

    @classmethod
    def read(cls, settings: EmbedData, seed: int) -> Dataset:
        if not settings.train:
            raise DataError("no training data; name two text files or one .tsv, .csv or .jsonl file")
        learn, check = (
            fill_columns(part, settings.columns, settings.header) for part in (settings.train, settings.valid)
        )
        train, valid = read_splits(learn, check, settings.filters, settings.on_bad, seed)
        names = ", ".join(pairs.name for pairs in train)
        train_pairs, valid_pairs = (sum(map(len, part)) for part in (train, valid))
        message = f"{names}: {train_pairs:,} pairs for training, {valid_pairs:,} for validation"
        statistics = {"train": {"pairs": train_pairs}, "valid": {"pairs": valid_pairs}}
        notes = [note for pairs in (*train, *valid) for note in pairs.notes]
        dropped = [f"  {each}" for pairs in (*train, *valid) for each in pairs.dropped]
        lost = [row for pairs in (*train, *valid) for row in pairs.lost()]
        return Dataset(train, valid, fingerprint(*train, *valid), statistics, [*notes, message, *dropped], lost)

    @classmethod
    def prepare(cls, settings: EmbedData, dataset: Dataset) -> Self:
        return cls(settings, Tokenizer.train(LineSample(dataset.train, ["source", "target"]), settings.tokenizer))

    @classmethod
    def load(cls, settings: EmbedData, files: Mapping[str, bytes]) -> Self:
        return cls(settings, load_tokenizer(files))

    def files(self) -> dict[str, bytes]:
        return {TOKENIZER: self.tokenizer.to_bytes()}

    def model_arguments(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.size, "length": self.settings.max_length, "next_sentence": False}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        """The encoder with a head that gives a vector."""
        if spec.encoder is None or spec.decoder is not None:
            raise SpecError("embedding needs a model with an encoder and no decoder; use model.family: bert")
        head = spec.head if isinstance(spec.head, Vector) else Vector(self.settings.pool)
        return check_length(dataclasses.replace(spec, head=head, beside=None), self.settings.max_length)

    def encode(self, raw: Sequence[Pairs]) -> TextPairRows:
        """Rows in memory, or in temporary files if there are many."""
        return self._encode(raw, StorePlace())

    def encode_to(self, folder: Path, raw: Sequence[Pairs], fingerprint: str) -> TextPairRows:
        """Encode pairs into a folder, and again only if something changed."""
        files = {name: hashlib.sha256(data).hexdigest() for name, data in self.files().items()}
        made_of = {"corpus": fingerprint, "pairs": [*map(len, raw)], "vocabulary": files}
        return self._encode(raw, StorePlace(folder, {**made_of, "max_length": self.settings.max_length}))

    def _encode(self, raw: Sequence[Pairs], place: StorePlace) -> TextPairRows:
        def work(pairs: Pairs, some: slice) -> list[Ragged]:
            texts = pairs.source[some], pairs.target[some]
            framed = [frame_texts(self.tokenizer, side, self.settings.max_length) for side in texts]
            columns = [Ragged.of([row[i] for row in side]) for side in framed for i in (0, 1)]
            return [*columns, Ragged.of(hash_texts(*texts))]

        store = place.open("rows", ["first", "first_segments", "second", "second_segments", "same"])
        *columns, same = encode_chunks(raw, work, store, "pairs")
        first, second = (
            EncodedTexts(ids, segments, Ragged.of([]), measure_lengths(ids.ends))
            for ids, segments in (columns[:2], columns[2:])
        )
        hashes, lengths = same.ids.view(np.int64).reshape(-1, 2), measure_lengths(columns[0].ends, columns[2].ends)
        return TextPairRows(first, second, hashes, lengths)

    # ------------------------------------------------------------------------------------------------ to the model

    def order_batches(
        self, examples: TextPairRows, *, tokens: int | None, seed: int, evaluate: bool = False
    ) -> BatchOrder:
        """In evaluation, the number of candidates does not depend on the model, its tokenizer or the memory."""
        if not evaluate:
            return bucket(examples, tokens=tokens, seed=seed)
        return FixedBatches(np.array_split(np.arange(len(examples)), max(-(-len(examples) // CANDIDATES), 1)))

    def batch(self, examples: TextPairRows, indices: NDArray[np.int64]) -> ContrastiveBatch:
        first, second = (
            rows.batch_unlabeled(indices, self.tokenizer.pad) for rows in (examples.first, examples.second)
        )
        return ContrastiveBatch(first, second, torch.from_numpy(examples.same[indices]))

    def describe_examples(self, examples: TextPairRows, indices: NDArray[np.int64]) -> list[str]:
        return quote_examples(indices, examples.first.ids.take(indices), self.tokenizer)

    def loss(self, net: Net, batch: ContrastiveBatch, smoothing: float) -> Loss:
        """Cross-entropy of finding each text's partner, in both directions; copies of a text are not negatives."""
        a, b = (pool_rows(net, side, self.settings.pool, unit=True).float() for side in (batch.first, batch.second))
        scores, own = self.settings.scale * a @ b.T, torch.arange(len(a), device=a.device)
        copies = (batch.same[:, None] == batch.same[None]).any(-1) & ~torch.eye(
            len(a), dtype=torch.bool, device=a.device
        )
        scores = scores.masked_fill(copies, -torch.inf)
        nats = sum(F.cross_entropy(side, own, reduction="none") for side in (scores, scores.T)) / 2
        assert isinstance(nats, Tensor)
        each, right = nats.unsqueeze(1), (scores.argmax(1) == own).unsqueeze(1)
        one = torch.ones_like(right)
        rows = {} if net.training else {"loss": pair_counts(each, one), "pair_accuracy": pair_counts(right, one)}
        return Loss(nats.sum(), nats.detach().sum(), len(a), rows)

    # ------------------------------------------------------------------------------------------------ to the user

    def embed(
        self, engine: Engine, texts: Sequence[str], *, pool: Pool | None = None, unit: bool | None = None
    ) -> Tensor:
        pool, unit = pool or self.settings.pool, self.settings.unit if unit is None else unit
        return embed_texts(
            engine.nets[0], self.tokenizer, texts, pool=pool, unit=unit, max_length=self.settings.max_length
        )

    def frame(self) -> Plain:
        chosen = self.settings
        return {"kind": "embed", "max_length": chosen.max_length, "pool": chosen.pool, "unit": chosen.unit}

    def embed_rows(self, engine: Engine, rows: Sequence[FramedText]) -> NDArray[np.floating[Any]]:
        pool, unit = self.settings.pool, self.settings.unit
        found = torch.stack(
            [embed_framed(net, self.tokenizer, rows, pool=pool, unit=unit) for net in engine.nets]
        ).mean(0)
        return (F.normalize(found, dim=-1) if unit else found).numpy()

    def score(
        self, engine: Engine, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = RunOptions()
    ) -> list[float]:
        """The cosine of each pair."""
        check_pairs(inputs, outputs)
        a, b = (self.embed(engine, texts, unit=True).double() for texts in (inputs, outputs))
        return [float(cosine) for cosine in (a * b).sum(1)]

    def forward_pass(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> ForwardPass:
        """The text; a vector is no prediction."""
        (row,) = frame_texts(self.tokenizer, [text], self.settings.max_length)
        return encoder_pass(net, self.tokenizer, row, [IGNORE] * len(row[0]))

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        return []

    def list_texts(self, raw: Sequence[Pairs]) -> list[TextSide]:
        return [
            TextSide(self.tokenizer, [text for pairs in raw for side in (pairs.source, pairs.target) for text in side])
        ]


def hash_texts(first: Sequence[str], second: Sequence[str]) -> list[NDArray[np.int32]]:
    """64-bit hashes of both texts of each pair; equal texts have equal hashes."""
    both = zip(first, second, strict=True)
    digests = (b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in pair) for pair in both)
    return [np.frombuffer(digest, np.int32) for digest in digests]
