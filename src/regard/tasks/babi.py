"""Questions about stories (bAbI), for memory networks.

A model reads the question and the newest sentences of the story and answers with one word (Sukhbaatar et al. 2015).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from regard.data.batch import IGNORE
from regard.data.bucket import EqualBatches
from regard.data.stories import Story, parse_story, read_stories, split_words
from regard.decode import Engine, Search
from regard.errors import DataError, SpecError, offer
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Vocab, pool_stream
from regard.nn.blocks.memory_hops import MemoryHops
from regard.nn.blocks.sentences import Sentences
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.spec import Count, Share, Spec, spec
from regard.stopping import rest
from regard.tasks.common.class_names import check_class_names, pack_classes, unpack_classes
from regard.tasks.common.classifier import average_log_probs
from regard.tasks.common.data_settings import check_metrics, configure_files, hold_out_items
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.losses import class_loss
from regard.tasks.common.task import TASKS, BatchOrder, Dataset, EvalSet, Loss, Output, RunOptions, check_pairs
from regard.tasks.common.training_hooks import bucket

NONE = "<none>"
"""The word that fills up sentences; its vector is zero."""
BATCH = 256
"""Stories per batch when nothing is trained."""
EMPTY = 0
"""The sentence without words."""


@spec
class BabiData(Spec):
    """The `data` part of a recipe: files of bAbI. Several files are learned together."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    hold_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Fraction of the questions held out for validation if no validation files are given."""
    memory: Count = 50
    """Number of sentences that are read of a story, the newest ones."""
    random_noise: Share = 0.1
    """In training, up to this fraction of a story's sentences is added as empty ones, at random places."""
    metrics: tuple[str, ...] = ("accuracy",)

    def __post_init__(self) -> None:
        check_metrics(self.metrics)


@dataclasses.dataclass(frozen=True)
class EncodedStories:
    """Stories as numbers of sentences, so that a sentence that many of them share is kept once."""

    words: NDArray[np.int32]
    """Word ids (sentences, w) of every distinct sentence; the first has none."""
    slots: NDArray[np.int32]
    """Sentences (N, s) of each example: the question, then the story from the newest sentence backwards."""
    counts: NDArray[np.int64]
    """Number of slots that an example uses (N,)."""
    answers: NDArray[np.int64]
    places: tuple[str, ...]
    """File and line of each question."""
    groups: None = None
    shares: None = None
    left_out: int = 0

    @property
    def lengths(self) -> NDArray[np.int64]:
        """A question counts as one, so that a batch has a fixed number of them."""
        return np.ones(len(self), np.int64)

    def __len__(self) -> int:
        return len(self.answers)

    def add_noise(self, share: float, memory: int, *, seed: int, epoch: int) -> EncodedStories:
        """Add up to a `share` of empty sentences to each story, at random places; then drop the oldest beyond `memory`.

        The noise of an example is a pure function of (seed, epoch, example), whatever batch it is in.
        """
        sentences = (self.counts - 1)[:, None]
        most = np.ceil(share * sentences).astype(np.int64)
        room = int((sentences + most).max())
        bits = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(epoch,)))
        draws = bits.random_raw(len(self) * (1 + room)).reshape(len(self), 1 + room)
        filled = sentences + (draws[:, :1] % (most + 1).astype(np.uint64)).astype(np.int64)
        column, keys = np.arange(room)[None], draws[:, 1:]
        order = np.argsort(np.where(column < filled, keys, np.iinfo(np.uint64).max), axis=1, kind="stable")
        there = np.zeros(keys.shape, bool)  # places that keep a sentence: `sentences` of the `filled` ones
        np.put_along_axis(there, order, column < sentences, 1)
        story = np.where(there, np.take_along_axis(self.slots, there.cumsum(1), 1), EMPTY)
        slots = np.concatenate([self.slots[:, :1], story[:, :memory]], 1)
        return dataclasses.replace(self, slots=slots, counts=1 + np.minimum(filled[:, 0], memory))


@dataclasses.dataclass(frozen=True)
class FullBatches:
    """Batches of equally many questions; those left over at the end of an epoch are skipped."""

    count: int
    rows: int
    seed: int

    def epoch(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        return EqualBatches(self.count, self.rows, self.seed, epoch)[: max(self.count // self.rows, 1)]


@dataclasses.dataclass(frozen=True)
class StoryBatch:
    """Words (b, s, w), the number of sentences of each row, question included, and the answers (b,)."""

    ids: Tensor
    lengths: tuple[int, ...]
    answers: Tensor

    @property
    def tokens(self) -> int:
        return len(self.lengths)

    @property
    def at(self) -> Coords:
        return Coords.lengths(self.lengths, self.ids.device)

    def to(self, device: torch.device | str) -> StoryBatch:
        return StoryBatch(self.ids.to(device), self.lengths, self.answers.to(device))


@TASKS.add
class Babi:
    """A vocabulary of words, which are what the model reads and what it answers."""

    Settings = BabiData
    Options = RunOptions
    tokenizer = None

    def __init__(self, settings: BabiData, classes: Sequence[str]) -> None:
        self.settings, self.classes = settings, tuple(classes)
        self._ids = {word: i for i, word in enumerate(self.classes)}

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        return configure_files(files, valid)

    @classmethod
    def read_test(cls, settings: BabiData, files: Sequence[str]) -> list[Story]:
        return [story for path in files for story in read_stories(path)]

    @classmethod
    def read(cls, settings: BabiData, seed: int) -> Dataset:
        if not settings.train:
            raise DataError("no training data; name one or more files of bAbI, such as qa1_…_train.txt")
        train = cls.read_test(settings, settings.train)
        if settings.valid:
            valid = cls.read_test(settings, settings.valid)
        else:
            train, valid = hold_out_items(train, settings.hold_out, seed, "question")
        digest = hashlib.sha256("\n".join(f"{s}\t{s.answer}" for s in (*train, *valid)).encode()).hexdigest()
        messages = [f"{len(train):,} questions for training, {len(valid):,} for validation"]
        if long := sum(len(s.sentences) > settings.memory for s in (*train, *valid)):
            messages.append(f"{long:,} stories have more than {settings.memory} sentences; the oldest are left out")
        statistics = {"train": {"questions": len(train)}, "valid": {"questions": len(valid)}}
        return Dataset(train, valid, digest, statistics, messages)

    @classmethod
    def prepare(cls, settings: BabiData, dataset: Dataset) -> Self:
        stories: list[Story] = [*dataset.train, *dataset.valid]
        words = {word for s in stories for text in (*s.sentences, s.question) for word in split_words(text)}
        return cls(settings, check_class_names([NONE, *sorted(words | {s.answer for s in stories})], "the data"))

    @classmethod
    def load(cls, settings: BabiData, files: Mapping[str, bytes]) -> Self:
        return cls(settings, unpack_classes(files)["classes"])

    def files(self) -> dict[str, bytes]:
        return pack_classes(self.classes)

    def model_arguments(self) -> dict[str, int]:
        return {"vocab": len(self.classes), "memory": self.settings.memory}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        fits = isinstance(spec.embed, Sentences) and isinstance(spec.encoder, MemoryHops) and spec.decoder is None
        if not fits or not isinstance(spec.head, Vocab):
            raise SpecError("stories need a model that reads sentences; use model.family: memn2n")
        if spec.embed.vocab != len(self.classes) or spec.length <= self.settings.memory:
            raise SpecError(
                f"the model knows {spec.embed.vocab} words and {spec.length - 1} sentences, and the data has "
                f"{len(self.classes)} and data.memory={self.settings.memory}"
            )
        return spec

    def encode(self, raw: Sequence[Story]) -> EncodedStories:
        known, rows = {"": EMPTY}, list[list[int]]()
        texts = list[list[int]]([[]])
        for story in raw:
            row = list[int]()
            for text in (story.question, *reversed(self._recall(story))):
                if text not in known:
                    known[text] = len(texts)
                    texts.append([self._id(word, story.place) for word in split_words(text)])
                row.append(known[text])
            rows.append(row)
        answers = np.array([self._id(s.answer, s.place) if s.answer else IGNORE for s in raw], np.int64)
        return EncodedStories(
            _pad(texts), _pad(rows), np.array([len(row) for row in rows]), answers, tuple(s.place for s in raw)
        )

    def augment(self, examples: EncodedStories, seed: int, epoch: int) -> EncodedStories:
        share = self.settings.random_noise
        return examples.add_noise(share, self.settings.memory, seed=seed, epoch=epoch) if share else examples

    def order_batches(
        self, examples: EncodedStories, *, tokens: int | None, seed: int, evaluate: bool = False
    ) -> BatchOrder:
        """In training, all batches have the same number of questions, so that all weigh the same."""
        if evaluate:
            return bucket(examples, tokens=tokens or BATCH, seed=seed, evaluate=True)
        return FullBatches(len(examples), tokens or BATCH, seed)

    # ------------------------------------------------------------------------------------------------ to the model

    def batch(self, examples: EncodedStories, indices: NDArray[np.int64]) -> StoryBatch:
        counts = examples.counts[indices]
        ids = examples.words[examples.slots[indices, : counts.max()]]
        ids = ids[..., : max(int((ids != 0).any((0, 1)).sum()), 1)]  # words fill a sentence from its start
        return StoryBatch(
            torch.from_numpy(ids.astype(np.int64)), tuple(counts.tolist()), torch.from_numpy(examples.answers[indices])
        )

    def describe_examples(self, examples: EncodedStories, indices: NDArray[np.int64]) -> list[str]:
        return [examples.places[i] for i in indices]

    def loss(self, net: Net, batch: StoryBatch, smoothing: float) -> Loss:
        tape = Tape(outer=net.tape)
        return class_loss(net, _answer(net, batch, tape), batch.answers, smoothing, tape)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self,
        engine: Engine,
        inputs: Sequence[str | Story],
        search: Search,
        options: RunOptions = RunOptions(),
    ) -> list[list[Output]]:
        """The likeliest answers; the best comes with the sentence that each hop looked at most (of the first net)."""
        found = list[list[Output]]()
        for some, batch in self._batches(inputs, engine.nets[0]):
            tape = Tape("*.weights")
            with torch.no_grad():
                logits = [_answer(net, batch, None if i else tape).cpu() for i, net in enumerate(engine.nets)]
            hops = torch.stack([w[:, 0, 0].cpu() for w in tape.kept.values()], 1)  # (b, hops, s)
            for story, row, looked in zip(some, average_log_probs(logits), hops, strict=True):
                best = row.topk(min(search.n_best, len(row))).indices.tolist()
                each = [Output(self.classes[i], float(row[i].exp()), float(row[i])) for i in best]
                found.append([_explain(each[0], story, looked), *each[1:]])
        return found

    def score(
        self,
        engine: Engine,
        inputs: Sequence[str | Story],
        outputs: Sequence[str],
        options: RunOptions = RunOptions(),
    ) -> list[float]:
        """log P(answer | story) for each pair."""
        net = engine.nets[0]
        check_pairs(inputs, outputs)
        wanted, rows = [self._id(answer, "") for answer in outputs], list[Tensor]()
        with torch.no_grad():
            for _, batch in self._batches(inputs, net):
                rows += [*average_log_probs([_answer(net, batch, None).cpu()])]
        return [float(row[i]) for row, i in zip(rows, wanted, strict=True)]

    def find_too_long(self, inputs: Sequence[str | Story], options: RunOptions = RunOptions()) -> list[int]:
        return [i for i, one in enumerate(inputs) if len(_read(one).sentences) > self.settings.memory]

    def explain_cut(self, given: str | Story) -> str:
        count = len(_read(given).sentences)
        return f"has {count} sentences, and the model remembers {self.settings.memory}; the oldest are left out"

    def forward_pass(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> ForwardPass:
        """The story, and its answer at the question; positions are named by their sentences."""
        story = _read(text)
        ((_, batch),) = self._batches([story], net)
        wanted = torch.full(batch.ids.shape[:2], IGNORE, device=net.device)
        if output:
            wanted[0, 0] = self._id(output, "")
        labels = [story.question, *reversed(self._recall(story))]
        return ForwardPass(batch.ids, batch.at, labels, wanted)

    def eval_sets(self, raw: Sequence[Story]) -> list[EvalSet]:
        return [EvalSet(list(raw), [story.answer for story in raw], RunOptions())]

    def _batches(self, inputs: Sequence[str | Story], net: Net) -> Iterator[tuple[Sequence[Story], StoryBatch]]:
        for i in range(0, len(inputs), BATCH):
            rest()
            some = [_read(one) for one in inputs[i : i + BATCH]]
            examples = self.encode([dataclasses.replace(story, answer="") for story in some])
            yield some, self.batch(examples, np.arange(len(some))).to(net.device)

    def _recall(self, story: Story) -> Sequence[str]:
        """The sentences that fit into the memory."""
        return story.sentences[max(len(story.sentences) - self.settings.memory, 0) :]

    def _id(self, word: str, where: str) -> int:
        if word not in self._ids or word == NONE:
            raise DataError(
                f"{where}{': ' if where else ''}the model does not know the word {word[:40]!r}{offer(word, self.classes[1:])}"
            )
        return self._ids[word]


def _read(given: str | Story) -> Story:
    return given if isinstance(given, Story) else parse_story(given)


def _pad(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    out = np.zeros((len(rows), max(map(len, rows), default=0)), np.int32)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def _answer(net: Net, batch: StoryBatch, tape: Tape | None) -> Tensor:
    """A score for every word (b, v)."""
    at = batch.at
    return net.logits(pool_stream(net(batch.ids, at, tape=tape), at, "first"))


def _explain(best: Output, story: Story, looked: Tensor) -> Output:
    """An answer with the sentence that each hop (hops, s) gives the largest weight; none for a question without a story."""
    found = [(int(weights.argmax()), float(weights.max())) for weights in looked] if story.sentences else []
    hops = [{"hop": i, "sentence": story.sentences[-ago], "weight": w} for i, (ago, w) in enumerate(found, 1)]
    lines = [f"hop {hop['hop']} looks at  {hop['sentence']}  ({100 * float(str(hop['weight'])):.0f} %)" for hop in hops]
    return dataclasses.replace(best, more={"hops": hops}, explanation=lines)
