"""What only some tasks can do, and the one place to ask.

Each capability is a small protocol. `supports(task, Aligns)` asks for it; `require(task, Aligns)` returns the task as
such or raises the error that users read. Below them are the training hooks, with what happens for a task that has
none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from regard.data.bucket import Buckets
from regard.decode import Search
from regard.errors import SpecError
from regard.registry import kind_of
from regard.spec import Plain, Spec
from regard.tasks.common.example_names import number_examples
from regard.tasks.common.task import (
    Advice,
    BatchOrder,
    Dataset,
    EvalSet,
    Examples,
    Loss,
    Output,
    RunOptions,
    Task,
    TaskBatch,
    TextSide,
)

if TYPE_CHECKING:  # running a model without torch needs this module, too
    from torch import Tensor

    from regard.data.pair_reader import OnBad
    from regard.model.net import Net
    from regard.nn.core.state import State
    from regard.tasks.common.forward_pass import ForwardPass
    from regard.tasks.common.text_frame import Pool
    from regard.tasks.common.word_scores import Alignment, Confidence
    from regard.text import Template

C = TypeVar("C")
T = TypeVar("T")
E = TypeVar("E", bound=Examples)
TOKENS = 4096
"""Padded tokens per batch, unless given."""

# What users ask of a model. -------------------------------------------------------------------------------------------


@runtime_checkable
class Generates(Protocol):
    """Gives outputs for inputs: a translation, a continuation, a class, a label per word."""

    Options: type[RunOptions]
    """The dataclass of the options that `run`, `score`, `align` and `forward_pass` take."""

    def run(
        self, nets: Sequence[Net], inputs: Sequence[object], search: Search, options: RunOptions = ...
    ) -> list[list[Output]]:
        """The outputs for each input, best first. Several nets are an ensemble."""

    def eval_sets(self, raw: object) -> list[EvalSet]:
        """Examples as inputs to `run` with their references; none if outputs have no references."""


@runtime_checkable
class StreamsText(Protocol):
    """Gives its output in pieces, as it is generated."""

    def stream(self, nets: Sequence[Net], text: str, search: Search, options: RunOptions = ...) -> Iterator[str]:
        """Pieces of text that together are the output of `run`; not with beam search."""


@runtime_checkable
class Scores(Protocol):
    """Gives the log-probability of outputs."""

    def score(
        self, net: Net, inputs: Sequence[object], outputs: Sequence[str], options: RunOptions = ...
    ) -> list[float]:
        """log P(output | input) for each pair."""


@runtime_checkable
class Embeds(Protocol):
    """Turns texts into vectors."""

    def embed(self, net: Net, texts: Sequence[str], *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        """A vector for each text (b, d); of length one if `unit`."""


@runtime_checkable
class Aligns(Protocol):
    """Relates the words of an output to those of its input."""

    def confidence(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = ...
    ) -> list[Confidence]:
        """The probability of each word of each output."""

    def align(
        self,
        net: Net,
        inputs: Sequence[str],
        outputs: Sequence[str],
        options: RunOptions = ...,
        *,
        layer: int | None = None,
    ) -> list[Alignment]:
        """Pairs (input word, output word), by the attention of a decoder layer."""


@runtime_checkable
class Inspects(Protocol):
    """Runs one example so that its inside can be looked at."""

    def forward_pass(self, net: Net, text: str, output: str, options: RunOptions = ...) -> ForwardPass:
        """The forward pass over one input and its output, which it predicts."""


@runtime_checkable
class FillsMasks(Protocol):
    """Predicts the tokens that are masked in a text."""

    mask: int
    """The id of the mask token."""


@runtime_checkable
class Framed(Protocol):
    """Can say in plain data how texts become the model's tokens, so that an engine without torch can run it."""

    def frame(self) -> Plain:
        """The frame, as `api/light_model.py` reads it."""


@runtime_checkable
class Tags(Protocol):
    """Chooses between target languages (or other kinds of output) by a tag."""

    @property
    def tags(self) -> Sequence[str]:
        """The names of the target languages; empty if the model has one only."""


@runtime_checkable
class Classifies(Protocol):
    """Chooses between classes."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the model's outputs."""


@runtime_checkable
class ReadsImages(Protocol):
    """Reads images of one size, normalized by the mean and deviation of each channel."""

    @property
    def side(self) -> int: ...

    @property
    def mean(self) -> tuple[float, ...]: ...

    @property
    def deviation(self) -> tuple[float, ...]: ...


@runtime_checkable
class FramesText(Protocol):
    """Puts special tokens around the texts that it reads."""

    @property
    def input_template(self) -> Template:
        """The special tokens around a text that the model reads, or around two."""


@runtime_checkable
class ChecksVocabulary(Protocol):
    """Finds inputs that its vocabulary does not cover."""

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        """Indices of inputs that are mostly unknown tokens."""


@runtime_checkable
class ReadsTexts(Protocol):
    """Reads or writes texts, which its vocabulary may not cover."""

    def list_texts(self, raw: object) -> list[TextSide]:
        """The texts of a test set."""


@runtime_checkable
class ChecksLength(Protocol):
    """Finds inputs that `run` would truncate."""

    def find_too_long(self, inputs: Sequence[object], options: RunOptions = ...) -> list[int]:
        """Indices of inputs that are longer than the model reads."""


@runtime_checkable
class ExplainsCut(ChecksLength, Protocol):
    """Says what it leaves out of an input that is too long, where that is not the end."""

    def explain_cut(self, given: object) -> str:
        """What is too long about an input and what is left out, after `input 3 `."""


@runtime_checkable
class Splits(ChecksLength, Protocol):
    """Splits long inputs into parts whose outputs can be joined."""

    def split(self, text: str, options: RunOptions = ...) -> list[str]:
        """The parts of a text, each short enough to be read."""


@runtime_checkable
class Constrains(Protocol):
    """Takes words that an output must begin with or contain."""

    def find_unwritable(self, texts: Sequence[str]) -> list[str]:
        """Those of these texts that the vocabulary cannot write."""


@runtime_checkable
class ReadsPairs(Protocol):
    """Reads pairs of texts, some of which may be bad."""

    @classmethod
    def read_test_pairs(cls, settings: Spec, files: Sequence[str], on_bad: OnBad | None) -> object:
        """As `read_test`, with another way to treat bad pairs."""


# What training asks of a task. ----------------------------------------------------------------------------------------


@runtime_checkable
class Streams(Protocol):
    """Carries the model's state from batch to batch (truncated backpropagation through time)."""

    @property
    def streaming(self) -> bool:
        """Whether this task's settings ask for it."""

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
        """Settings for what the `recipe`, as far as it is given, leaves open."""


@runtime_checkable
class Finetunes(Protocol):
    """Combines the vocabulary of another model with what it learns from the data, such as classes."""

    @classmethod
    def prepare_from(cls, settings: Spec, dataset: Dataset, files: Mapping[str, bytes]) -> Task:
        """As `prepare`, with the tokenizer among the files of another model."""


@runtime_checkable
class Stores(Protocol):
    """Encodes into files, for corpora that do not fit into memory."""

    def encode_to(self, folder: Path, raw: object, fingerprint: str) -> Examples:
        """As `encode`, kept in a folder and not repeated if it is there already."""


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


# Asking. --------------------------------------------------------------------------------------------------------------

REQUIRED: dict[type, str] = {
    Generates: "only a task that gives outputs can be run",
    StreamsText: "only a model that writes text token by token (tasks lm, translate, pronounce) can stream",
    Scores: "only a task that gives probabilities can score outputs",
    Embeds: "only a model that reads texts with an encoder alone (tasks classify, embed, mlm, tag) gives vectors of texts",
    Aligns: "only a model that reads one text and writes another (task translate) can say this of its words",
    Inspects: "only a task that gives outputs shows what is inside",
    ReadsPairs: "only tasks that read pairs of texts (translate, embed) can drop bad ones",
}
"""The beginning of the error message for each capability that users ask for."""


def supports(task: object, capability: type[C]) -> TypeGuard[C]:
    """Whether a task, or a class of tasks, has this capability."""
    return isinstance(task, capability)


def require(task: object, capability: type[C]) -> C:
    """The task as one with this capability; raises an error for users if it has not."""
    if not supports(task, capability):
        own = task if isinstance(task, type) else type(task)
        needs = REQUIRED.get(capability, f"this needs a task with the capability {capability.__name__}")
        raise SpecError(f"{needs}, got {kind_of(own)}")
    return task


# Training hooks with their defaults. ----------------------------------------------------------------------------------


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
    """Whether rows continue from batch to batch."""
    return supports(task, Streams) and task.streaming


def compute_loss(task: Task, net: Net, batch: TaskBatch, smoothing: float = 0.0, *, state: State | None = None) -> Loss:
    """The loss of a batch; of a stream's, after `state`."""
    if supports(task, Streams) and task.streaming:
        return task.stream_loss(net, batch, smoothing, state)
    return task.loss(net, batch, smoothing)


# What users ask, with the answer for a task that has nothing to say. ---------------------------------------------------


def eval_sets(task: Task, raw: object) -> list[EvalSet]:
    """Inputs with their references; none for a task that gives no outputs."""
    return task.eval_sets(raw) if supports(task, Generates) else []


def list_tags(task: object) -> Sequence[str]:
    """The target languages to choose from; none for most tasks."""
    return task.tags if supports(task, Tags) else ()


def find_unknown(task: object, inputs: Sequence[str]) -> list[int]:
    """Indices of inputs that are mostly unknown tokens."""
    return task.find_unknown(inputs) if supports(task, ChecksVocabulary) else []


def list_texts(task: Task, raw: object) -> list[TextSide]:
    """The texts of a test set with their vocabularies; none for a task without text."""
    return task.list_texts(raw) if supports(task, ReadsTexts) else []


def find_too_long(task: object, inputs: Sequence[object], options: RunOptions) -> list[int]:
    """Indices of inputs that `run` would truncate."""
    return task.find_too_long(inputs, options) if supports(task, ChecksLength) else []


def split_text(task: object, text: str, options: RunOptions) -> list[str]:
    """Parts of a text that can be read one by one; the whole text if the task cannot join their outputs."""
    return task.split(text, options) if supports(task, Splits) else [text]


def explain_cut(task: object, given: object) -> str:
    """What is left out of an input that is longer than the model reads, after `input 3 `."""
    default = "is longer than the model can read; the end is left out"
    return task.explain_cut(given) if supports(task, ExplainsCut) else default
