"""Pronunciation: letters to phones, from a dictionary.

It is translation with two vocabularies, characters and phones. An output is correct if it equals any pronunciation
listed for the word. Words for validation and test are the same in every run, so a model is never tested on a word it
was trained on, not even on another pronunciation of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Self

from pydantic import Field

from regard.data.pairs import Pairs, fingerprint
from regard.data.pronunciation import OR, Part, assign_split, merge_dictionaries, read_dictionary
from regard.data.ragged import Ragged
from regard.errors import DataError, SpecError
from regard.spec import Count, Share, Spec, spec
from regard.tasks.common.data_settings import check_metrics
from regard.tasks.common.seq2seq import TextPairs
from regard.tasks.common.task import TASKS, Dataset, TextSide
from regard.text import Chars, Pieces, Tokenizer

HoldOut = Annotated[float, Field(gt=0, lt=0.5)]


@spec
class PronounceData(Spec):
    """The `data` part of a recipe: dictionaries, and which of their words are held out."""

    train: tuple[str, ...] = ()
    stress: bool = False
    """Vowels keep the digit for their stress."""
    valid: HoldOut = 0.01
    test: HoldOut = 0.1
    """The fractions of all words for validation and for `regard eval`."""
    max_length: Count = 48
    """Words with more letters or phones than this are left out of training."""
    word_dropout: Share = 0.0
    """Fraction of the letters and phones that are replaced by the unknown token, anew in every epoch."""
    metrics: tuple[str, ...] = ("word_error", "phone_error")

    def __post_init__(self) -> None:
        check_metrics(self.metrics)


@TASKS.add
class Pronounce(TextPairs[PronounceData]):
    """Words to phones."""

    Settings = PronounceData

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        if valid:
            raise SpecError(
                "words for validation are chosen from the dictionary (data.valid is their share); leave out --valid"
            )
        return {"train": list(files)} if files else {}

    @classmethod
    def read_test(cls, settings: PronounceData, files: Sequence[str]) -> list[Pairs]:
        """The test words of any dictionaries: none of them was trained on."""
        words = merge_dictionaries([read_dictionary(path, stress=settings.stress) for path in files])
        return [_select_words(words, settings, "test", ", ".join(files))]

    @classmethod
    def read(cls, settings: PronounceData, seed: int) -> Dataset:
        if not settings.train:
            raise DataError("no training data; name a pronouncing dictionary, such as cmudict.dict")
        words = merge_dictionaries([read_dictionary(path, stress=settings.stress) for path in settings.train])
        name = ", ".join(settings.train)
        learned = [(word, way) for word, ways in words.items() if _assign(word, settings) == "train" for way in ways]
        if not learned:
            raise DataError(f"{name} holds {len(words)} words, none of them for training; name a larger dictionary")
        train = Pairs([word for word, _ in learned], [way for _, way in learned], name=name)
        valid = _select_words(words, settings, "valid", name)
        trained = len(set(train.source))
        statistics = {"train": {"words": trained, "pronunciations": len(train)}, "valid": {"words": len(valid)}}
        messages = [
            f"{name}: {trained:,} words with {len(train):,} pronunciations for training, {len(valid):,} words for "
            f"validation, {len(words) - len(valid) - trained:,} for testing"
        ]
        return Dataset([train], [valid], fingerprint(train, valid), statistics, messages)

    @classmethod
    def prepare(cls, settings: PronounceData, dataset: Dataset) -> Self:
        (train,) = dataset.train
        return cls(settings, Tokenizer.train(train.target, Pieces()), Tokenizer.train(train.source, Chars()))

    def list_texts(self, raw: Sequence[Pairs]) -> list[TextSide]:
        read, written = super().list_texts(raw)
        return [read, replace(written, texts=[ways.partition(OR)[0] for ways in written.texts])]

    def tokenize_pairs(self, sources: Sequence[str], targets: Sequence[str], tag: str | None) -> tuple[Ragged, Ragged]:
        """Tokenize pairs; if several pronunciations are correct, the loss is that of the first."""
        return super().tokenize_pairs(sources, [ways.partition(OR)[0] for ways in targets], tag)


def _assign(word: str, settings: PronounceData) -> Part:
    return assign_split(word, valid=settings.valid, test=settings.test)


def _select_words(words: Mapping[str, Sequence[str]], settings: PronounceData, part: Part, name: str) -> Pairs:
    """The words of one part, each with all its pronunciations."""
    found = [(word, OR.join(ways)) for word, ways in words.items() if _assign(word, settings) == part]
    if not found:
        raise DataError(f"{name} holds {len(words)} words, none of them for {part}; name a larger dictionary")
    return Pairs([word for word, _ in found], [ways for _, ways in found], name=f"{name}, for {part}")
