"""What tasks have in common that learn from nothing but texts: files, documents, and a part kept to be judged by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.documents import DocumentUnit, hold_out_documents, read_documents
from regard.data.windows import fingerprint_texts
from regard.errors import DataError
from regard.spec import Spec, spec
from regard.tasks.common.encoder_input import FILE, own_tokenizer
from regard.tasks.common.example_names import by_text
from regard.tasks.common.task import Dataset, RunOptions
from regard.text import Tokenizer


@spec
class TextData(Spec):
    """Text files, and what in them is a document."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    hold_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The last part of each file, kept for validation where no validation files are given."""
    documents: DocumentUnit = "file"
    """file: each file is one; blank: blank lines stand between them; line: each line is one."""


@dataclasses.dataclass(frozen=True)
class Texts:
    """Documents, to be learned from or to be judged by."""

    documents: tuple[str, ...]
    learn: bool = False


class FromTexts:
    """A task that reads `TextData`."""

    Options = RunOptions
    wants = "name a text file"
    """What the task needs, in words, when there is nothing."""
    settings: Any
    target: Tokenizer

    def __init__(self, settings: Any, target: Tokenizer) -> None:
        self.settings, self.target = settings, target

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, Any]:
        named = {"train": list(files), "valid": []} if files else {}
        return {**named, "valid": list(valid)} if valid else named

    @classmethod
    def read_test(cls, settings: Any, files: Sequence[str]) -> Texts:
        return Texts(tuple(text for path in files for text in read_documents(path, settings.documents)))

    @classmethod
    def read(cls, settings: Any, seed: int) -> Dataset:
        if not settings.train:
            raise DataError(f"there is nothing to learn from; {cls.wants}")
        files = [read_documents(path, settings.documents) for path in settings.train]
        if settings.valid:
            held = [text for path in settings.valid for text in read_documents(path, settings.documents)]
        else:
            parts = [hold_out_documents(found, settings.hold_out) for found in files]
            files, held = [rest for rest, _ in parts], [text for _, aside in parts for text in aside]
        texts = [text for found in files for text in found]
        if not texts or not held:
            raise DataError(f"{', '.join(settings.train)} should hold something to learn from and to be judged by")
        sizes = {"characters": sum(map(len, texts)), "distinct": len(set().union(*texts)), "documents": len(texts)}
        facts = {"train": sizes, "valid": {"characters": sum(map(len, held)), "documents": len(held)}}
        names = ", ".join(Path(path).name for path in settings.train)
        apart = "" if settings.documents == "file" else f" in {len(texts):,} documents"
        said = [
            f"{names}: {sizes['characters']:,} characters{apart} to learn from, {sum(map(len, held)):,} to be judged by"
        ]
        fingerprint = fingerprint_texts([*texts, *held])
        return Dataset(Texts(tuple(texts), learn=True), Texts(tuple(held)), fingerprint, facts, said)

    @classmethod
    def marks(cls, settings: Any) -> Sequence[str]:
        """Tokens that the task needs in its vocabulary, beside those of the texts."""
        return ()

    @classmethod
    def prepare(cls, settings: Any, dataset: Dataset) -> Self:
        return cls(settings, Tokenizer.train(dataset.train.documents, settings.tokenizer, tags=cls.marks(settings)))

    @classmethod
    def load(cls, settings: Any, files: Mapping[str, bytes]) -> Self:
        return cls(settings, own_tokenizer(files))

    def files(self) -> dict[str, bytes]:
        return {FILE: self.target.to_bytes()}

    def describe_examples(self, examples: Any, indices: NDArray[np.int64]) -> list[str]:
        return by_text(indices, examples.ids.take(indices), self.target)

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return self.target.mostly_unknown(inputs)
