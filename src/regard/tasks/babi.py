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
from regard.data.example_rng import ExampleRng
from regard.data.permutation import Permutation
from regard.data.stories import Story, parse_story, read_stories, split_words
from regard.decode import Search
from regard.errors import DataError, SpecError
from regard.metrics import METRICS
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Vocab, pool_stream
from regard.nn.blocks.memory_hops import MemoryHops
from regard.nn.blocks.sentences import Sentences
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.spec import Count, Share, Spec, spec
from regard.tasks.common.classifier import average_log_probs, check_class_names, pack_classes, unpack_classes
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.losses import class_loss
from regard.tasks.common.task import TASKS, Dataset, EvalSet, Loss, Output, RunOptions, check_pairs

NONE = "<none>"
"""The word that fills up sentences; its vector is zero."""
BATCH = 256
"""Stories per batch when nothing is trained."""
Words = NDArray[np.int64]
"""Word ids (s, w): the question, then the story from the newest sentence backwards."""


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
        for name in self.metrics:
            METRICS[name]


@dataclasses.dataclass(frozen=True)
class EncodedStories:
    """Stories as word ids with their answers, and the random noise of this epoch."""

    rows: Sequence[Words]
    answers: NDArray[np.int64]
    rng: ExampleRng | None = None
    groups: None = None
    shares: None = None
    left_out: int = 0

    @property
    def lengths(self) -> NDArray[np.int64]:
        """A question counts as one, so that a batch has a fixed number of them."""
        return np.ones(len(self.rows), np.int64)

    def __len__(self) -> int:
        return len(self.rows)


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
        named: dict[str, object] = {"train": list(files), "valid": []} if files else {}
        return {**named, "valid": list(valid)} if valid else named

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
            count = max(1, round(settings.hold_out * len(train)))
            if count >= len(train):
                raise DataError(f"{len(train)} question is not enough to hold some out; name a file for validation")
            order = Permutation(len(train), seed).take(0, len(train))
            held = set(order[:count].tolist())
            valid = [story for i, story in enumerate(train) if i in held]
            train = [story for i, story in enumerate(train) if i not in held]
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
        rows = [self._encode(story) for story in raw]
        return EncodedStories(rows, np.array([self._id(s.answer, s.place) for s in raw], np.int64))

    def augment(self, examples: EncodedStories, seed: int, epoch: int) -> EncodedStories:
        if not self.settings.random_noise:
            return examples
        return dataclasses.replace(examples, rng=ExampleRng(seed, epoch))

    # ------------------------------------------------------------------------------------------------ to the model

    def batch(self, examples: EncodedStories, indices: NDArray[np.int64]) -> StoryBatch:
        rows = [self._add_noise(examples.rows[i], examples.rng, int(i)) for i in indices]
        return _pad(rows, examples.answers[indices])

    def loss(self, net: Net, batch: StoryBatch, smoothing: float) -> Loss:
        tape = Tape()
        return class_loss(net, _answer(net, batch, tape), batch.answers, smoothing, tape)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self,
        nets: Sequence[Net],
        inputs: Sequence[str | Story],
        search: Search,
        options: RunOptions = RunOptions(),
    ) -> list[list[Output]]:
        """The likeliest answers; the best comes with the sentence that each hop looked at most (of the first net)."""
        stories = [one if isinstance(one, Story) else parse_story(one) for one in inputs]
        found = list[list[Output]]()
        for some, batch in self._batches(stories, nets[0]):
            tape = Tape("*.weights")
            with torch.no_grad():
                told = [_answer(net, batch, tape if net is nets[0] else None).cpu() for net in nets]
            hops = torch.stack([w[:, 0, 0].cpu() for w in tape.kept.values()], 1)  # (b, hops, s)
            for story, row, looked in zip(some, average_log_probs(told), hops, strict=True):
                best = row.topk(min(search.n_best, len(row))).indices.tolist()
                each = [Output(self.classes[i], float(row[i].exp()), float(row[i])) for i in best]
                found.append([dataclasses.replace(each[0], more={"hops": _list_hops(story, looked)}), *each[1:]])
        return found

    def score(
        self,
        net: Net,
        inputs: Sequence[str | Story],
        outputs: Sequence[str],
        options: RunOptions = RunOptions(),
    ) -> list[float]:
        """log P(answer | story) for each pair."""
        check_pairs(inputs, outputs)
        wanted, rows = [self._id(answer, "") for answer in outputs], list[Tensor]()
        stories = [one if isinstance(one, Story) else parse_story(one) for one in inputs]
        with torch.no_grad():
            for _, batch in self._batches(stories, net):
                rows += [*average_log_probs([_answer(net, batch, None).cpu()])]
        return [float(row[i]) for row, i in zip(rows, wanted, strict=True)]

    def forward_pass(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> ForwardPass:
        """The story, and its answer at the question; positions are named by their sentences."""
        story = parse_story(text)
        batch = _pad([self._encode(story)], np.zeros(1, np.int64)).to(net.device)
        wanted = torch.full(batch.ids.shape[:2], IGNORE, device=net.device)
        if output:
            wanted[0, 0] = self._id(output, "")
        labels = [story.question, *reversed(story.sentences)][: batch.ids.shape[1]]
        return ForwardPass(batch.ids, batch.at, labels, wanted)

    def eval_sets(self, raw: Sequence[Story]) -> list[EvalSet]:
        return [EvalSet(list(raw), [story.answer for story in raw], RunOptions())]

    def _batches(self, stories: Sequence[Story], net: Net) -> Iterator[tuple[Sequence[Story], StoryBatch]]:
        for i in range(0, len(stories), BATCH):
            some = stories[i : i + BATCH]
            rows = [self._encode(story) for story in some]
            yield some, _pad(rows, np.zeros(len(rows), np.int64)).to(net.device)

    def _id(self, word: str, where: str) -> int:
        if word not in self._ids:
            raise DataError(
                f"{where}{': ' if where else ''}the model does not know the word {word[:40]!r}; it knows "
                f"{len(self.classes) - 1:,} words"
            )
        return self._ids[word]

    def _encode(self, story: Story) -> Words:
        recent = story.sentences[max(len(story.sentences) - self.settings.memory, 0) :]
        texts = [split_words(text) for text in (story.question, *reversed(recent))]
        out = np.zeros((len(texts), max(map(len, texts))), np.int64)
        for i, words in enumerate(texts):
            out[i, : len(words)] = [self._id(word, story.place) for word in words]
        return out

    def _add_noise(self, row: Words, rng: ExampleRng | None, example: int) -> Words:
        """Add empty sentences to a story; the memory holds no more than before, so that the oldest may go."""
        if rng is None or len(row) == 1:
            return row
        draw, count = rng.of(example), len(row) - 1
        extra = draw.integer(int(np.ceil(self.settings.random_noise * count)) + 1)
        places = np.sort(draw.permutation(count + extra)[:count])
        out = np.zeros((1 + count + extra, row.shape[1]), np.int64)
        out[0], out[1 + places] = row[0], row[1:]
        return out[: self.settings.memory + 1]


def _pad(rows: Sequence[Words], answers: NDArray[np.int64]) -> StoryBatch:
    sentences, words = (max(row.shape[axis] for row in rows) for axis in (0, 1))
    ids = np.zeros((len(rows), sentences, words), np.int64)
    for i, row in enumerate(rows):
        ids[i, : row.shape[0], : row.shape[1]] = row
    return StoryBatch(torch.from_numpy(ids), tuple(len(row) for row in rows), torch.from_numpy(answers))


def _answer(net: Net, batch: StoryBatch, tape: Tape | None) -> Tensor:
    """A score for every word (b, v)."""
    at = batch.at
    return net.logits(pool_stream(net(batch.ids, at, tape=tape), at, "first"))


def _list_hops(story: Story, looked: Tensor) -> list[dict[str, object]]:
    """For each hop the sentence with the largest weight; none for a question without a story."""
    if not story.sentences:
        return []
    best = [(int(weights.argmax()), float(weights.max())) for weights in looked]
    return [{"hop": i + 1, "sentence": story.sentences[-ago], "weight": w} for i, (ago, w) in enumerate(best)]
