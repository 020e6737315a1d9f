"""Inputs to outputs: batches, long texts, glossaries.

inputs ─▶ parts (a long text has several, an empty one none) ─▶ batches ─▶ task.run ─▶ joined outputs, one list per input

There are as many lists as inputs, whatever the inputs are: one that the task cannot read is noted, and its only output is
empty and says why (`error`). The others are not affected.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, get_args

from regard.api.notes import Notes, Tell
from regard.data.glossary import Glossary
from regard.decode import Engine, Search
from regard.errors import DataError, NoRoom, SpecError, UnknownName
from regard.stopping import check_stops
from regard.tasks.common.capabilities import (
    Constrains,
    Generates,
    StreamsText,
    explain_cut,
    find_too_long,
    find_unknown,
    list_tags,
    require,
    split_input,
)
from regard.tasks.common.join import join_outputs
from regard.tasks.common.task import Output, RunOptions

if TYPE_CHECKING:
    from regard.api.trained_model import Model

T = TypeVar("T")
Long = Literal["split", "cut"]
LONG = get_args(Long)
BATCH = 1024
"""Number of inputs that are run together."""
BATCH_CHARACTERS = 1 << 20
"""From this many characters on, a batch takes no further inputs."""
SEARCH_OPTIONS = frozenset(field.name for field in dataclasses.fields(Search))
BEAM_ONLY = ("beam", "n_best", "alpha", "length_penalty")
SAMPLING_ONLY = ("temperature", "top_k", "top_p", "min_p", "seed")
PER_INPUT = ("prefixes", "must_include")
"""Options of tasks that have one entry per input."""


def resolve_search(search: Search, options: Mapping[str, object]) -> Search:
    """The settings of a model with the options of a call. Options without effect are refused."""
    given = {name: value for name, value in options.items() if name in SEARCH_OPTIONS}
    sample = bool(given.get("sample", search.sample))
    without_effect = BEAM_ONLY if sample else SAMPLING_ONLY
    if idle := [name for name in without_effect if name in given and not (sample and given[name] == 1)]:
        way = "while sampling; set sample=False" if sample else "without sampling; set sample=True"
        raise SpecError(f"{', '.join(idle)} would have no effect {way}, or drop {'it' if len(idle) == 1 else 'them'}")
    base = search.plain()
    if sample:
        base |= {"n_best": 1, "beam": 1}
    elif "n_best" in given and "beam" not in given:
        wanted = given["n_best"]
        given["beam"] = max(search.beam, wanted) if isinstance(wanted, int) else search.beam
    elif "n_best" not in given and isinstance(beam := given.get("beam", search.beam), int):
        base["n_best"] = max(min(search.n_best, beam), 1)
    return Search.parse({**base, **given})


class RunsTexts(Protocol):
    """A model, as far as running texts needs one."""

    @property
    def engine(self) -> Engine: ...
    @property
    def task(self) -> object: ...
    @property
    def search(self) -> Search: ...
    @property
    def path(self) -> Path: ...


def select_options(task: object, options: Mapping[str, object], besides: Collection[str] = ()) -> RunOptions:
    """The options that a task itself takes. Names in `besides` are left out; any other name is an error."""
    kind = require(task, Generates).Options
    known = {field.name for field in dataclasses.fields(kind)}
    for name in options:
        if name not in known and name not in besides:
            raise UnknownName("option", name, sorted({*known, *besides}))
    return kind(**{name: value for name, value in options.items() if name in known})  # type: ignore[arg-type]


def find_tag(model: RunsTexts, language: str) -> str:
    """The tag that asks a many-to-many model for this language, or a summarizer for this length."""
    known = list_tags(model.task)
    if not known:
        raise SpecError(
            f"{model.path} was not trained with several target languages or lengths to choose from; leave out "
            f"to={language!r}"
        )
    if language not in known:
        raise UnknownName("target language", language, known)
    return f"2{language}"


@dataclasses.dataclass(frozen=True)
class _Part:
    """Text that is read at once: an input, or a part of a long one."""

    text: object
    number: int
    """Number of the input, from 1."""
    is_first: bool


class TextRunner:
    """Runs a model over any number of inputs with the options of one call."""

    def __init__(
        self,
        model: RunsTexts,
        options: Mapping[str, object],
        *,
        others: Sequence[Model] = (),
        to: str | None = None,
        prefix: str | None = None,
        glossary: Glossary | Mapping[str, str] | str | Path | None = None,
        long: Long = "split",
        notify: Tell | None = None,
    ) -> None:
        self.model, self.task, self.prefix, self.long = model, require(model.task, Generates), prefix, long
        self.note = Notes(notify)
        self.search = resolve_search(model.search, options)
        own = {name: value for name, value in options.items() if name not in SEARCH_OPTIONS}
        if to is not None:
            own["tag"] = find_tag(model, to)
        self.options = select_options(model.task, own, SEARCH_OPTIONS)
        self.engine = _join_engines(model, others) if others else model.engine
        for other in others:
            if not isinstance(model, type(other)) or other.task.files() != model.task.files():
                raise SpecError(f"{other.path} has another vocabulary than {model.path}; an ensemble must share one")
        if long not in LONG:
            raise UnknownName("way to treat long texts", long, LONG)
        self.glossary = _open_glossary(glossary)
        self._check_writable("prefix", "prefixes", [] if prefix is None else [prefix])
        self._check_writable("glossary", "must_include", [] if self.glossary is None else self.glossary.translations)
        if self.glossary is not None and not self.search.sample and self.search.beam == 1:
            self.note("beam", "a glossary needs beam search: inputs with terms are searched with a beam")
        self._first = self.options.first

    def run_batches(self, inputs: Iterable[object], batch: int = BATCH) -> Iterator[list[tuple[object, list[Output]]]]:
        """Each input with its outputs, best first; a batch of them as soon as it is done."""
        before = 0
        for some in _batched(inputs, batch):
            parts, faults = self._split(some, before)
            flat = [part for row in parts for part in row]
            found = [each for i in range(0, len(flat), batch) for each in self._run(flat[i : i + batch])]
            rest, done = iter(found), list[tuple[object, list[Output]]]()
            for i, (given, row) in enumerate(zip(some, parts, strict=True)):
                outputs = _join(given, row, [next(rest) for _ in row]) if row else []
                if i in faults:
                    outputs = [Output("", error=faults[i])]
                if outputs and (fault := outputs[0].error) is not None:
                    self.note.each("no output", f"input {before + i + 1} has no output: {fault}")
                done.append((given, outputs))
            yield done
            before += len(some)

    def run(self, inputs: Sequence[object], batch: int = BATCH) -> list[list[Output]]:
        """The outputs of each input, best first."""
        self._check_per_input(len(inputs))
        return [outputs for some in self.run_batches(inputs, batch) for _, outputs in some]

    def stream(self, text: str) -> Iterator[str]:
        """The best output in pieces, as it is generated."""
        if self.glossary is not None:
            raise SpecError("a glossary needs beam search, which cannot stream; leave out the glossary, or use run")
        task, gap = require(self.task, StreamsText), ""
        (parts,), faults = self._split([text], 0)
        if faults:
            raise DataError(faults[0])
        for i, part in enumerate(parts):
            options, begun = self._part_options([part], self._first + i), False
            for piece in filter(None, task.stream(self.engine, str(part.text), self.search, options)):
                yield piece if begun else gap + piece
                begun, gap = True, " "

    def _check_writable(self, name: str, option: str, texts: Sequence[str]) -> None:
        """Refuse what the model cannot write, before the first input is read."""
        if texts and not hasattr(self.options, option):
            raise SpecError(f"{self.model.path} cannot be told what to write; leave out the {name}")
        if texts and (wrong := require(self.task, Constrains).find_unwritable([t for t in texts if t.strip()])):
            raise SpecError(f"{name}: {self.model.path} cannot write {wrong[0]!r}, not all of it is in its vocabulary")

    def _check_per_input(self, count: int) -> None:
        for name in PER_INPUT:
            rows = getattr(self.options, name, None)
            if rows is not None and len(rows) != count:
                raise DataError(f"{name} should have one entry per input, got {len(rows)} for {count}")

    def _split(self, inputs: Sequence[object], before: int) -> tuple[list[list[_Part]], dict[int, str]]:
        """The parts of each input: none for a text without a word, several for one that is longer than the model reads.

        And the faults of inputs that cannot be read, which have no parts either.
        """
        rows = [[] if _is_blank(given) else [given] for given in inputs]
        faults = dict[int, str]()
        full = [i for i, row in enumerate(rows) if row]
        words = full if all(isinstance(inputs[i], str) for i in full) else []
        find = partial(find_unknown, self.model.task)
        for i in _find_apart(find, inputs, words, faults):
            self.note(
                "unknown",
                f"input {before + i + 1} is largely unknown to the model's vocabulary: another language, script or "
                "tokenizer? Later ones are not mentioned",
            )
        full = [i for i in full if i not in faults]
        for i in _find_apart(lambda some: find_too_long(self.model.task, some, self.options), inputs, full, faults):
            given, name = inputs[i], f"input {before + i + 1}"
            if self.long == "split" and isinstance(given, str):
                rows[i] = [*split_input(self.model.task, given, self.options)] or rows[i]
            if len(rows[i]) > 1:
                self.note(
                    "split",
                    f"{name} is longer than the model can read; it is read in parts, as are later ones (cut leaves out the "
                    "end instead)",
                )
            else:
                self.note("cut", f"{name} {explain_cut(self.model.task, given)}, here and in later inputs")
        parts = [[_Part(text, before + i + 1, not j) for j, text in enumerate(row)] for i, row in enumerate(rows)]
        return [[] if i in faults else row for i, row in enumerate(parts)], faults

    def _run(self, parts: Sequence[_Part]) -> list[list[Output]]:
        """The outputs of each part. Sampling depends on how many parts were run before."""
        first, self._first = self._first, self._first + len(parts)
        try:
            return self._run_fitting(parts, self._part_options(parts, first))
        except NoRoom as lack:
            if self.prefix is None and self.glossary is None:  # the caller's own lists: the caller should know
                raise
            number = parts[lack.places[0]].number
            self.note(
                "room",
                f"input {number} has no room for what its output must include; it goes without, as do later ones like it",
            )
            without = self._part_options(parts, first, without=lack.places)
            return self._run_fitting(parts, without)

    def _run_fitting(self, parts: Sequence[_Part], options: RunOptions) -> list[list[Output]]:
        """Run parts together; in halves, if together they do not fit into memory, or if one of them cannot be read."""
        check_stops()
        try:
            return self.task.run(self.engine, [part.text for part in parts], self.search, options)
        except DataError as error:
            if isinstance(error, NoRoom) or self._has_own_lists():  # the caller's own lists: the caller should know
                raise
            if len(parts) == 1:
                return [[Output("", error=str(error))]]
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if len(parts) == 1:
                raise SpecError(
                    f"input {parts[0].number} does not fit into memory; shorten it, or use a smaller beam"
                ) from None
            self.note(
                "memory", f"{len(parts):,} inputs at once do not fit into memory; they are run in smaller batches"
            )
        out, half = list[list[Output]](), len(parts) // 2
        for start, stop in ((0, half), (half, len(parts))):
            try:
                out += self._run_fitting(parts[start:stop], _cut_options(options, start, stop))
            except NoRoom as lack:  # places are counted in the whole
                raise NoRoom(str(lack), [start + place for place in lack.places]) from None
        return out

    def _has_own_lists(self) -> bool:
        return any(getattr(self.options, name, None) is not None for name in PER_INPUT)

    def _part_options(self, parts: Sequence[_Part], first: int, without: Sequence[int] = ()) -> RunOptions:
        """The task's options for these parts: prefixes begin the first part of an input, terms are in any."""
        changes: dict[str, object] = {"first": first}
        for name in PER_INPUT:
            rows = getattr(self.options, name, None)
            if rows is not None:
                nothing = "" if name == "prefixes" else []
                changes[name] = [rows[part.number - 1] if part.is_first else nothing for part in parts]
        if self.prefix is not None:
            begin = self.prefix
            changes["prefixes"] = [begin if p.is_first and i not in without else "" for i, p in enumerate(parts)]
        if self.glossary is not None:
            find = self.glossary.find
            changes["must_include"] = [[] if i in without else find(str(p.text)) for i, p in enumerate(parts)]
        return _replace(self.options, changes)


def choose_batch(beam: int) -> int:
    """The number of lines that are run before any is written: fewer with a wide beam, which takes long for each."""
    return max(min(BATCH, BATCH * 8 // beam), 1)


def _join_engines(model: RunsTexts, others: Sequence[Model]) -> Engine:
    """An engine whose models average their probabilities."""
    from regard.engine.torch_engine import TorchEngine  # which needs torch

    return TorchEngine(*(net for each in (model, *others) for net in each.engine.nets))


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error is torch's or Python's way to say that memory is short."""
    named = type(error).__name__ == "OutOfMemoryError"  # torch's own, without importing torch
    return isinstance(error, MemoryError) or named or "can't allocate memory" in str(error)


def _cut_options(options: RunOptions, start: int, stop: int) -> RunOptions:
    """The options of a part of a batch."""
    changes: dict[str, object] = {"first": options.first + start}
    for name in PER_INPUT:
        rows = getattr(options, name, None)
        if rows is not None:
            changes[name] = rows[start:stop]
    return _replace(options, changes)


def _replace(options: RunOptions, changes: Mapping[str, object]) -> RunOptions:
    """The options with changed fields; which fields there are depends on the task."""
    return type(options)(**{**vars(options), **changes})


def _open_glossary(given: Glossary | Mapping[str, str] | str | Path | None) -> Glossary | None:
    if given is None or isinstance(given, Glossary):
        return given
    return Glossary(given.items()) if isinstance(given, Mapping) else Glossary.load(given)


def _is_blank(given: object) -> bool:
    return isinstance(given, str) and not given.strip()


def _find_apart(
    find: Callable[[list[object]], list[int]], inputs: Sequence[object], which: Sequence[int], faults: dict[int, str]
) -> list[int]:
    """Return the indices in `which` that `find` reports; record inputs that make it fail in `faults`."""
    if not which:
        return []
    try:
        return [which[j] for j in find([inputs[i] for i in which])]
    except DataError as error:
        if len(which) == 1:
            faults[which[0]] = str(error)
            return []
    half = len(which) // 2
    return [i for some in (which[:half], which[half:]) for i in _find_apart(find, inputs, some, faults)]


def _join(given: object, parts: Sequence[_Part], outputs: Sequence[Sequence[Output]]) -> list[Output]:
    for each in outputs:
        if each and each[0].error is not None:
            return [each[0]]
    return (
        list(outputs[0]) if len(parts) == 1 else join_outputs(str(given), [str(part.text) for part in parts], outputs)
    )


def _batched(inputs: Iterable[T], count: int) -> Iterator[list[T]]:
    """Inputs in lists of `count`, or of fewer if they are long."""
    held, characters = list[T](), 0
    for given in inputs:
        held.append(given)
        characters += len(given) if isinstance(given, str) else 0
        if len(held) == count or characters >= BATCH_CHARACTERS:
            yield held
            held, characters = [], 0
    if held:
        yield held
