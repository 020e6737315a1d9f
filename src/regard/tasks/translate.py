"""Translation in the wide sense: any text to any text, learned from pairs (English to German, dates to ISO 8601)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.batch import Batch
from regard.data.corpus_stats import describe_corpus
from regard.data.example_rng import ExampleRng, Rng
from regard.data.filters.pipeline import FilterList
from regard.data.generators import GeneratorSpec
from regard.data.line_store import ConcatenatedLines
from regard.data.pair_reader import Corpus, OnBad, corpus_like, locate_pairs, read_corpus, read_splits
from regard.data.pairs import MAX_VOCABULARY_PAIRS, Pairs, fingerprint, sample_pairs
from regard.data.ragged import Ragged
from regard.data.subword_sampling import SubwordSampler
from regard.data.token_store import InMemoryTokens, TokenStore
from regard.data.word_dropout import drop_words
from regard.decode import Constraints, Draw, Search, SpecialTokens, generate, score
from regard.errors import CheckpointError, DataError, SpecError
from regard.metrics import METRICS
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.spec import Count, Share, Spec, spec
from regard.tasks.common.advice import advise
from regard.tasks.common.encoded_pairs import Encoded, encode_pairs, in_folder, in_memory
from regard.tasks.common.encoder_input import Attention
from regard.tasks.common.example_names import by_text
from regard.tasks.common.seq2seq import both_sides, pair_batch, pair_loss, pair_weights
from regard.tasks.common.task import TASKS, Advice, Dataset, EvalSet, Loss, Output, RunOptions
from regard.tasks.common.word_scores import Confidence, Links, Wordwise
from regard.text import Bpe, Tokenizer, TokenizerSpec
from regard.text.lattice import CANNOT_SAMPLE
from regard.text.sentence_split import split_text
from regard.text.word_ids import TokenizedWords, encode_inside, group_tokens, tokenize_words

TARGET, SOURCE = "tokenizer.json", "tokenizer.source.json"


@spec
class TranslateData(Spec):
    """The `data` part of a recipe. Pairs come from corpora, or are made by a generator."""

    train: tuple[Corpus, ...] = ()
    valid: tuple[Corpus, ...] = ()
    on_bad: OnBad | None = None
    """What to do about a bad pair, whatever the corpora say: `error` or `drop`."""
    filters: FilterList = ()
    """What training pairs must pass, in this order; `standard` for those that translations mostly need."""
    generate: GeneratorSpec | None = None
    tokenizer: TokenizerSpec = Bpe()
    joint_vocab: bool = True
    max_length: Count = 256
    """Pairs with more tokens than this on either side, tag and mark included, are left out of training."""
    limit: Count | None = None
    """Where there are several corpora: none counts for more pairs than this when an epoch is shared out among them,"""
    temperature: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """and the higher this is, the more alike their shares are."""
    subword_sampling: Share = 0.0
    """In every epoch words are cut in other ways; BPE leaves out so many of its merges (0.1 is usual), unigram draws."""
    word_dropout: Share = 0.0
    """In every epoch so many of the tokens that are read, on both sides, are unknown to the model (0.1 is usual)."""
    metrics: tuple[str, ...] = ("bleu", "chrf")

    def __post_init__(self) -> None:
        if self.generate is not None and (self.train or self.valid):
            raise SpecError("pairs come from `train` and `valid` corpora or from `generate`, not from both")
        if self.generate is not None and (self.filters or self.on_bad):
            raise SpecError("pairs that `generate` makes are not filtered; leave out `filters` and `on_bad`")
        if not self.metrics:
            raise SpecError("`metrics` should name at least one score; the first decides which checkpoint is best")
        for name in self.metrics:
            METRICS[name]
        if self.subword_sampling and not self.tokenizer.can_sample:
            raise SpecError(CANNOT_SAMPLE)


@dataclasses.dataclass(frozen=True)
class TranslateOptions(RunOptions):
    """What is to be written, and what is told about it."""

    tag: str | None = None
    """The target language of a many-to-many model, as `2de`."""
    prefixes: Sequence[str] | None = None
    """How each output must begin."""
    must_include: Sequence[Sequence[str]] | None = None
    """Terms that each output must contain."""
    words: bool = False
    """Whether outputs come with the confidence and the alignment of each word."""


@TASKS.add
class Translate:
    """Source and target text, one vocabulary for both or one for each."""

    Settings = TranslateData
    Options = TranslateOptions

    def __init__(self, settings: TranslateData, target: Tokenizer, source: Tokenizer | None = None) -> None:
        self.settings, self.target, self.source = settings, target, source or target
        self.joint_vocab = source is None
        self._words: tuple[Encoded, list[SubwordSampler]] | None = None
        template = self.source.template
        self._front = [] if template is None else template.opening  # BART's encoder reads a mark before the text, too

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, Any]:
        named = {"train": [Corpus(paths=tuple(files)).plain()], "valid": []} if files else {}
        return {**named, "valid": [Corpus(paths=tuple(valid)).plain()]} if valid else named

    @classmethod
    def read_test(cls, settings: TranslateData, files: Sequence[str]) -> list[Pairs]:
        return cls.read_test_pairs(settings, files, None)

    @classmethod
    def read_test_pairs(cls, settings: TranslateData, files: Sequence[str], on_bad: OnBad | None) -> list[Pairs]:
        """Pairs of these files: as the corpus they are, or like the corpora learned from, if these are all of one form.

        Otherwise they are read as they are; if the model goes by prefixes, sources should have theirs.
        """
        paths = tuple(files)
        own = [corpus for corpus in (*settings.valid, *settings.train) if corpus.paths == paths]
        alike = {corpus_like(corpus, paths) for corpus in settings.train}
        found = dict.fromkeys(own or (alike if len(alike) == 1 else [Corpus(paths)]))
        return [read_corpus(corpus, on_bad=on_bad or (settings.on_bad if own else None)) for corpus in found]

    @classmethod
    def read(cls, settings: TranslateData, seed: int) -> Dataset:
        if settings.generate is not None:
            train, valid = [settings.generate.pairs("train")], [settings.generate.pairs("valid")]
        elif settings.train:
            train, valid = read_splits(settings.train, settings.valid, settings.filters, settings.on_bad, seed)
        else:
            raise DataError("there is nothing to learn from; name two text files or one .tsv, .csv or .jsonl file")
        count = sum(map(len, train))
        reports = [describe_corpus(pairs, offer=not settings.filters and settings.generate is None) for pairs in train]
        judges = [describe_corpus(pairs, train=train) for pairs in valid]
        for report in judges:
            if report.swapped:
                raise DataError(
                    f"{report.name}: source and target are swapped, each side has the words of the other in the training "
                    "data; name the files in the other order"
                )
        said = [line for report in reports for line in report.lines()]
        said += [f"{report.name}: {fact}" for report in judges for fact in report.facts]
        if not settings.valid:
            said.append(f"{sum(map(len, valid)):,} pairs are set aside to be judged by; --valid names others")
        if count > MAX_VOCABULARY_PAIRS:
            said.append(
                f"vocabulary: if one is learned, from {MAX_VOCABULARY_PAIRS:,} of the {count:,} pairs, drawn by chance"
            )
        facts = {"train": [r.plain() for r in reports], "valid": [r.plain() for r in judges]}
        lost = [row for pairs in (*train, *valid) for row in pairs.lost()]
        return Dataset(train, valid, fingerprint(*train, *valid), facts, [] if settings.generate else said, lost)

    @classmethod
    def advise(cls, settings: TranslateData, dataset: Dataset, train: Mapping[str, Any]) -> Advice:
        return advise(dataset.train, train)

    @classmethod
    def prepare(cls, settings: TranslateData, dataset: Dataset) -> Self:
        tags = sorted({_mark(p.tag) for p in [*dataset.train, *dataset.valid] if p.tag})
        some = sample_pairs(dataset.train)
        sources, targets = ConcatenatedLines([p.source for p in some]), ConcatenatedLines([p.target for p in some])
        if settings.joint_vocab:
            return cls(settings, Tokenizer.train(chain(sources, targets), settings.tokenizer, tags=tags))
        target = Tokenizer.train(targets, settings.tokenizer)
        return cls(settings, target, Tokenizer.train(sources, settings.tokenizer, tags=tags))

    @classmethod
    def load(cls, settings: TranslateData, files: Mapping[str, bytes]) -> Self:
        if TARGET not in files:
            raise CheckpointError(f"there is no {TARGET} among {', '.join(files)}; a model is of no use without it")
        source = Tokenizer.from_bytes(files[SOURCE], SOURCE) if SOURCE in files else None
        return cls(settings, Tokenizer.from_bytes(files[TARGET], TARGET), source)

    def files(self) -> dict[str, bytes]:
        own = {TARGET: self.target.to_bytes()}
        return own if self.joint_vocab else {**own, SOURCE: self.source.to_bytes()}

    def model_arguments(self) -> dict[str, Any]:
        sizes = {"vocab": self.target.size, "length": self.settings.max_length + 2}
        return sizes if self.joint_vocab else {**sizes, "source_vocab": self.source.size}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        return both_sides(spec)

    def encode(self, raw: Sequence[Pairs]) -> Encoded:
        """Token ids of all pairs but those longer than `max_length`."""
        return self._encode(raw, in_memory())

    def encode_to(self, folder: Path, raw: Sequence[Pairs], fingerprint: str) -> Encoded:
        words = {name: hashlib.sha256(data).hexdigest() for name, data in self.files().items()}
        made_of = {
            "corpus": fingerprint,
            "pairs": [*map(len, raw)],
            "vocabulary": words,
            "max_length": self.settings.max_length,
        }
        return self._encode(raw, in_folder(folder, **made_of))

    def _encode(self, raw: Sequence[Pairs], store: TokenStore | InMemoryTokens) -> Encoded:
        s = self.settings
        return encode_pairs(raw, self._cut, store, max_length=s.max_length, limit=s.limit, temperature=s.temperature)

    def _cut(self, sources: Sequence[str], targets: Sequence[str], tag: str | None) -> tuple[Ragged, Ragged]:
        front = self._front if tag is None else [*self._front, self.source.tag(_mark(tag))]
        read = Ragged.of([[*front, *ids] for ids in self.source.encode_all(sources)])
        return read, Ragged.of(self.target.encode_all(targets))

    # ------------------------------------------------------------------------------------------------ to the model

    def augment(self, examples: Encoded, seed: int, epoch: int) -> Encoded:
        """Words cut anew, and some tokens hidden; a pair that would be too long stays as it is."""
        if self.settings.subword_sampling:
            if self._words is None or self._words[0] is not examples:
                sides = (examples.source, self.source), (examples.target, self.target)
                self._words = examples, [SubwordSampler(*side, self.settings.subword_sampling) for side in sides]
            cut = [words.sample(Rng(seed, side, epoch)) for side, words in enumerate(self._words[1])]
            short = np.stack([rows.lengths for rows in cut]).max(0) < self.settings.max_length
            source, target = cut[0].where(short, examples.source), cut[1].where(short, examples.target)
            lengths = np.stack([source.lengths, target.lengths], 1) + 1
            examples = dataclasses.replace(examples, source=source, target=target, lengths=lengths)
        return dataclasses.replace(examples, rng=ExampleRng(seed, epoch)) if self.settings.word_dropout else examples

    def batch(self, examples: Encoded, indices: NDArray[np.int64]) -> Batch:
        if examples.rng is None:
            return pair_batch(examples.source, examples.target, indices, self.source, self.target)
        source, target = examples.source.take(indices), examples.target.take(indices)
        rng, share = [examples.rng.of(i) for i in indices.tolist()], self.settings.word_dropout
        read, given = drop_words(source, self.source, share, rng), drop_words(target, self.target, share, rng)
        return pair_batch(read, target, np.arange(len(indices)), self.source, self.target, given)

    def describe_examples(self, examples: Encoded, indices: NDArray[np.int64]) -> list[str]:
        names = by_text(indices, examples.source.take(indices), self.source)
        sides = ((examples.source, self.source), (examples.target, self.target))
        texts = [[tokenizer.decode(ids) for ids in side.take(indices)] for side, tokenizer in sides]
        pairs = list(zip(*texts, strict=True))
        where = locate_pairs(self.settings.train, pairs)
        return [f"{where[pair]}: {name}" if pair in where else name for name, pair in zip(names, pairs, strict=True)]

    def loss(self, net: Net, batch: Batch, smoothing: float) -> Loss:
        return pair_loss(net, batch, smoothing)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self,
        nets: Sequence[Net],
        inputs: Sequence[str],
        search: Search,
        options: TranslateOptions = TranslateOptions(),
    ) -> list[list[Output]]:
        """Outputs for each input text, best first."""
        tag, prefixes, must_include = options.tag, options.prefixes, options.must_include
        room = min(2 * self.settings.max_length, *(net.spec.length for net in nets))
        search = dataclasses.replace(search, max_length=min(search.max_length or room, room))
        self._must_be_writable([text for text in prefixes or () if text.strip()])
        forced = None if prefixes is None else self.target.encode_all(prefixes)
        found = generate(
            nets, self._sources(inputs, tag), search, SpecialTokens.of(self.target),
            constraints=Constraints([self.target.unk], forced, None if must_include is None else self._terms(must_include)),
            draw=Draw(range(options.first, options.first + len(inputs))),
        )  # fmt: skip
        out = [[Output(self.target.decode(h.tokens), h.score, h.log_prob) for h in each] for each in found]
        if not options.words:
            return out
        written = [group_tokens(self.target, h.tokens) for each in found for h in each]
        read = [text for text, each in zip(inputs, found, strict=True) for _ in each]
        more = iter(self._worded(read, written, tag).plain(nets))
        return [[dataclasses.replace(output, more=next(more)) for output in each] for each in out]

    def score(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], options: TranslateOptions = TranslateOptions()
    ) -> list[float]:
        """log P(output | input) of each pair."""
        if len(inputs) != len(outputs):
            raise DataError(f"as many outputs as inputs are needed, got {len(outputs)} for {len(inputs)}")
        targets = [[*ids, self.target.eos] for ids in self.target.encode_all(outputs)]
        return score(net, self._sources(inputs, options.tag), targets, SpecialTokens.of(self.target))

    def confidence(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], options: TranslateOptions = TranslateOptions()
    ) -> list[Confidence]:
        return self._worded(inputs, tokenize_words(self.target, outputs), options.tag).confidence(net)

    def align(
        self,
        net: Net,
        inputs: Sequence[str],
        outputs: Sequence[str],
        options: TranslateOptions = TranslateOptions(),
        *,
        layer: int | None = None,
    ) -> list[Links]:
        return self._worded(inputs, tokenize_words(self.target, outputs), options.tag).align(net, layer)

    def attention(self, net: Net, text: str, output: str, options: TranslateOptions = TranslateOptions()) -> Attention:
        """Attention weights (h, n, m) by place for one pair, with the tokens that were read on both sides."""
        source, given = self._sources([text], options.tag)[0], [self.target.bos, *self.target.encode(output)]
        return pair_weights(net, source, given), self.source.tokens(source), self.target.tokens(given)

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        whole = self.settings.tokenizer.desegment
        return [EvalSet(p.source, [whole(text) for text in p.target], TranslateOptions(tag=p.tag), p.name) for p in raw]

    @property
    def tags(self) -> list[str]:
        """The target languages of a many-to-many model."""
        return [tag.removeprefix("<2").removesuffix(">") for tag in self.source.tags if tag.startswith("<2")]

    def find_too_long(self, inputs: Sequence[str], options: TranslateOptions = TranslateOptions()) -> list[int]:
        room = self.settings.max_length - 1 - len(self._front) - (options.tag is not None)
        return [i for i, tokens in enumerate(self.source.encode_all(inputs)) if len(tokens) > room]

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return self.source.mostly_unknown(inputs)

    def find_unwritable(self, texts: Sequence[str]) -> list[str]:
        ids = [encode_inside(self.target, text.strip()) for text in texts]
        return [text for text, tokens in zip(texts, ids, strict=True) if not tokens or self.target.unk in tokens]

    def split(self, text: str, options: TranslateOptions = TranslateOptions()) -> list[str]:
        return list(
            split_text(
                self.source, text, max(self.settings.max_length - 1 - len(self._front) - (options.tag is not None), 1)
            )
        )

    def _terms(self, must_include: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """Terms as they are cut within a text."""
        if any(isinstance(row, str) for row in must_include):
            raise SpecError(
                "`must_include` should have a list of terms for each input, got a text; write [[term, ...], ...]"
            )
        known = {term: encode_inside(self.target, term.strip()) for row in must_include for term in row}
        self._must_be_writable(list(known))
        return [[known[term] for term in row] for row in must_include]

    def _must_be_writable(self, texts: Sequence[str]) -> None:
        if wrong := self.find_unwritable(texts):
            raise DataError(f"the model cannot write {wrong[0]!r}: not all of it is in its vocabulary")

    def _worded(self, inputs: Sequence[str], written: Sequence[TokenizedWords], tag: str | None) -> Wordwise:
        if len(inputs) != len(written):
            raise DataError(f"as many outputs as inputs are needed, got {len(written)} for {len(inputs)}")
        read, front = tokenize_words(self.source, inputs), len(self._opening(tag))
        return Wordwise(self._sources(inputs, tag), read, written, front=front, tokenizer=self.target)

    def _opening(self, tag: str | None) -> list[int]:
        """What the encoder reads before a text."""
        return [*self._front] if tag is None else [*self._front, self.source.tag(_mark(tag))]

    def _sources(self, inputs: Sequence[str], tag: str | None) -> list[list[int]]:
        """Inputs as the encoder reads them: at most `max_length` tokens, with the end mark."""
        front = self._opening(tag)
        room = self.settings.max_length - len(front) - 1
        return [[*front, *ids[:room], self.source.eos] for ids in self.source.encode_all(inputs)]


def _mark(tag: str) -> str:
    """A language tag as the one token that stands for it."""
    return f"<{tag}>"
