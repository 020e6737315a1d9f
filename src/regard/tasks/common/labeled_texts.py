"""What tasks have in common that learn labels of texts: files, a part kept to be judged by, classes, a tokeniser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.pairs import Pairs, fingerprint, split_pairs
from regard.errors import DataError, SpecError
from regard.metrics import METRICS
from regard.spec import Count, Spec, spec
from regard.tasks.common.advice import plan_length
from regard.tasks.common.classifier import class_names, packed, unpacked
from regard.tasks.common.encoder_input import FILE, EncoderTask, Rows, own_tokenizer
from regard.tasks.common.example_names import by_text
from regard.tasks.common.task import Advice, Dataset, RunOptions
from regard.text import Bpe, Tokenizer, TokenizerSpec

EPOCHS, STEPS = 10, 30
"""Passes over the texts, and steps of a pass, where a recipe does not say."""
SHOWN = 12
"""So many classes are told of one by one."""


@spec
class LabelledData(Spec):
    """Files of labelled texts, and how they are read."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    columns: tuple[int | str, ...] | None = None
    """Where text and label stand in a table: names in its header or positions from 1, if not the usual ones."""
    hold_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The part of the texts kept for validation where no validation files are given."""
    tokenizer: TokenizerSpec = Bpe(4000)
    max_length: Count = 128
    """Tokens the model reads of a text, those around it included."""
    metrics: tuple[str, ...] = ()
    """Without any: those that suit the task."""

    def __post_init__(self) -> None:
        for name in self.metrics:
            METRICS[name]


class Labelled(EncoderTask):
    """A task with classes and a tokeniser of what it reads."""

    Options = RunOptions

    def __init__(self, settings: Any, target: Tokenizer, classes: Sequence[str]) -> None:
        self.settings, self.target, self.classes = settings, target, tuple(classes)
        if settings.max_length <= len(target.frame([], [])[0]):
            raise SpecError(f"data.max_length={settings.max_length} leaves no room for a text beside what is around it")

    @classmethod
    def read_file(cls, settings: Any, path: str) -> Pairs:
        """The texts and labels of a file."""
        raise NotImplementedError

    @classmethod
    def labels(cls, settings: Any, pairs: Pairs) -> list[str]:
        """All labels there are, one by one."""
        raise NotImplementedError

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, Any]:
        named = {"train": list(files), "valid": []} if files else {}
        return {**named, "valid": list(valid)} if valid else named

    @classmethod
    def read_test(cls, settings: Any, files: Sequence[str]) -> list[Pairs]:
        return [cls.read_file(settings, path) for path in files]

    @classmethod
    def read(cls, settings: Any, seed: int) -> Dataset:
        if not settings.train:
            raise DataError("there is nothing to learn from; name a .tsv, .csv or .jsonl file with texts and labels")
        train = [cls.read_file(settings, path) for path in settings.train]
        if settings.valid:
            valid = [cls.read_file(settings, path) for path in settings.valid]
        else:
            train, valid = cls._divided(settings, train, seed)
        counts = Counter(label for pairs in train for label in cls.labels(settings, pairs))
        facts = {
            "train": {"texts": sum(map(len, train)), "labels": counts.total(), "classes": len(counts)},
            "valid": {"texts": sum(map(len, valid))},
        }
        names = ", ".join(pairs.name for pairs in train)
        often = ", ".join(f"{label} {100 * n / counts.total():.1f} %" for label, n in counts.most_common(SHOWN))
        said = [
            f"{names}: {facts['train']['texts']:,} texts to learn from, {facts['valid']['texts']:,} to be judged by",
            f"{len(counts)} classes: {often}" + (" …" if len(counts) > SHOWN else ""),
        ]
        return Dataset(train, valid, fingerprint(*train, *valid), facts, said)

    @classmethod
    def _divided(cls, settings: Any, whole: Sequence[Pairs], seed: int) -> tuple[list[Pairs], list[Pairs]]:
        """What is learned from and what is set aside; texts stay whose class would otherwise not be learned at all."""
        parts = [split_pairs(pairs, size=max(1, round(settings.hold_out * len(pairs))), seed=seed) for pairs in whole]
        known = {label for rest, _ in parts for label in cls.labels(settings, rest)}
        train, valid = list[Pairs](), list[Pairs]()
        for rest, aside in parts:
            rows = [aside.take(np.array([i])) for i in range(len(aside))]
            familiar = np.array([known.issuperset(cls.labels(settings, row)) for row in rows])
            stays, goes = aside.take(np.flatnonzero(~familiar)), aside.take(np.flatnonzero(familiar))
            more = replace(rest, source=[*rest.source, *stays.source], target=[*rest.target, *stays.target])
            train.append(more if len(stays) else rest)
            valid.append(goes)
        if not any(map(len, valid)):
            raise DataError("every text that could be set aside has a class of its own; name a file by --valid")
        return train, [pairs for pairs in valid if len(pairs)]

    @classmethod
    def advise(cls, settings: Any, dataset: Dataset, train: Mapping[str, Any]) -> Advice:
        """Batches small enough that a pass has some steps, and a warm-up of a tenth."""
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
    def prepare(cls, settings: Any, dataset: Dataset) -> Self:
        lines = [text for pairs in dataset.train for text in pairs.source]
        return cls(settings, Tokenizer.train(lines, settings.tokenizer), cls._classes(settings, dataset))

    @classmethod
    def prepare_from(cls, settings: Any, dataset: Dataset, files: Mapping[str, bytes]) -> Self:
        return cls(settings, own_tokenizer(files), cls._classes(settings, dataset))

    @classmethod
    def load(cls, settings: Any, files: Mapping[str, bytes]) -> Self:
        return cls(settings, own_tokenizer(files), unpacked(files)["classes"])

    def files(self) -> dict[str, bytes]:
        return {FILE: self.target.to_bytes(), **packed(self.classes)}

    def describe_examples(self, examples: Rows, indices: NDArray[np.int64]) -> list[str]:
        return by_text(indices, examples.ids.take(indices), self.target)

    @classmethod
    def _classes(cls, settings: Any, dataset: Dataset) -> tuple[str, ...]:
        labels = [label for pairs in dataset.train for label in cls.labels(settings, pairs)]
        return class_names(labels, ", ".join(pairs.name for pairs in dataset.train))
