"""Translation in the wide sense: any text to any text, learned from pairs (English to German, dates to ISO 8601)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import IGNORE, Batch, Side, padded
from regard.data.check import check
from regard.data.generate import GeneratorSpec
from regard.data.ragged import Ragged
from regard.data.sources import Corpus, Pairs, fingerprint, read, split
from regard.decode import Search, generate, score
from regard.errors import CheckpointError, DataError, SpecError
from regard.model.model import Net
from regard.nn.context import Tape
from regard.nn.coords import Coords
from regard.spec import Count, Spec, spec
from regard.tasks.advice import advise
from regard.tasks.metrics import METRICS
from regard.tasks.task import TASKS, Advice, Loss, Output, Raw, Trial
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


class Translate:
    """Source and target text, one vocabulary for both or one for each."""

    Settings = TranslateData

    def __init__(self, settings: TranslateData, target: Tokenizer, source: Tokenizer | None = None) -> None:
        self.settings, self.target, self.source = settings, target, source or target
        self.joint = source is None

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
        return [read(Corpus(paths=tuple(files)))]

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
            sources += [[*tag, *ids] for ids in self.source.encode_all(pairs.source)]
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
        shares = tuple(pairs.weight * float(count) for pairs, count in zip(raw, counts, strict=True))
        return Encoded(*kept, corpus[short], shares, left_out)

    # ------------------------------------------------------------------------------------------------ to the model

    def batch(self, examples: Encoded, indices: NDArray[np.int64]) -> Batch:
        source = padded(examples.source, indices, self.source.pad, after=self.source.eos)
        given = padded(examples.target, indices, self.target.pad, before=self.target.bos)
        wanted = padded(examples.target, indices, IGNORE, after=self.target.eos)
        return Batch(given, wanted.ids, source, sum(wanted.lengths))

    def loss(self, net: Net, batch: Batch, smoothing: float) -> Loss:
        assert batch.source is not None
        tape = Tape()
        stream = net(batch.given.ids, _at(batch.given), (batch.source.ids, _at(batch.source)), tape)
        total, plain = net.loss(stream, batch.wanted, smoothing)
        for extra in tape.losses.values():
            total = total + extra * batch.tokens
        return Loss(total, plain, batch.tokens)

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
        tape = Tape("*.weights")
        with torch.no_grad():
            ids, read = torch.tensor([given], device=net.device), torch.tensor([source], device=net.device)
            net(
                ids,
                Coords.span(len(given), device=net.device),
                (read, Coords.span(len(source), device=net.device)),
                tape,
            )
        weights = {name.removesuffix(".weights"): w[0].cpu() for name, w in tape.kept.items()}
        return weights, self.source.tokens(source), self.target.tokens(given)

    def trials(self, raw: Sequence[Pairs]) -> list[Trial]:
        return [Trial(pairs.source, pairs.target, {"tag": pairs.tag}) for pairs in raw]

    def _sources(self, inputs: Sequence[str], tag: str | None) -> list[list[int]]:
        """Inputs as the encoder reads them: at most `longest` tokens, with the end mark."""
        front = [] if tag is None else [self.source.tag(_mark(tag))]
        room = self.settings.longest - len(front) - 1
        return [[*front, *ids[:room], self.source.eos] for ids in self.source.encode_all(inputs)]


def _mark(tag: str) -> str:
    """A language tag as the one token that stands for it."""
    return f"<{tag}>"


def _at(side: Side) -> Coords:
    return Coords.lengths(side.lengths, side.ids.device)


TASKS.add(Translate)
