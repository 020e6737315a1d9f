"""Translation in the wide sense: any text to any text, learned from pairs (English to German, dates to ISO 8601)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from regard.data.batch import Batch
from regard.data.check import check
from regard.data.generate import GeneratorSpec
from regard.data.mixture import shares
from regard.data.ragged import Ragged
from regard.data.sources import Corpus, Pairs, fingerprint, like, read, split
from regard.decode import Search, generate, score
from regard.errors import CheckpointError, DataError, SpecError
from regard.model.model import Net
from regard.spec import Count, Spec, spec
from regard.tasks.advice import advise
from regard.tasks.metrics import METRICS
from regard.tasks.pairs import pair_batch, pair_loss, pair_weights
from regard.tasks.task import TASKS, Advice, Loss, Output, Raw, Trial, Usual
from regard.text import Bpe, Tokenizer, TokenizerSpec

TARGET, SOURCE = "tokenizer.json", "tokenizer.source.json"


@spec
class TranslateData(Spec):
    """The `data` part of a recipe. Pairs come from corpora, or are made by a generator."""

    train: tuple[Corpus, ...] = ()
    valid: tuple[Corpus, ...] = ()
    generate: GeneratorSpec | None = None
    tokenizer: TokenizerSpec = Bpe()
    joint: bool = True
    longest: Count = 256
    """Pairs with more tokens than this on either side, tag and mark included, are left out of training."""
    limit: Count | None = None
    """Where there are several corpora: none counts for more pairs than this when an epoch is shared out among them,"""
    temperature: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """and the higher this is, the more alike their shares are."""
    metrics: tuple[str, ...] = ("bleu", "chrf")

    def __post_init__(self) -> None:
        if self.generate is not None and (self.train or self.valid):
            raise SpecError("pairs come from `train` and `valid` corpora or from `generate`, not from both")
        if not self.metrics:
            raise SpecError("`metrics` should name at least one score; the first decides which checkpoint is best")
        for name in self.metrics:
            METRICS[name]


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Pairs as token ids, without marks; sources carry their language tag."""

    source: Ragged
    target: Ragged
    lengths: NDArray[np.int64]
    groups: NDArray[np.int64] | None = None
    shares: tuple[float, ...] | None = None
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.target)


class Translate(Usual):
    """Source and target text, one vocabulary for both or one for each."""

    Settings = TranslateData

    def __init__(self, settings: TranslateData, target: Tokenizer, source: Tokenizer | None = None) -> None:
        self.settings, self.target, self.source = settings, target, source or target
        self.joint = source is None
        template = self.source.template
        self._front = [] if template is None else template.opening  # BART's encoder reads a mark before the text, too

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def given(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, Any]:
        named = {"train": [Corpus(paths=tuple(files)).plain()], "valid": []} if files else {}
        return {**named, "valid": [Corpus(paths=tuple(valid)).plain()]} if valid else named

    @classmethod
    def gather(cls, settings: TranslateData, files: Sequence[str]) -> list[Pairs]:
        """Pairs of these files: as the corpus they are, or like the corpora learned from, if these are all of one form.

        Otherwise they are read as they are; if the model goes by prefixes, sources should have theirs.
        """
        paths = tuple(files)
        own = [corpus for corpus in (*settings.valid, *settings.train) if corpus.paths == paths]
        alike = {like(corpus, paths) for corpus in settings.train}
        return [read(corpus) for corpus in dict.fromkeys(own or (alike if len(alike) == 1 else [Corpus(paths)]))]

    @classmethod
    def read(cls, settings: TranslateData, seed: int) -> Raw:
        if settings.generate is not None:
            train, valid = [settings.generate.pairs("train")], [settings.generate.pairs("valid")]
        elif settings.train:
            train = [read(corpus) for corpus in settings.train]
            if settings.valid:
                valid = [read(corpus) for corpus in settings.valid]
            else:
                parts = [split(pairs, seed=seed) for pairs in train]
                train, valid = [rest for rest, _ in parts], [aside for _, aside in parts]
        else:
            raise DataError("there is nothing to learn from; name two text files or one .tsv, .csv or .jsonl file")
        seen = Pairs([s for p in train for s in p.source], [t for p in train for t in p.target], name="training")
        reports = [check(pairs) for pairs in train]
        judges = [check(pairs, train=seen) for pairs in valid]
        said = [line for report in reports for line in report.lines()]
        said += [f"{report.name}: {fact}" for report in judges for fact in report.facts]
        facts = {"train": [r.plain() for r in reports], "valid": [r.plain() for r in judges]}
        return Raw(train, valid, fingerprint(*train, *valid), facts, [] if settings.generate else said)

    @classmethod
    def advise(cls, settings: TranslateData, raw: Raw, asked: Mapping[str, Any]) -> Advice:
        return advise(raw.train, asked)

    @classmethod
    def prepare(cls, settings: TranslateData, raw: Raw) -> Self:
        tags = sorted({_mark(p.tag) for p in [*raw.train, *raw.valid] if p.tag})
        sources = [s for p in raw.train for s in p.source]
        targets = [t for p in raw.train for t in p.target]
        if settings.joint:
            return cls(settings, Tokenizer.train([*sources, *targets], settings.tokenizer, tags=tags))
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
        return own if self.joint else {**own, SOURCE: self.source.to_bytes()}

    def facts(self) -> dict[str, Any]:
        sizes = {"vocab": self.target.size, "length": self.settings.longest + 2}
        return sizes if self.joint else {**sizes, "source_vocab": self.source.size}

    def encode(self, raw: Sequence[Pairs]) -> Encoded:
        """Token ids of all pairs but those longer than `longest`."""
        sources, targets, groups = [], [], []
        for group, pairs in enumerate(raw):
            tag = [] if pairs.tag is None else [self.source.tag(_mark(pairs.tag))]
            sources += [[*self._front, *tag, *ids] for ids in self.source.encode_all(pairs.source)]
            targets += self.target.encode_all(pairs.target)
            groups += [group] * len(pairs)
        source, target, corpus = Ragged.of(sources), Ragged.of(targets), np.asarray(groups)
        lengths = np.stack([source.lengths, target.lengths], 1) + 1
        short = np.flatnonzero((lengths <= self.settings.longest).all(1))
        counts = np.bincount(corpus[short], minlength=len(raw))
        for pairs, count in zip(raw, counts, strict=True):
            if count == 0:
                raise DataError(
                    f"every pair of {pairs.name} has more than {self.settings.longest} tokens; raise data.longest"
                )
        kept, left_out = (source.take(short), target.take(short), lengths[short]), len(corpus) - len(short)
        if len(raw) == 1:
            return Encoded(*kept, left_out=left_out)
        weights, limit, temperature = [pairs.weight for pairs in raw], self.settings.limit, self.settings.temperature
        mixed = shares(counts.tolist(), weights, limit=limit, temperature=temperature)
        return Encoded(*kept, corpus[short], mixed, left_out)

    # ------------------------------------------------------------------------------------------------ to the model

    def batch(self, examples: Encoded, indices: NDArray[np.int64]) -> Batch:
        return pair_batch(examples.source, examples.target, indices, self.source, self.target)

    def loss(self, net: Net, batch: Batch, smoothing: float) -> Loss:
        return pair_loss(net, batch, smoothing)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self,
        nets: Sequence[Net],
        inputs: Sequence[str],
        search: Search,
        *,
        tag: str | None = None,
        prefixes: Sequence[str] | None = None,
    ) -> list[list[Output]]:
        """Outputs for each input text, best first; `prefixes` are beginnings the outputs must have."""
        room = min(2 * self.settings.longest, *(net.spec.length for net in nets))
        search = dataclasses.replace(search, longest=min(search.longest or room, room))
        forced = None if prefixes is None else self.target.encode_all(prefixes)
        found = generate(
            nets, self._sources(inputs, tag), search, bos=self.target.bos, eos=self.target.eos, pad=self.target.pad,
            banned=[self.target.unk], prefixes=forced,
        )  # fmt: skip
        return [[Output(self.target.decode(h.tokens), h.score, h.log_prob) for h in each] for each in found]

    def score(self, net: Net, inputs: Sequence[str], outputs: Sequence[str], *, tag: str | None = None) -> list[float]:
        """log P(output | input) of each pair."""
        if len(inputs) != len(outputs):
            raise DataError(f"as many outputs as inputs are needed, got {len(outputs)} for {len(inputs)}")
        targets = [[*ids, self.target.eos] for ids in self.target.encode_all(outputs)]
        return score(net, self._sources(inputs, tag), targets, bos=self.target.bos, pad=self.target.pad)

    def attention(
        self, net: Net, text: str, output: str, *, tag: str | None = None
    ) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Attention weights (h, n, m) by place for one pair, with the tokens that were read on both sides."""
        source, given = self._sources([text], tag)[0], [self.target.bos, *self.target.encode(output)]
        return pair_weights(net, source, given), self.source.tokens(source), self.target.tokens(given)

    def trials(self, raw: Sequence[Pairs]) -> list[Trial]:
        whole = self.settings.tokenizer.whole
        return [Trial(p.source, [whole(text) for text in p.target], {"tag": p.tag}, p.name) for p in raw]

    @property
    def tags(self) -> list[str]:
        """The target languages of a many-to-many model."""
        return [tag.removeprefix("<2").removesuffix(">") for tag in self.source.tags if tag.startswith("<2")]

    def too_long(self, inputs: Sequence[str], *, tagged: bool = False) -> list[int]:
        room = self.settings.longest - 1 - tagged - len(self._front)
        return [i for i, tokens in enumerate(self.source.encode_all(inputs)) if len(tokens) > room]

    def _sources(self, inputs: Sequence[str], tag: str | None) -> list[list[int]]:
        """Inputs as the encoder reads them: at most `longest` tokens, with the end mark."""
        front = self._front if tag is None else [*self._front, self.source.tag(_mark(tag))]
        room = self.settings.longest - len(front) - 1
        return [[*front, *ids[:room], self.source.eos] for ids in self.source.encode_all(inputs)]


def _mark(tag: str) -> str:
    """A language tag as the one token that stands for it."""
    return f"<{tag}>"


TASKS.add(Translate)
