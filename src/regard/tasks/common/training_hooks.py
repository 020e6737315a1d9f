"""Questions of training to a task, with their defaults.

Each hook is a small protocol, asked for with `supports`, and a function with the default for a task that has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from regard.data.bucket import Buckets
from regard.spec import Plain, Spec
from regard.tasks.common.capabilities import supports
from regard.tasks.common.example_names import number_examples
from regard.tasks.common.task import Advice, BatchOrder, Dataset, Examples, Loss, Task, TaskBatch

if TYPE_CHECKING:
    from regard.model.net import Net
    from regard.nn.core.state import State

E = TypeVar("E", bound=Examples)
TOKENS = 4096
"""Padded tokens per batch, unless given."""


@runtime_checkable
class Streams(Protocol):
    """Carries the model's state from batch to batch (truncated backpropagation through time)."""

    @property
    def streaming(self) -> bool:
        """True if this task's settings ask for it."""

    def stream_loss(self, net: Net, batch: TaskBatch, smoothing: float, state: State | None) -> Loss:
        """The loss of a batch whose rows continue those of the previous batch; state None: from the beginning."""


@runtime_checkable
class Contrasts(Protocol):
    """Compares the rows of a batch with one another, so that a batch cannot be divided."""

    in_batch_negatives: Literal[True]


@runtime_checkable
class Advises(Protocol):
    """Chooses settings from the data."""

    @classmethod
    def advise(cls, settings: Spec, dataset: Dataset, recipe: Plain) -> Advice:
        """Suggest values for settings that the `recipe` does not specify."""


@runtime_checkable
class Finetunes(Protocol):
    """Combines the vocabulary of another model with what it learns from the data, such as classes."""

    @classmethod
    def prepare_from(cls, settings: Spec, dataset: Dataset, files: Mapping[str, bytes]) -> Task:
        """Prepare a task like `prepare`, with the tokenizer among the files of another model."""


@runtime_checkable
class Stores(Protocol):
    """Encodes into files, for corpora that do not fit into memory."""

    def encode_to(self, folder: Path, raw: object, fingerprint: str) -> Examples:
        """Encode like `encode`, into a folder, unless it is there already."""


@runtime_checkable
class Augments(Protocol):
    """Changes training examples in every epoch: other masks, other subwords, shifted images."""

    def augment(self, examples: E, seed: int, epoch: int) -> E:
        """The training examples as this epoch sees them."""


@runtime_checkable
class OrdersBatches(Protocol):
    """Forms batches in its own way."""

    def order_batches(self, examples: Examples, *, tokens: int | None, seed: int, evaluate: bool = False) -> BatchOrder:
        """Batches of at most this many padded tokens; to `evaluate`, each example comes exactly once."""


@runtime_checkable
class DescribesExamples(Protocol):
    """Names examples so that a user finds them in the data."""

    def describe_examples(self, examples: Examples, indices: NDArray[np.int64]) -> list[str]:
        """A name for each of these examples."""


# The hooks with their defaults. ----------------------------------------------------------------------------------------


def order_batches(
    task: Task, examples: Examples, *, tokens: int | None, seed: int, evaluate: bool = False
) -> BatchOrder:
    """Batches of like lengths, unless the task forms its own."""
    if supports(task, OrdersBatches):
        return task.order_batches(examples, tokens=tokens, seed=seed, evaluate=evaluate)
    return bucket(examples, tokens=tokens, seed=seed, evaluate=evaluate)


def bucket(examples: Examples, *, tokens: int | None, seed: int, evaluate: bool = False) -> Buckets:
    """Batches of like lengths; to `evaluate`, corpora are not mixed by their shares."""
    groups, shares = (None, None) if evaluate else (examples.groups, examples.shares)
    return Buckets(examples.lengths, tokens=tokens or TOKENS, seed=seed, groups=groups, shares=shares)


def augment(task: Task, examples: E, seed: int, epoch: int) -> E:
    """The training examples as this epoch sees them; unchanged, unless the task augments them."""
    if supports(task, Augments):
        return task.augment(examples, seed, epoch)
    return examples


def encode_to(task: Task, folder: Path, raw: object, fingerprint: str) -> Examples:
    """Encode into a folder if the task can, otherwise in memory."""
    return task.encode_to(folder, raw, fingerprint) if supports(task, Stores) else task.encode(raw)


def describe_examples(task: Task, examples: Examples, indices: NDArray[np.int64]) -> list[str]:
    """Names of examples for a message; their numbers, unless the task knows better ones."""
    return task.describe_examples(examples, indices) if supports(task, DescribesExamples) else number_examples(indices)


def advise(kind: type[Task], settings: Spec, dataset: Dataset, recipe: Plain) -> Advice:
    """Settings chosen from the data; none, unless the task gives advice."""
    return kind.advise(settings, dataset, recipe) if supports(kind, Advises) else Advice({"train": {}}, [])


def prepare_from(kind: type[Task], settings: Spec, dataset: Dataset, files: Mapping[str, bytes]) -> Task:
    """The task with the vocabulary of another model."""
    return kind.prepare_from(settings, dataset, files) if supports(kind, Finetunes) else kind.load(settings, files)


def is_streaming(task: Task) -> bool:
    """True if rows continue from batch to batch."""
    return supports(task, Streams) and task.streaming


def compute_loss(task: Task, net: Net, batch: TaskBatch, smoothing: float = 0.0, *, state: State | None = None) -> Loss:
    """The loss of a batch; of a stream's, after `state`."""
    if supports(task, Streams) and task.streaming:
        return task.stream_loss(net, batch, smoothing, state)
    return task.loss(net, batch, smoothing)
