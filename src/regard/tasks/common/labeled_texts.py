"""Base of the tasks that learn labels of texts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.labels import BETWEEN
from regard.data.line_store import ConcatenatedLines
from regard.data.pairs import LineSample, Pairs, fingerprint, split_pairs
from regard.data.ragged import Ragged
from regard.data.scratch import measure_lengths
from regard.errors import DataError, SpecError
from regard.files.folder import TOKENIZER
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.spec import Count, Plain, Spec, spec
from regard.tasks.common.advice import plan_length
from regard.tasks.common.class_names import list_classes, pack_classes, unpack_classes
from regard.tasks.common.classifier import class_logits
from regard.tasks.common.data_settings import check_metrics, configure_files
from regard.tasks.common.encoded_documents import StorePlace
from regard.tasks.common.encoded_pairs import encode_chunks
from regard.tasks.common.encoder_input import EncodedTexts, EncoderBatch, EncoderTask, load_tokenizer
from regard.tasks.common.example_names import quote_examples
from regard.tasks.common.losses import class_loss
from regard.tasks.common.task import Advice, Dataset, Loss, RunOptions, TextSide
from regard.tasks.common.text_frame import FramedText
from regard.text import Bpe, Tokenizer, TokenizerSpec

LabeledRows = tuple[Sequence[FramedText], Sequence[Sequence[int]]]
"""Texts between their special tokens, and the labels of each."""
MAX_HELD_OUT = 10_000
"""Maximum number of texts held out of a file for validation."""
EPOCHS, STEPS = 10, 30
"""Default number of epochs, and of steps per epoch."""
MAX_SHOWN = 12
"""Number of classes whose shares are reported."""


@spec
class LabeledData(Spec):
    """Files of labeled texts, and how they are read."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    columns: tuple[int | str, ...] | None = None
    """The columns of text and label in a table: names in its header or positions from 1, if not the usual ones."""
    header: bool | None = None
    """Table has a header; by default decided by its first row, with a message."""
    hold_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Fraction of the texts held out for validation if no validation files are given; 10,000 of a file at most."""
    tokenizer: TokenizerSpec = Bpe(4000)
    max_length: Count = 128
    """Maximum number of tokens the model reads of a text, special tokens included."""
    metrics: tuple[str, ...] = ()
    """Scores to report; by default those that suit the task."""

    def __post_init__(self) -> None:
        if self.metrics:
            check_metrics(self.metrics)


L = TypeVar("L", bound=LabeledData)


class LabeledTask(EncoderTask, Generic[L]):
    """A task with classes, and a tokenizer of what it reads."""

    Options = RunOptions

    def __init__(self, settings: L, tokenizer: Tokenizer, classes: Sequence[str]) -> None:
        self.settings, self.tokenizer, self.classes = settings, tokenizer, tuple(classes)
        if settings.max_length <= len(tokenizer.frame([], [])[0]):
            raise SpecError(
                f"data.max_length={settings.max_length} leaves no room for a text between its special tokens"
            )

    @classmethod
    def read_file(cls, settings: L, path: str) -> Pairs:
        """The texts and labels of a file."""
        raise NotImplementedError

    @classmethod
    def list_labels(cls, settings: L, targets: Iterable[str]) -> Iterator[str]:
        """Every single label."""
        raise NotImplementedError

    def batch(self, examples: EncodedTexts, indices: NDArray[np.int64]) -> EncoderBatch:
        return examples.batch(indices, self.tokenizer.pad)

    def loss(self, net: Net, batch: EncoderBatch, smoothing: float) -> Loss:
        tape = Tape(outer=net.tape)
        scores = class_logits(net, batch.given.ids, batch.at(net), tape)
        return class_loss(net, scores, batch.labels, smoothing, tape)

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        return configure_files(files, valid)

    @classmethod
    def read_test(cls, settings: L, files: Sequence[str]) -> list[Pairs]:
        return [cls.read_file(settings, path) for path in files]

    @classmethod
    def read(cls, settings: L, seed: int) -> Dataset:
        if not settings.train:
            raise DataError("no training data; name a .tsv, .csv or .jsonl file with texts and labels")
        train = [cls.read_file(settings, path) for path in settings.train]
        if settings.valid:
            valid = [cls.read_file(settings, path) for path in settings.valid]
        else:
            train, valid = cls._hold_out(settings, train, seed)
        counts = Counter(label for pairs in train for label in cls.list_labels(settings, pairs.target))
        statistics = {
            "train": {"texts": sum(map(len, train)), "labels": counts.total(), "classes": len(counts)},
            "valid": {"texts": sum(map(len, valid))},
        }
        names = ", ".join(pairs.name for pairs in train)
        often = ", ".join(f"{label} {100 * n / counts.total():.1f} %" for label, n in counts.most_common(MAX_SHOWN))
        messages = [
            *(note for pairs in (*train, *valid) for note in pairs.notes),
            f"{names}: {statistics['train']['texts']:,} texts for training, {statistics['valid']['texts']:,} for validation",
            f"{len(counts)} classes: {often}" + (" …" if len(counts) > MAX_SHOWN else ""),
        ]
        return Dataset(train, valid, fingerprint(*train, *valid), statistics, messages)

    @classmethod
    def _hold_out(cls, settings: L, whole: Sequence[Pairs], seed: int) -> tuple[list[Pairs], list[Pairs]]:
        """Training and held-out texts. A text stays in training if its class would otherwise be missing there."""
        sizes = [min(max(1, round(settings.hold_out * len(pairs))), MAX_HELD_OUT) for pairs in whole]
        parts = [split_pairs(pairs, size=size, seed=seed) for pairs, size in zip(whole, sizes, strict=True)]
        known = {label for rest, _ in parts for label in cls.list_labels(settings, rest.target)}
        train, valid = list[Pairs](), list[Pairs]()
        for rest, aside in parts:
            familiar = np.array([known.issuperset(cls.list_labels(settings, [row])) for row in aside.target])
            stays, goes = aside.take(np.flatnonzero(~familiar)), aside.take(np.flatnonzero(familiar))
            train.append(_append(rest, stays) if len(stays) else rest)
            valid.append(goes)
        if not any(map(len, valid)):
            raise DataError(
                "no text can be held out for validation, since each has a class of its own; name a file with --valid"
            )
        return train, [pairs for pairs in valid if len(pairs)]

    @classmethod
    def advise(cls, settings: L, dataset: Dataset, recipe: Plain) -> Advice:
        """Batches small enough for several steps per epoch, and a warm-up of a tenth of all steps."""
        train = recipe.get("train") or {}
        count = sum(map(len, dataset.train))
        tokens = sum(min(len(text) // 4 + 2, settings.max_length) for pairs in dataset.train for text in pairs.source)
        batch = train.get("batch_tokens") or min(max(tokens // STEPS, settings.max_length, 256), 4096)
        length = plan_length(train, tokens / (batch * train.get("accumulate", 1)), EPOCHS)
        steps = length.steps
        chosen = {**length.settings, "batch_tokens": batch, "schedule": {"kind": "linear", "warmup": steps // 10}}
        reasons = [
            f"{count:,} texts, about {tokens:,} tokens",
            f"{length.text} in batches of {batch:,} tokens; warm-up of {steps // 10}",
        ]
        return Advice({"train": chosen}, reasons)

    @classmethod
    def prepare(cls, settings: L, dataset: Dataset) -> Self:
        lines = LineSample(dataset.train, ["source"])
        return cls(settings, Tokenizer.train(lines, settings.tokenizer), cls._list_classes(settings, dataset))

    @classmethod
    def prepare_from(cls, settings: L, dataset: Dataset, files: Mapping[str, bytes]) -> Self:
        return cls(settings, load_tokenizer(files), cls._list_classes(settings, dataset))

    @classmethod
    def load(cls, settings: L, files: Mapping[str, bytes]) -> Self:
        return cls(settings, load_tokenizer(files), unpack_classes(files)["classes"])

    def encode(self, raw: Sequence[Pairs]) -> EncodedTexts:
        """Rows in memory, or in temporary files if there are many."""
        return self._encode(raw, StorePlace())

    def encode_to(self, folder: Path, raw: Sequence[Pairs], fingerprint: str) -> EncodedTexts:
        """Encode texts into a folder, and again only if something changed."""
        files = {name: hashlib.sha256(data).hexdigest() for name, data in self.files().items()}
        data = {k: v for k, v in self.settings.plain().items() if k not in ("train", "valid", "metrics", "tokenizer")}
        made_of = {"corpus": fingerprint, "texts": [*map(len, raw)], "vocabulary": files, "settings": str(data)}
        return self._encode(raw, StorePlace(folder, made_of))

    def encode_rows(self, texts: Sequence[str], labels: Sequence[str], name: str) -> LabeledRows:
        """Framed texts with their labels; `name` is their corpus in messages."""
        raise NotImplementedError

    def _encode(self, raw: Sequence[Pairs], place: StorePlace) -> EncodedTexts:
        def work(pairs: Pairs, some: slice) -> tuple[Ragged, Ragged, Ragged]:
            framed, labels = self.encode_rows(pairs.source[some], pairs.target[some], pairs.name)
            return Ragged.of([ids for ids, _ in framed]), Ragged.of([row for _, row in framed]), Ragged.of(labels)

        ids, segments, labels = encode_chunks(raw, work, place.open("rows", ["ids", "segments", "labels"]))
        return EncodedTexts(ids, segments, labels, measure_lengths(ids.ends))

    def files(self) -> dict[str, bytes]:
        return {TOKENIZER: self.tokenizer.to_bytes(), **pack_classes(self.classes)}

    def list_texts(self, raw: Sequence[Pairs]) -> list[TextSide]:
        texts = (part for pairs in raw for text in pairs.source for part in text.split(BETWEEN))
        return [TextSide(self.tokenizer, texts)]

    def describe_examples(self, examples: EncodedTexts, indices: NDArray[np.int64]) -> list[str]:
        return quote_examples(indices, examples.ids.take(indices), self.tokenizer)

    @classmethod
    def _list_classes(cls, settings: L, dataset: Dataset) -> tuple[str, ...]:
        labels = (label for pairs in dataset.train for label in cls.list_labels(settings, pairs.target))
        return list_classes(labels, ", ".join(pairs.name for pairs in dataset.train))


def _append(pairs: Pairs, more: Pairs) -> Pairs:
    source, target = (
        ConcatenatedLines([getattr(part, side) for part in (pairs, more)]) for side in ("source", "target")
    )
    return replace(pairs, source=source, target=target)
