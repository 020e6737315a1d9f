"""Base of the tasks that learn from plain text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.documents import DocumentUnit, hold_out_documents, read_documents
from regard.data.tables import refuse_tables
from regard.data.windows import fingerprint_texts
from regard.errors import DataError
from regard.spec import Spec, spec
from regard.tasks.common.encoder_input import TOKENIZER_FILE, load_tokenizer
from regard.tasks.common.example_names import quote_examples
from regard.tasks.common.task import Dataset, RunOptions
from regard.text import Bpe, Tokenizer, TokenizerSpec


@spec
class TextData(Spec):
    """Text files, and what a document is in them."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    hold_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Fraction at the end of each file held out for validation if no validation files are given."""
    tokenizer: TokenizerSpec = Bpe()
    documents: DocumentUnit = "file"
    """What a document is: a `file`, the text between `blank` lines, or a `line`."""


@dataclasses.dataclass(frozen=True)
class Texts:
    """Documents, for training or evaluation."""

    documents: tuple[str, ...]
    training: bool = False


D = TypeVar("D", bound=TextData)


class CorpusTask(Generic[D]):
    """A task that reads `TextData`."""

    Options = RunOptions
    data_hint = "name a text file"
    """What to do if there is no data, for the error message."""
    settings: D
    tokenizer: Tokenizer

    def __init__(self, settings: D, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        named: dict[str, object] = {"train": list(files), "valid": []} if files else {}
        return {**named, "valid": list(valid)} if valid else named

    @classmethod
    def read_test(cls, settings: D, files: Sequence[str]) -> Texts:
        refuse_tables(files)
        return Texts(tuple(text for path in files for text in read_documents(path, settings.documents)))

    @classmethod
    def read(cls, settings: D, seed: int) -> Dataset:
        if not settings.train:
            raise DataError(f"no training data; {cls.data_hint}")
        refuse_tables((*settings.train, *settings.valid))
        files = [read_documents(path, settings.documents) for path in settings.train]
        if settings.valid:
            held = [text for path in settings.valid for text in read_documents(path, settings.documents)]
        else:
            parts = [hold_out_documents(found, settings.hold_out) for found in files]
            files, held = [rest for rest, _ in parts], [text for _, aside in parts for text in aside]
        texts = [text for found in files for text in found]
        if not texts or not held:
            raise DataError(f"{', '.join(settings.train)} should have text for both training and validation")
        sizes = {"characters": sum(map(len, texts)), "distinct": len(set().union(*texts)), "documents": len(texts)}
        statistics = {"train": sizes, "valid": {"characters": sum(map(len, held)), "documents": len(held)}}
        names = ", ".join(Path(path).name for path in settings.train)
        apart = "" if settings.documents == "file" else f" in {len(texts):,} documents"
        messages = [
            f"{names}: {sizes['characters']:,} characters{apart} for training, {sum(map(len, held)):,} for validation"
        ]
        fingerprint = fingerprint_texts([*texts, *held])
        return Dataset(Texts(tuple(texts), training=True), Texts(tuple(held)), fingerprint, statistics, messages)

    @classmethod
    def special_tokens(cls, settings: D) -> Sequence[str]:
        """Special tokens that the task needs in its vocabulary."""
        return ()

    @classmethod
    def prepare(cls, settings: D, dataset: Dataset) -> Self:
        return cls(
            settings, Tokenizer.train(dataset.train.documents, settings.tokenizer, tags=cls.special_tokens(settings))
        )

    @classmethod
    def load(cls, settings: D, files: Mapping[str, bytes]) -> Self:
        return cls(settings, load_tokenizer(files))

    def files(self) -> dict[str, bytes]:
        return {TOKENIZER_FILE: self.tokenizer.to_bytes()}

    def describe_examples(self, examples: Any, indices: NDArray[np.int64]) -> list[str]:
        return quote_examples(indices, examples.ids.take(indices), self.tokenizer)

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return self.tokenizer.mostly_unknown(inputs)
