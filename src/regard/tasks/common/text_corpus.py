"""Base of the tasks that learn from plain text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.document_parts import MAX_SAMPLE, TextSample, hold_out, iter_pieces, join, survey
from regard.data.document_store import Documents, HeldDocuments, open_documents
from regard.data.documents import DocumentUnit
from regard.data.tables import refuse_tables
from regard.errors import DataError
from regard.files.folder import TOKENIZER
from regard.spec import Spec, spec
from regard.tasks.common.data_settings import configure_files
from regard.tasks.common.encoded_documents import StorePlace
from regard.tasks.common.encoder_input import load_tokenizer
from regard.tasks.common.example_names import quote_examples
from regard.tasks.common.task import Dataset, Examples, RunOptions, TextSide
from regard.text import Bpe, Tokenizer, TokenizerSpec


@spec
class TextData(Spec):
    """Text files, and what a document is in them."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    hold_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Fraction at the end of each file held out for validation if no validation files are given; 8 MB at most."""
    tokenizer: TokenizerSpec = Bpe()
    documents: DocumentUnit = "file"
    """Unit of a document: a `file`, the text between `blank` lines, or a `line`."""


class Texts:
    """Documents, for training or evaluation."""

    def __init__(self, documents: Sequence[str], training: bool = False) -> None:
        self.documents = documents if isinstance(documents, Documents) else HeldDocuments(documents)
        self.training = training


D = TypeVar("D", bound=TextData)


class CorpusTask(Generic[D]):
    """A task that reads `TextData`."""

    Options = RunOptions
    data_hint = "name a text file"
    """Advice if there is no data, for the error message."""
    settings: D
    tokenizer: Tokenizer

    def __init__(self, settings: D, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        return configure_files(files, valid)

    @classmethod
    def read_test(cls, settings: D, files: Sequence[str]) -> Texts:
        refuse_tables(files)
        return Texts(join([open_documents(path, settings.documents) for path in files]))

    @classmethod
    def read(cls, settings: D, seed: int) -> Dataset:
        if not settings.train:
            raise DataError(f"no training data; {cls.data_hint}")
        refuse_tables((*settings.train, *settings.valid))
        files: Sequence[Documents] = [open_documents(path, settings.documents) for path in settings.train]
        if settings.valid:
            aside: Sequence[Documents] = [open_documents(path, settings.documents) for path in settings.valid]
        else:
            parts = [hold_out(found, settings.hold_out) for found in files if len(found)]
            files, aside = [rest for rest, _ in parts], [held for _, held in parts]
        train, valid = join(files), join(aside)
        if not train or not valid:
            raise DataError(f"{', '.join(settings.train)} should have text for both training and validation")
        texts, held = survey(train, valid)
        statistics = {
            "train": {"characters": texts.characters, "distinct": texts.distinct, "documents": len(train)},
            "valid": {"characters": held.characters, "documents": len(valid)},
        }
        names = ", ".join(Path(path).name for path in settings.train)
        apart = "" if settings.documents == "file" else f" in {len(train):,} documents"
        messages = [f"{names}: {texts.characters:,} characters{apart} for training, {held.characters:,} for validation"]
        if texts.characters > MAX_SAMPLE:
            messages.append(
                f"vocabulary: if one is trained, from about {MAX_SAMPLE:,} of these characters, chosen at random"
            )
        return Dataset(Texts(train, training=True), Texts(valid), held.fingerprint, statistics, messages)

    @classmethod
    def special_tokens(cls, settings: D) -> Sequence[str]:
        """Special tokens that the task needs in its vocabulary."""
        return ()

    @classmethod
    def sample_texts(cls, settings: D, documents: Documents) -> Iterable[str]:
        """The texts from which a vocabulary is learned: a sample, or all of them for a tokenizer that needs little memory."""
        if settings.tokenizer.learns_from_all:
            return (text for text, _ in iter_pieces(documents, "vocabulary, MB of text"))
        return TextSample(documents)

    @classmethod
    def prepare(cls, settings: D, dataset: Dataset) -> Self:
        return cls(
            settings,
            Tokenizer.train(
                cls.sample_texts(settings, dataset.train.documents),
                settings.tokenizer,
                tags=cls.special_tokens(settings),
            ),
        )

    @classmethod
    def load(cls, settings: D, files: Mapping[str, bytes]) -> Self:
        return cls(settings, load_tokenizer(files))

    def files(self) -> dict[str, bytes]:
        return {TOKENIZER: self.tokenizer.to_bytes()}

    def encode(self, raw: Texts) -> Examples:
        """Examples in memory, or in temporary files if there are many."""
        return self.encode_texts(raw, StorePlace())

    def encode_to(self, folder: Path, raw: Texts, fingerprint: str) -> Examples:
        """Encode texts into a folder, and again only if something changed."""
        return self.encode_texts(raw, StorePlace(folder, {"corpus": fingerprint, **self.describe_encoding()}))

    def encode_texts(self, raw: Texts, place: StorePlace) -> Examples:
        """Examples as token ids, kept in a place."""
        raise NotImplementedError

    def describe_encoding(self) -> dict[str, object]:
        """Return what the tokens depend on besides the texts."""
        data = {k: v for k, v in self.settings.plain().items() if k not in ("train", "valid", "metrics", "tokenizer")}
        files = {name: hashlib.sha256(raw).hexdigest() for name, raw in self.files().items()}
        return {"settings": json.loads(json.dumps(data, default=str)), "vocabulary": files}

    def describe_examples(self, examples: Any, indices: NDArray[np.int64]) -> list[str]:
        return quote_examples(indices, examples.ids.take(indices), self.tokenizer)

    def list_texts(self, raw: Texts) -> list[TextSide]:
        return [TextSide(self.tokenizer, (text for text, _ in iter_pieces(raw.documents)))]

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return self.tokenizer.mostly_unknown(inputs)
