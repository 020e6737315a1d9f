"""The contract that every task fulfills.

A task turns data into batches, batches into a loss, and outputs into scores. `Task` is what training and a model
folder need from every task; what only some tasks can do (generate, embed, align, stream …) is in `capabilities`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from regard.errors import DataError
from regard.registry import Registry

if TYPE_CHECKING:  # running a model without torch and numpy needs this module, too
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.bucket import LengthTable
    from regard.model.model_spec import ModelSpec
    from regard.model.net import Net
    from regard.nn.core.state import State
    from regard.spec import Plain, Spec
    from regard.text import Tokenizer


@dataclasses.dataclass(frozen=True)
class Loss:
    """The loss of one batch: what is minimized (summed), its likelihood part, and the number of targets."""

    total: Tensor
    plain: Tensor
    """Without label smoothing and auxiliary losses."""
    tokens: int
    rows: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """While evaluating, for each metric that comes with the loss the counts of each row (b, 2): of `loss` nats and
    tokens, of others how many were right and out of how many."""
    state: State | None = None
    """The model's state after a batch of a stream."""
    likelihood: bool = True
    """True if `plain` is a negative log-likelihood, so that there is a perplexity."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Training and validation examples as they were read, with statistics and messages about them."""

    train: Any
    valid: Any
    fingerprint: str
    statistics: Mapping[str, object]
    messages: Sequence[str] = ()
    dropped: Sequence[Mapping[str, object]] = ()
    """Rejected examples as plain data: for each corpus and reason the `count` and a few `examples`."""


@dataclasses.dataclass(frozen=True)
class Advice:
    """Settings chosen from the data, to be merged under the recipe's own, and the reasons for them."""

    recipe: Plain
    reasons: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Output:
    """One output, with its score where there is one."""

    text: str
    score: float | None = None
    log_prob: float | None = None
    more: Plain = dataclasses.field(default_factory=dict)
    """Other results of the task as plain data, such as class probabilities or a vector."""
    explanation: Sequence[str] = ()
    """Lines that tell people how it came about; printed below the text where lines are not counted."""
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """The output as files, by suffix, the most important first; `regard run --out` writes them."""
    error: str | None = None
    """Reason for no output, if the input could not be read; the text is empty then."""

    def plain(self) -> dict[str, object]:
        """All fields, ready for JSON."""
        return {"text": self.text, "score": self.score, "log_prob": self.log_prob, **self.more}


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of `run`, `score` and the like beyond `Search`. A task with more of them has a subclass."""

    first: int = 0
    """The number of the first input. Sampling depends on it, so that it does not depend on the batches."""


@dataclasses.dataclass(frozen=True)
class EvalSet:
    """Inputs with reference outputs, the options of `run` that go with them, and the corpus they are from."""

    inputs: Sequence[object]
    """Texts, or whatever else `run` takes; `str` of an input names it in a report."""
    references: Sequence[str]
    options: RunOptions
    name: str = ""


@dataclasses.dataclass(frozen=True)
class TextSide:
    """Texts of a test set with their vocabulary: what a model reads, or what it should write."""

    tokenizer: Tokenizer
    texts: Iterable[str]
    written: bool = False
    """True if the loss is that of every token of these texts."""


class Examples(Protocol):
    """Encoded examples: their number, their lengths (N,) or (N, k), and the corpora they are grouped into."""

    @property
    def lengths(self) -> LengthTable: ...

    @property
    def groups(self) -> NDArray[np.int64] | None: ...

    @property
    def shares(self) -> Sequence[float] | None: ...

    @property
    def left_out(self) -> int:
        """The number of examples that were too long."""

    def __len__(self) -> int: ...


class TaskBatch(Protocol):
    """Examples as tensors."""

    @property
    def tokens(self) -> int:
        """The number of targets that count."""

    def to(self, device: torch.device | str) -> Self: ...


class BatchOrder(Protocol):
    """The batches of every epoch, as a pure function of the epoch's number."""

    def epoch(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        """The batches of an epoch, each an array with a row per example: its index, or its place in a stream."""


class Task(Protocol):
    """Created from settings and data (`prepare`) for training, or from a model folder's files (`load`) for use."""

    Settings: type[Any]
    """The spec of the recipe's `data` part."""

    @property
    def settings(self) -> Spec: ...

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of what the model writes, or reads if it writes no text; None for a task without text."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the scores. The first decides which checkpoint is best."""

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        """The `data` settings that name these files of a command line."""

    @classmethod
    def read(cls, settings: Any, seed: int) -> Dataset:
        """Read the corpora; bad data is an error that names file and line."""

    @classmethod
    def read_test(cls, settings: Any, files: Sequence[str]) -> object:
        """Read all examples of these files for evaluation."""

    @classmethod
    def prepare(cls, settings: Any, dataset: Dataset) -> Self:
        """Learn from the data what the task needs, such as a vocabulary."""

    @classmethod
    def load(cls, settings: Any, files: Mapping[str, bytes]) -> Self:
        """Create the task from the files of a model folder."""

    def files(self) -> dict[str, bytes]:
        """The files that a model folder must keep besides weights and settings."""

    def model_arguments(self) -> dict[str, int]:
        """The arguments of the model family that the data decides."""

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        """The model as this task needs it, for example with another head; raises if it does not suit the task."""

    def encode(self, raw: Any) -> Examples:
        """Examples as they were read → token ids."""

    def batch(self, examples: Any, indices: NDArray[np.int64]) -> TaskBatch:
        """Combine these examples into one batch."""

    def loss(self, net: Net, batch: Any, smoothing: float) -> Loss: ...


def check_pairs(inputs: Sequence[object], outputs: Sequence[object]) -> None:
    """Raise an error unless there are as many outputs as inputs."""
    if len(inputs) != len(outputs):
        raise DataError(f"as many outputs as inputs are needed, got {len(outputs)} for {len(inputs)}")


TASKS: Registry[type[Task]] = Registry("task")
