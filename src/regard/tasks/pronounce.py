"""Pronunciation: letters to phones, learned from a dictionary; right is what equals any pronunciation listed for a word.

It is translation with two vocabularies, characters and phones. Words kept for validation and test are the same in every run:
a model is never judged by a word it has learned, be it in another of its pronunciations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.pairs import Pairs, fingerprint
from regard.data.pronunciation import OR, Part, assign_split, merge_dictionaries, read_dictionary
from regard.data.ragged import Ragged
from regard.errors import DataError, SpecError
from regard.metrics import METRICS
from regard.spec import Count, Share, Spec, spec
from regard.tasks.common.encoded_pairs import Encoded
from regard.tasks.common.example_names import by_text
from regard.tasks.common.task import TASKS, Advice, Dataset, EvalSet
from regard.tasks.translate import Translate, TranslateOptions
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
    subword_sampling: ClassVar[float] = 0.0
    limit: ClassVar[None] = None
    temperature: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not self.metrics:
            raise SpecError("`metrics` should name at least one score; the first decides which checkpoint is best")
        for name in self.metrics:
            METRICS[name]


@TASKS.add
class Pronounce(Translate):
    """Words to phones."""

    Settings = PronounceData  # type: ignore[assignment]

    def __init__(self, settings: PronounceData, target: Tokenizer, source: Tokenizer | None = None) -> None:
        super().__init__(settings, target, source)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, Any]:
        if valid:
            raise SpecError(
                "words for validation are kept apart by themselves (data.valid says how many); leave out --valid"
            )
        return {"train": list(files)} if files else {}

    @classmethod
    def read_test(cls, settings: PronounceData, files: Sequence[str]) -> list[Pairs]:  # type: ignore[override]
        """The words that are kept for a test; of any dictionary, so that none of them was learned."""
        words = merge_dictionaries([read_dictionary(path, stress=settings.stress) for path in files])
        return [_whole(words, settings, "test", ", ".join(files))]

    @classmethod
    def read(cls, settings: PronounceData, seed: int) -> Dataset:  # type: ignore[override]
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
    def advise(cls, settings: PronounceData, dataset: Dataset, train: Mapping[str, Any]) -> Advice:  # type: ignore[override]
        return Advice({}, [])

    @classmethod
    def prepare(cls, settings: PronounceData, dataset: Dataset) -> Self:  # type: ignore[override]
        (train,) = dataset.train
        return cls(settings, Tokenizer.train(train.target, Pieces()), Tokenizer.train(train.source, Chars()))

    def _cut(self, sources: Sequence[str], targets: Sequence[str], tag: str | None) -> tuple[Ragged, Ragged]:
        """Where several pronunciations are right, the first is the one a loss is taken of."""
        return super()._cut(sources, [ways.partition(OR)[0] for ways in targets], tag)

    def describe_examples(self, examples: Encoded, indices: NDArray[np.int64]) -> list[str]:
        return by_text(indices, examples.source.take(indices), self.source)

    # ------------------------------------------------------------------------------------------------ to the user

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        return [EvalSet(pairs.source, pairs.target, TranslateOptions(), pairs.name) for pairs in raw]


def _part(word: str, settings: PronounceData) -> Part:
    return assign_split(word, valid=settings.valid, test=settings.test)


def _whole(words: Mapping[str, Sequence[str]], settings: PronounceData, part: Part, name: str) -> Pairs:
    """The words of a part, each with all its pronunciations."""
    found = [(word, OR.join(ways)) for word, ways in words.items() if _part(word, settings) == part]
    if not found:
        raise DataError(f"{name} holds {len(words)} words, none of which is for {part}; name a larger dictionary")
    return Pairs([word for word, _ in found], [ways for _, ways in found], name=f"{name}, for {part}")
