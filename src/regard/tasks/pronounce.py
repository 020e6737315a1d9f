"""Pronunciation: letters to phones, learned from a dictionary; right is what equals any pronunciation listed for a word.

It is translation with two vocabularies, characters and phones. Words kept for validation and test are the same in every run:
a model is never judged by a word it has learned, be it in another of its pronunciations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field

from regard.data.pairs import Pairs, fingerprint
from regard.data.pronunciation import OR, Part, assign_split, merge_dictionaries, read_dictionary
from regard.data.ragged import Ragged
from regard.errors import DataError, SpecError
from regard.metrics import METRICS
from regard.spec import Count, Share, Spec, spec
from regard.tasks.common.seq2seq import TextPairs
from regard.tasks.common.task import TASKS, Dataset
from regard.text import Chars, Pieces, Tokenizer

HoldOut = Annotated[float, Field(gt=0, lt=0.5)]


@spec
class PronounceData(Spec):
    """The `data` part of a recipe: dictionaries, and which of their words are kept apart."""

    train: tuple[str, ...] = ()
    stress: bool = False
    """Whether vowels keep the digit that says how they are stressed."""
    valid: HoldOut = 0.01
    test: HoldOut = 0.1
    """The shares of all words that are kept for validation, and for `regard eval`."""
    max_length: Count = 48
    """Words with more letters or phones than this are left out of training."""
    word_dropout: Share = 0.0
    """In every epoch so many of the letters and phones that are read are unknown to the model."""
    metrics: tuple[str, ...] = ("word_error", "phone_error")

    def __post_init__(self) -> None:
        if not self.metrics:
            raise SpecError("`metrics` should name at least one score; the first decides which checkpoint is best")
        for name in self.metrics:
            METRICS[name]


@TASKS.add
class Pronounce(TextPairs[PronounceData]):
    """Words to phones."""

    Settings = PronounceData

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, Any]:
        if valid:
            raise SpecError(
                "words for validation are kept apart by themselves (data.valid says how many); leave out --valid"
            )
        return {"train": list(files)} if files else {}

    @classmethod
    def read_test(cls, settings: PronounceData, files: Sequence[str]) -> list[Pairs]:
        """The words that are kept for a test; of any dictionary, so that none of them was learned."""
        words = merge_dictionaries([read_dictionary(path, stress=settings.stress) for path in files])
        return [_whole(words, settings, "test", ", ".join(files))]

    @classmethod
    def read(cls, settings: PronounceData, seed: int) -> Dataset:
        if not settings.train:
            raise DataError("there is nothing to learn from; name a pronouncing dictionary, such as cmudict.dict")
        words = merge_dictionaries([read_dictionary(path, stress=settings.stress) for path in settings.train])
        name = ", ".join(settings.train)
        learned = [(word, way) for word, ways in words.items() if _part(word, settings) == "train" for way in ways]
        if not learned:
            raise DataError(
                f"{name} holds {len(words)} words, none of which is to learn from; name a larger dictionary"
            )
        train = Pairs([word for word, _ in learned], [way for _, way in learned], name=name)
        valid = _whole(words, settings, "valid", name)
        facts = {
            "train": {"words": len(set(train.source)), "pronunciations": len(train)},
            "valid": {"words": len(valid)},
        }
        kept = len(words) - len(valid) - facts["train"]["words"]
        said = [
            f"{name}: {facts['train']['words']:,} words with {len(train):,} pronunciations to learn from, {len(valid):,} words "
            f"to be judged by, {kept:,} kept for a test"
        ]
        return Dataset([train], [valid], fingerprint(train, valid), facts, said)

    @classmethod
    def prepare(cls, settings: PronounceData, dataset: Dataset) -> Self:
        (train,) = dataset.train
        return cls(settings, Tokenizer.train(train.target, Pieces()), Tokenizer.train(train.source, Chars()))

    def tokenize_pairs(self, sources: Sequence[str], targets: Sequence[str], tag: str | None) -> tuple[Ragged, Ragged]:
        """If several pronunciations are correct, the loss is that of the first."""
        return super().tokenize_pairs(sources, [ways.partition(OR)[0] for ways in targets], tag)


def _part(word: str, settings: PronounceData) -> Part:
    return assign_split(word, valid=settings.valid, test=settings.test)


def _whole(words: Mapping[str, Sequence[str]], settings: PronounceData, part: Part, name: str) -> Pairs:
    """The words of a part, each with all its pronunciations."""
    found = [(word, OR.join(ways)) for word, ways in words.items() if _part(word, settings) == part]
    if not found:
        raise DataError(f"{name} holds {len(words)} words, none of which is for {part}; name a larger dictionary")
    return Pairs([word for word, _ in found], [ways for _, ways in found], name=f"{name}, for {part}")
