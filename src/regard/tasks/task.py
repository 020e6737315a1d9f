"""What the training loop, the command line and a model folder ask of a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import Batch
from regard.decode import Search
from regard.model.model import Net
from regard.registry import Table
from regard.spec import Spec
from regard.text import Tokenizer

TASKS: Table[type[Any]] = Table("task")
"""Classes that do what `Task` says."""


@dataclasses.dataclass(frozen=True)
class Loss:
    """Of one batch: what is minimised (summed), its plain likelihood part, and how many tokens it is about."""

    total: Tensor
    plain: Tensor
    tokens: int


@dataclasses.dataclass(frozen=True)
class Raw:
    """Examples as they were read, with what there is to say about them."""

    train: Any
    valid: Any
    fingerprint: str
    facts: Mapping[str, Any]
    said: Sequence[str] = ()


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


@dataclasses.dataclass(frozen=True)
class Trial:
    """Inputs, the outputs they should have, and the options of `run` that go with them."""

    inputs: Sequence[str]
    references: Sequence[str]
    options: Mapping[str, Any]


class Examples(Protocol):
    """Encoded examples: as many as `len`, of these lengths (N,) or (N, k), grouped into corpora; some were left out."""

    lengths: NDArray[np.int64]
    groups: NDArray[np.int64] | None
    shares: Sequence[float] | None
    left_out: int

    def __len__(self) -> int: ...


class Task(Protocol):
    """Made from settings and raw data (`prepare`) for training, or from a model folder's files (`load`) for use."""

    Settings: ClassVar[type[Spec]]
    """The spec of the recipe's `data` part."""
    settings: Any
    target: Tokenizer
    """Of what the model writes."""

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
    def load(cls, settings: Any, files: Mapping[str, bytes]) -> Self:
        """From the files a model folder keeps."""

    def files(self) -> dict[str, bytes]:
        """What a model folder must keep beside weights and settings."""

    def facts(self) -> dict[str, Any]:
        """Arguments of the model family that the data decides."""

    def encode(self, raw: Any) -> Examples:
        """Raw examples as token ids."""

    def batch(self, examples: Any, indices: NDArray[np.int64]) -> Batch: ...

    def loss(self, net: Net, batch: Batch, smoothing: float) -> Loss: ...

    def run(self, nets: Sequence[Net], inputs: Sequence[str], search: Search, **options: Any) -> list[list[Output]]:
        """The outputs for each input, best first."""

    def score(self, net: Net, inputs: Sequence[str], outputs: Sequence[str], **options: Any) -> list[float]:
        """log P(output | input) of each pair."""

    def attention(
        self, net: Net, text: str, output: str, **options: Any
    ) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Attention weights (h, n, m) by place for one pair, with the tokens on both sides."""

    def trials(self, raw: Any) -> list[Trial]:
        """Raw examples as inputs to `run` and what should come out."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The scores of this task, the first of which decides."""
