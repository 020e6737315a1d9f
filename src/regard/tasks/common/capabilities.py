"""Abilities of some tasks only, and the one place to ask.

Each capability is a small protocol. `supports(task, Aligns)` asks for it; `require(task, Aligns)` returns the task as
such or raises the error that users read. Below them are functions that ask, with the answer for a task that cannot. What only
training asks for is in `training_hooks.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeGuard, TypeVar, runtime_checkable

from regard.errors import SpecError
from regard.registry import kind_of
from regard.tasks.common.task import (
    EvalSet,
    Examples,
    Output,
    RunOptions,
    Task,
    TextSide,
)

if TYPE_CHECKING:  # running a model without torch needs this module, too
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.pair_reader import OnBad
    from regard.decode import Engine, Search
    from regard.model.net import Net
    from regard.spec import Plain, Spec
    from regard.tasks.common.forward_pass import ForwardPass
    from regard.tasks.common.text_frame import Pool
    from regard.tasks.common.word_scores import Alignment, Confidence
    from regard.text import Template

C = TypeVar("C")
# What users ask of a model. -------------------------------------------------------------------------------------------


@runtime_checkable
class Generates(Protocol):
    """Gives outputs for inputs: a translation, a continuation, a class, a label per word."""

    Options: type[RunOptions]
    """The dataclass of the options that `run`, `score`, `align` and `forward_pass` take."""

    def run(
        self, engine: Engine, inputs: Sequence[object], search: Search, options: RunOptions = ...
    ) -> list[list[Output]]:
        """The outputs for each input, best first. An engine may be an ensemble."""

    def eval_sets(self, raw: object) -> list[EvalSet]:
        """Examples as inputs to `run` with their references; none if outputs have no references."""


@runtime_checkable
class StreamsText(Protocol):
    """Gives its output in pieces, as it is generated."""

    def stream(self, engine: Engine, text: str, search: Search, options: RunOptions = ...) -> Iterator[str]:
        """Pieces of text that together are the output of `run`; not with beam search."""


@runtime_checkable
class Scores(Protocol):
    """Gives the log-probability of outputs."""

    def score(
        self, engine: Engine, inputs: Sequence[object], outputs: Sequence[str], options: RunOptions = ...
    ) -> list[float]:
        """log P(output | input) for each pair."""


@runtime_checkable
class Completes(Protocol):
    """Completes a text at a cursor: its `run` and `score` take a `Cursor` as well."""

    @property
    def infills(self) -> bool:
        """True if it reads what comes after the cursor, too."""


@runtime_checkable
class Embeds(Protocol):
    """Turns texts into vectors."""

    def embed(
        self, engine: Engine, texts: Sequence[str], *, pool: Pool | None = None, unit: bool | None = None
    ) -> Tensor:
        """A vector for each text (b, d); of length one if `unit`."""


@runtime_checkable
class Aligns(Protocol):
    """Relates the words of an output to those of its input."""

    def confidence(
        self, engine: Engine, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = ...
    ) -> list[Confidence]:
        """The probability of each word of each output."""

    def align(
        self,
        engine: Engine,
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

    def frame(self) -> Plain | None:
        """The frame, as `api/light_model.py` reads it; None if only torch can run the model."""


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
class ReadsFiles(Protocol):
    """Reads files of its own kind, such as music, whose paths are the inputs of `run`."""

    def open_input(self, raw: bytes, name: str) -> object:
        """An input of `run` from the bytes of its file; a server has these alone, and never opens a client's path."""


@runtime_checkable
class WritesFiles(Protocol):
    """Gives outputs that are also files, such as music."""

    @property
    def file_suffix(self) -> str:
        """The suffix of the first file of an output."""


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
        """Describe what is too long about an input and what is left out, after `input 3 `."""


@runtime_checkable
class Splits(ChecksLength, Protocol):
    """Splits long inputs into parts whose outputs can be joined."""

    def split(self, text: str, options: RunOptions = ...) -> list[str]:
        """The parts of a text, each short enough to be read."""


@runtime_checkable
class HasBaseline(Protocol):
    """Knows outputs that need no model, which scores are compared with."""

    def make_baseline(self, inputs: Sequence[object]) -> tuple[str, list[str]]:
        """The name of the baseline, and its output for each input."""


@runtime_checkable
class CountsBaselines(Protocol):
    """Knows simple methods that a model should beat, with the scores that come with the loss."""

    def count_baselines(self, examples: Examples) -> Mapping[str, Mapping[str, NDArray[np.float64]]]:
        """For each baseline the counts of each test item (items, 2), by score, as in `Loss.rows`."""


@runtime_checkable
class Constrains(Protocol):
    """Takes words that an output must begin with or contain."""

    def find_unwritable(self, texts: Sequence[str]) -> list[str]:
        """Return the texts that the vocabulary cannot write."""


@runtime_checkable
class ReadsPairs(Protocol):
    """Reads pairs of texts, some of which may be bad."""

    @classmethod
    def read_test_pairs(cls, settings: Spec, files: Sequence[str], on_bad: OnBad | None) -> object:
        """Read pairs like `read_test`, with another way to treat bad ones."""


# Asking. --------------------------------------------------------------------------------------------------------------

REQUIRED: dict[type, str] = {
    Generates: "only a task that gives outputs can be run",
    StreamsText: "only a model that writes text token by token (code, lm, music, pronounce, summarize, translate) can stream",
    Scores: "only a task that gives probabilities can score outputs",
    Completes: "only a model of code (task code) completes at a cursor",
    Embeds: "only a model that reads texts with an encoder alone (tasks classify, embed, mlm, tag) gives vectors of texts",
    Aligns: "only a model that writes one text for another (tasks summarize, translate) can say this of its words",
    Inspects: "only a task that gives outputs shows what is inside",
    ReadsPairs: "only tasks that read pairs of texts (embed, summarize, translate) can drop bad ones",
}
"""The beginning of the error message for each capability that users ask for."""


def supports(task: object, capability: type[C]) -> TypeGuard[C]:
    """True if a task, or a class of tasks, has this capability."""
    return isinstance(task, capability)


def require(task: object, capability: type[C]) -> C:
    """The task as one with this capability; raises an error for users if it has not."""
    if not supports(task, capability):
        own = task if isinstance(task, type) else type(task)
        needs = REQUIRED.get(capability, f"this needs a task with the capability {capability.__name__}")
        raise SpecError(f"{needs}, got {kind_of(own)}")
    return task


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


def split_input(task: object, text: str, options: RunOptions) -> list[str]:
    """Parts of a text that can be read one by one; the whole text if the task cannot join their outputs."""
    return task.split(text, options) if supports(task, Splits) else [text]


def explain_cut(task: object, given: object) -> str:
    """Describe what is left out of an input that is longer than the model reads, after `input 3 `."""
    default = "is longer than the model can read; the end is left out"
    return task.explain_cut(given) if supports(task, ExplainsCut) else default
