"""What the training loop, the command line and a model folder ask of a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.data.bucket import Buckets
from regard.decode import Search
from regard.errors import SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.core.state import State
from regard.registry import Registry
from regard.spec import Spec
from regard.tasks.common.encoder_input import vectors
from regard.tasks.common.example_names import numbered
from regard.text import Tokenizer

TASKS: Registry[type[Any]] = Registry("task")
"""Classes that do what `Task` says."""
WORDLESS = "only a model that reads one text and writes another (task translate) can say this of its words"
TOKENS = 4096
"""Padded tokens a batch holds, where nobody says."""


@dataclasses.dataclass(frozen=True)
class Loss:
    """Of one batch: what is minimised (summed), its plain likelihood part, and how many tokens it is about."""

    total: Tensor
    plain: Tensor
    tokens: int
    counts: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Scores that need no output, while judging: how many were right, and of how many."""
    state: State | None = None
    """What the model remembers, where the next batch goes on from this one."""


@dataclasses.dataclass(frozen=True)
class Raw:
    """Examples as they were read, with what there is to say about them."""

    train: Any
    valid: Any
    fingerprint: str
    facts: Mapping[str, Any]
    said: Sequence[str] = ()
    dropped: Sequence[Mapping[str, Any]] = ()
    """What was left out, as plain data: of each corpus and reason the `count` and some `examples`."""


@dataclasses.dataclass(frozen=True)
class Advice:
    """Settings chosen from the data, laid under the recipe's own, and why."""

    recipe: Mapping[str, Any]
    reasons: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Output:
    """One output, with its score where there is one."""

    text: str
    score: float | None = None
    log_prob: float | None = None
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What else a task has to say, as plain data: every class's probability, a vector."""

    def plain(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {"text": self.text, "score": self.score, "log_prob": self.log_prob, **self.more}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Inputs, the outputs they should have, the options of `run` that go with them, and the corpus they are from."""

    inputs: Sequence[Any]
    """Texts; or whatever else `run` takes, whose `str` names it in a report."""
    references: Sequence[str]
    options: Mapping[str, Any]
    name: str = ""


class Examples(Protocol):
    """Encoded examples: as many as `len`, of these lengths (N,) or (N, k), grouped into corpora; some were left out."""

    lengths: NDArray[np.integer[Any]]
    groups: NDArray[np.int64] | None
    shares: Sequence[float] | None
    left_out: int

    def __len__(self) -> int: ...


class Order(Protocol):
    """The batches of every epoch, in an order that is a pure function of its number."""

    def epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        """Of each batch its examples, a row for each: which, or where they are."""


class Task(Protocol):
    """Made from settings and raw data (`prepare`) for training, or from a model folder's files (`load`) for use."""

    Settings: ClassVar[type[Spec]]
    """The spec of the recipe's `data` part."""
    settings: Any
    target: Tokenizer | None
    """Of what the model writes, or reads where it writes no text; None where it does neither (images)."""

    def __init__(self, settings: Any, *parts: Any) -> None: ...

    @classmethod
    def given(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, Any]:
        """The settings that name these files of a command line."""

    @classmethod
    def gather(cls, settings: Any, files: Sequence[str]) -> Any:
        """All examples of these files, as they are, to be judged by."""

    @classmethod
    def read(cls, settings: Any, seed: int) -> Raw:
        """Read the corpora; bad data is an error with file and line."""

    @classmethod
    def advise(cls, settings: Any, raw: Raw, asked: Mapping[str, Any]) -> Advice:
        """What to choose where the recipe is silent; `asked` is what it says of training."""

    @classmethod
    def prepare(cls, settings: Any, raw: Raw) -> Self:
        """Learn from the data what the task needs (a vocabulary)."""

    @classmethod
    def adopt(cls, settings: Any, raw: Raw, files: Mapping[str, bytes]) -> Self:
        """As `prepare`, with the vocabulary of another model, whose files these are."""

    @classmethod
    def load(cls, settings: Any, files: Mapping[str, bytes]) -> Self:
        """From the files a model folder keeps."""

    def files(self) -> dict[str, bytes]:
        """What a model folder must keep beside weights and settings."""

    def facts(self) -> dict[str, Any]:
        """Arguments of the model family that the data decides."""

    def fit(self, spec: ModelSpec) -> ModelSpec:
        """The model as this task needs it: another head, say, on a body that was trained for something else."""

    def encode(self, raw: Any) -> Examples:
        """Raw examples as token ids."""

    def store(self, raw: Any, folder: Path, fingerprint: str) -> Examples:
        """The same, kept in a folder by a task that can: they need not fit into memory, nor be made again."""

    def order(self, examples: Any, *, tokens: int | None, seed: int, judge: bool = False) -> Order:
        """How examples are cut into batches of so many padded tokens; to `judge` by them, all come once."""

    @property
    def together(self) -> bool:
        """Whether the rows of a batch are judged by one another, so that none may be taken out of it."""

    @property
    def carry(self) -> bool:
        """Whether each row of a batch goes on where that of the batch before stopped: its loss is then that of `follow`."""

    def fresh(self, examples: Any, seed: int, epoch: int) -> Any:
        """Training examples as this pass over them sees them: for a task that masks or shifts them, each time anew."""

    def batch(self, examples: Any, indices: NDArray[np.int64]) -> Any:
        """These examples as one thing that has `tokens`, how many targets count, and goes `to` a device."""

    def named(self, examples: Any, indices: NDArray[np.int64]) -> list[str]:
        """What to call each of these examples in a message, so that a user finds it in the data."""

    def loss(self, net: Net, batch: Any, smoothing: float) -> Loss: ...

    def follow(self, net: Net, batch: Any, smoothing: float, state: State | None) -> Loss:
        """The loss of a batch whose rows go on from what the model remembers; None: from nothing."""

    def run(self, nets: Sequence[Net], inputs: Sequence[Any], search: Search, **options: Any) -> list[list[Output]]:
        """The outputs for each input, best first."""

    def embed(self, net: Net, texts: Sequence[str], **options: Any) -> Tensor:
        """A vector for each text (b, d), of a model that reads texts with an encoder alone."""

    def score(self, net: Net, inputs: Sequence[str], outputs: Sequence[str], **options: Any) -> list[float]:
        """log P(output | input) of each pair."""

    def confidence(self, net: Net, inputs: Sequence[str], outputs: Sequence[str], **options: Any) -> list[Any]:
        """How probable each word of each output is, by a model that writes after it has read."""

    def align(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], *, layer: int | None = None, **options: Any
    ) -> list[list[tuple[int, int]]]:
        """Which word of the input each word of the output comes from, by the attention of such a model."""

    def attention(
        self, net: Net, text: str, output: str, **options: Any
    ) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Attention weights (h, n, m) by place for one pair, with the tokens on both sides."""

    def trials(self, raw: Any) -> list[Trial]:
        """Raw examples as inputs to `run` and what should come out."""

    @property
    def tags(self) -> Sequence[str]:
        """The languages or whatever else `run` can be asked for as `tag`, by name."""

    def too_long(self, inputs: Sequence[Any], *, tagged: bool = False) -> list[int]:
        """Which inputs are longer than the model reads, so that `run` cuts them."""

    def unknown(self, inputs: Sequence[Any]) -> list[int]:
        """Which inputs the vocabulary that they are read by makes next to nothing of."""

    def unwritable(self, texts: Sequence[str]) -> list[str]:
        """Those of these texts that no output can have: not all of them is in the vocabulary."""

    def pieces(self, text: str, *, tagged: bool = False) -> list[str]:
        """A text as pieces that the model can read and whose outputs can be joined; whole, where they could not."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The scores of this task, the first of which decides."""


class Usual:
    """What most tasks do about the hooks that few need; a task has it as its base."""

    @classmethod
    def adopt(cls, settings: Any, raw: Raw, files: Mapping[str, bytes]) -> Self:
        return cls.load(settings, files)  # type: ignore[attr-defined, no-any-return]

    def fit(self, spec: ModelSpec) -> ModelSpec:
        return spec

    def store(self, raw: Any, folder: Path, fingerprint: str) -> Any:
        return self.encode(raw)  # type: ignore[attr-defined]

    def order(self, examples: Any, *, tokens: int | None, seed: int, judge: bool = False) -> Order:
        groups, shares = (None, None) if judge else (examples.groups, examples.shares)
        return Buckets(examples.lengths, tokens=tokens or TOKENS, seed=seed, groups=groups, shares=shares)

    @property
    def together(self) -> bool:
        return False

    @property
    def carry(self) -> bool:
        return False

    def follow(self, net: Net, batch: Any, smoothing: float, state: State | None) -> Loss:
        raise NotImplementedError(f"{type(self).__name__} carries nothing from batch to batch")

    def fresh(self, examples: Any, seed: int, epoch: int) -> Any:
        return examples

    def named(self, examples: Any, indices: NDArray[np.int64]) -> list[str]:
        return numbered(indices)

    def embed(
        self, net: Net, texts: Sequence[str], *, pool: Literal["first", "mean"] = "mean", unit: bool = True
    ) -> Tensor:
        return vectors(net, self.target, texts, pool=pool, unit=unit)  # type: ignore[attr-defined]

    @property
    def tags(self) -> Sequence[str]:
        return ()

    def too_long(self, inputs: Sequence[Any], *, tagged: bool = False) -> list[int]:
        return []

    def unknown(self, inputs: Sequence[Any]) -> list[int]:
        return [] if self.target is None else self.target.mostly_unknown(inputs)  # type: ignore[attr-defined]

    def unwritable(self, texts: Sequence[str]) -> list[str]:
        return []

    def pieces(self, text: str, *, tagged: bool = False) -> list[str]:
        return [text]

    def confidence(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], *, tag: str | None = None
    ) -> list[Any]:
        raise SpecError(f"{WORDLESS}, got {type(self).__name__.lower()}")

    def align(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], *, tag: str | None = None, layer: int | None = None
    ) -> list[list[tuple[int, int]]]:  # fmt: skip
        raise SpecError(f"{WORDLESS}, got {type(self).__name__.lower()}")
