"""Translation in the widest sense: any text to any text.

Learned from pairs, such as English and German sentences, or dates and ISO 8601.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from regard.data.corpus_stats import describe_corpus
from regard.data.curriculum import Curriculum, CurriculumOrder
from regard.data.example_rng import Rng
from regard.data.generators import GeneratorSpec
from regard.data.line_store import ConcatenatedLines
from regard.data.pair_reader import Corpus, OnBad, corpus_like, fill_columns, locate_pairs, read_corpus, read_splits
from regard.data.pairs import MAX_VOCABULARY_PAIRS, Pairs, fingerprint, sample_pairs
from regard.data.subword_sampling import SubwordSampler
from regard.errors import DataError, SpecError
from regard.spec import Count, Plain, Share, spec
from regard.tasks.common.advice import advise_pairs
from regard.tasks.common.data_settings import PairData, check_metrics, configure_files, name_corpus
from regard.tasks.common.encoded_pairs import EncodedPairs
from regard.tasks.common.pairs_frame import MAX_UNFOLD, tag_token
from regard.tasks.common.seq2seq import TextPairs
from regard.tasks.common.task import TASKS, Advice, BatchOrder, Dataset, EvalSet, Examples
from regard.tasks.common.training_hooks import bucket
from regard.text import Bpe, Tokenizer, TokenizerSpec
from regard.text.lattice import CANNOT_SAMPLE


def _split_codes(given: object) -> object:
    """`en,de` on a command line is a list of codes."""
    return tuple(part.strip() for part in given.split(",")) if isinstance(given, str) else given


Code = Annotated[str, Field(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{2,8})*$")]
Languages = Annotated[tuple[Code, ...], BeforeValidator(_split_codes), Field(min_length=2)]


@spec
class TranslateData(PairData):
    """The `data` part of a recipe. Pairs come from corpora, or from a generator."""

    generate: GeneratorSpec | None = None
    tokenizer: TokenizerSpec = Bpe()
    languages: Languages | None = None
    """Codes of the source and the target language, such as en,de; a server lists them."""
    joint_vocab: bool = True
    max_length: Count = 256
    """Pairs with more tokens on either side, tag and end mark included, are left out of training."""
    limit: Count | None = None
    """With several corpora: the number of pairs above which a corpus gets no larger share of an epoch."""
    temperature: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """With several corpora: the higher the temperature, the more equal their shares of an epoch."""
    subword_sampling: Share = 0.0
    """Split words into other subwords in every epoch: BPE skips this fraction of merges (usually 0.1), unigram samples."""
    word_dropout: Share = 0.0
    """Replace this fraction of the tokens that are read by the unknown token, anew in every epoch (usually 0.1)."""
    unfold: Annotated[float, Field(ge=1, le=MAX_UNFOLD, allow_inf_nan=False)] = 1.0
    """Repeat the end mark of a source until it is this many times as long (ByteNet's dynamic unfolding, usually 1.2)."""
    curriculum: Curriculum | None = None
    """Train on short pairs first; the maximum length grows with the number of batches."""
    metrics: tuple[str, ...] = ("bleu", "chrf")

    def __post_init__(self) -> None:
        if self.generate is not None and (self.train or self.valid):
            raise SpecError("pairs come from `train` and `valid` corpora or from `generate`, not from both")
        if self.generate is not None and (self.filters or self.on_bad):
            raise SpecError("pairs that `generate` makes are not filtered; leave out `filters` and `on_bad`")
        check_metrics(self.metrics)
        if self.subword_sampling and not self.tokenizer.can_sample:
            raise SpecError(CANNOT_SAMPLE)


@TASKS.add
class Translate(TextPairs[TranslateData]):
    """Text to text, learned from pairs; optionally many languages in one model."""

    Settings = TranslateData
    offers_filters = True
    """True if the filters for translations are offered where they would drop pairs."""

    def __init__(self, settings: TranslateData, tokenizer: Tokenizer, source: Tokenizer | None = None) -> None:
        super().__init__(settings, tokenizer, source)
        self.unfold = settings.unfold
        self._samplers: tuple[EncodedPairs, list[SubwordSampler]] | None = None

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        return configure_files(name_corpus(files), name_corpus(valid))

    @classmethod
    def read_test(cls, settings: TranslateData, files: Sequence[str]) -> list[Pairs]:
        return cls.read_test_pairs(settings, files, None)

    @classmethod
    def read_test_pairs(cls, settings: TranslateData, files: Sequence[str], on_bad: OnBad | None) -> list[Pairs]:
        """Read test files as the corpus of the recipe that they are, or like its training corpora if these have one form.

        Otherwise files are read as they are; if the model expects prefixes, the sources should have them.
        """
        paths = tuple(files)
        own = [corpus for corpus in (*settings.valid, *settings.train) if corpus.paths == paths]
        alike = {corpus_like(corpus, paths) for corpus in settings.train}
        like = own or (alike if len(alike) == 1 else [Corpus(paths)])
        found = dict.fromkeys(fill_columns([*like], settings.columns, settings.header))
        return [read_corpus(corpus, on_bad=on_bad or (settings.on_bad if own else None)) for corpus in found]

    @classmethod
    def read(cls, settings: TranslateData, seed: int) -> Dataset:
        if settings.generate is not None:
            settings.generate.check_memory()
            train, valid = [settings.generate.pairs("train")], [settings.generate.pairs("valid")]
        elif settings.train:
            learn, check = (
                fill_columns(part, settings.columns, settings.header) for part in (settings.train, settings.valid)
            )
            train, valid = read_splits(learn, check, settings.filters, settings.on_bad, seed)
        else:
            raise DataError("no training data; name two text files or one .tsv, .csv or .jsonl file")
        count = sum(map(len, train))
        offer = cls.offers_filters and not settings.filters and settings.generate is None
        reports = [describe_corpus(pairs, offer=offer) for pairs in train]
        valid_reports = [describe_corpus(pairs, train=train) for pairs in valid]
        for report in valid_reports:
            if report.swapped and settings.valid:  # examples that were held out cannot be
                raise DataError(
                    f"{report.name}: source and target are swapped: each side has the other's words in the training "
                    "data; name the files in the other order"
                )
        messages = [note for pairs in (*train, *valid) for note in pairs.notes]
        messages += [line for report in reports for line in report.lines()]
        messages += [f"{report.name}: {fact}" for report in valid_reports for fact in report.facts]
        if not settings.valid:
            messages.append(f"{sum(map(len, valid)):,} pairs are held out for validation; --valid names others")
        if count > MAX_VOCABULARY_PAIRS:
            messages.append(
                f"vocabulary: if one is trained, from {MAX_VOCABULARY_PAIRS:,} of the {count:,} pairs, chosen at random"
            )
        statistics = {"train": [r.plain() for r in reports], "valid": [r.plain() for r in valid_reports]}
        lost = [row for pairs in (*train, *valid) for row in pairs.lost()]
        return Dataset(
            train, valid, fingerprint(*train, *valid), statistics, [] if settings.generate else messages, lost
        )

    @classmethod
    def advise(cls, settings: TranslateData, dataset: Dataset, recipe: Plain) -> Advice:
        return advise_pairs(dataset.train, recipe.get("train") or {}, recipe.get("model") or {})

    @classmethod
    def prepare(cls, settings: TranslateData, dataset: Dataset) -> Self:
        tags = sorted({tag_token(p.tag) for p in [*dataset.train, *dataset.valid] if p.tag})
        some = sample_pairs(dataset.train)
        sources, targets = ConcatenatedLines([p.source for p in some]), ConcatenatedLines([p.target for p in some])
        if settings.joint_vocab:
            return cls(settings, Tokenizer.train(chain(sources, targets), settings.tokenizer, tags=tags))
        target = Tokenizer.train(targets, settings.tokenizer)
        return cls(settings, target, Tokenizer.train(sources, settings.tokenizer, tags=tags))

    def order_batches(self, examples: Examples, *, tokens: int | None, seed: int, evaluate: bool = False) -> BatchOrder:
        """Batches of like lengths; with a curriculum, short ones first."""
        buckets = bucket(examples, tokens=tokens, seed=seed, evaluate=evaluate)
        if evaluate or self.settings.curriculum is None:
            return buckets
        if examples.shares is not None:
            raise DataError("a curriculum needs a single corpus; join the corpora, or leave out data.curriculum")
        return CurriculumOrder(self.settings.curriculum, buckets)

    def mixture(self) -> tuple[int | None, float]:
        return self.settings.limit, self.settings.temperature

    def augment(self, examples: EncodedPairs, seed: int, epoch: int) -> EncodedPairs:
        """Words split into other subwords, and some tokens dropped; a pair that would be too long stays as it is."""
        if self.settings.subword_sampling:
            if self._samplers is None or self._samplers[0] is not examples:
                sides = (examples.source, self.source_tokenizer), (examples.target, self.tokenizer)
                self._samplers = examples, [SubwordSampler(*side, self.settings.subword_sampling) for side in sides]
            drawn = [sampler.sample(Rng(seed, side, epoch)) for side, sampler in enumerate(self._samplers[1])]
            short = np.stack([rows.lengths for rows in drawn]).max(0) < self.settings.max_length
            source, target = drawn[0].where(short, examples.source), drawn[1].where(short, examples.target)
            lengths = np.stack([source.lengths, target.lengths], 1) + 1
            examples = dataclasses.replace(examples, source=source, target=target, lengths=lengths)
        return super().augment(examples, seed, epoch)

    def describe_examples(self, examples: EncodedPairs, indices: NDArray[np.int64]) -> list[str]:
        """Names with the file and line of each pair, where it is found there."""
        names = super().describe_examples(examples, indices)
        sides = ((examples.source, self.source_tokenizer), (examples.target, self.tokenizer))
        texts = [[tokenizer.decode(ids) for ids in side.take(indices)] for side, tokenizer in sides]
        pairs = list(zip(*texts, strict=True))
        settings = self.settings
        where = locate_pairs(fill_columns(settings.train, settings.columns, settings.header), pairs)
        return [f"{where[pair]}: {name}" if pair in where else name for name, pair in zip(names, pairs, strict=True)]

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        """References without the marks of a tokenization that the corpus came with."""
        join = self.settings.tokenizer.desegment
        return [dataclasses.replace(each, references=[*map(join, each.references)]) for each in super().eval_sets(raw)]
