"""Code completion: continue source code at a cursor.

A language model of source files that also learns to fill in the middle, so that it reads what comes after a cursor as well as
what comes before (Bavarian et al. 2022). Tokens are bytes and merges of them, so that indentation and line ends are kept.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from regard.data.batch import IGNORE, Batch, next_token_batch
from regard.data.bptt import TokenStream
from regard.data.cursor import Cursor
from regard.data.document_parts import survey
from regard.data.document_store import HeldDocuments
from regard.data.example_rng import ExampleRng, Rng
from regard.data.fill_in_the_middle import NAMES, FillInTheMiddle, Ids, Order, Parts, Sentinels, draw_cuts, split_tokens
from regard.data.packing import Packed
from regard.data.pair_reader import OnBad
from regard.data.python_tokens import Spans, cover_tokens, find_line_cuts, find_tokens
from regard.data.ragged import Ragged
from regard.data.source_files import (
    SourceFile,
    describe_bad,
    hold_out_files,
    list_library,
    list_sources,
    name_files,
    read_sources,
)
from regard.decode import Draw, Engine, Search
from regard.decode.ensemble import compute_log_probs
from regard.errors import DataError, SpecError
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.spec import Count, Plain, spec
from regard.tasks.common.encoded_documents import StorePlace
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.losses import observing_predictions
from regard.tasks.common.task import TASKS, Dataset, EvalSet, Loss, Output, RunOptions, check_pairs
from regard.tasks.common.text_corpus import Texts
from regard.tasks.lm import CausalTask, LmData
from regard.text import ByteBpe, Normalize, Tokenizer, TokenizerSpec

ROUND = 16
"""Number of tokens that are written at a time where a completion ends with its line: most lines are shorter."""
CHARACTERS = 32
"""Characters of a text that are encoded per token of the context: more than a token usually has."""


@spec
class CodeData(LmData):
    """The `data` part of a recipe: source files, and how the model learns to complete them."""

    train: tuple[str, ...] = ()
    """Files, and folders of files; without any, the standard library of this Python."""
    hold_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the files held out for validation if none are named for it; always whole files, chosen by their names."""
    suffixes: tuple[str, ...] = (".py",)
    """Endings of the names of source files in a folder."""
    on_bad: OnBad = "error"
    """A file that is not UTF-8 text stops everything (`error`), or is left out and counted (`drop`)."""
    tokenizer: TokenizerSpec = ByteBpe(
        vocab=4096, normalize=Normalize(unicode="none", spaces=False), leading_space=False
    )
    context: Count = 256
    fim: FillInTheMiddle = FillInTheMiddle()
    """Training to fill in the middle: to read what comes after a cursor."""
    lines: Count = 100
    """Number of lines whose rest is completed to score the model: exact match and edit similarity."""
    metrics: tuple[str, ...] = ("loss", "token_accuracy", "exact", "edit_similarity")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.documents != "file":
            raise SpecError(f"data.documents: code is learned file by file, got {self.documents!r}; leave it out")
        if self.stream and self.fim.rate:
            raise SpecError("data.stream only reads from left to right; set data.fim.rate to 0, or leave out stream")


@dataclasses.dataclass(frozen=True)
class CodeRows(Packed):
    """Windows of source code, with what is drawn in training and what is counted in evaluation."""

    rng: ExampleRng | None = None
    """Chooses the windows that are rearranged; None: no window."""
    tokens: Spans | None = None
    """The pieces of each token of Python, as places among all ids; None: they are not counted."""


@dataclasses.dataclass(frozen=True)
class CodeBatch(Batch):
    """A batch with the tokens of Python whose pieces it predicts."""

    spans: Spans
    """Row, first column and the column after the last of each token, (k, 3)."""
    cut: NDArray[np.int64]
    """For each row the number of tokens that begin in an earlier window, which count as wrong, (b,)."""


class TokenCounts:
    """Observes predictions: for each row of a batch how many tokens of Python are right, and how many there are."""

    def __init__(self, batch: CodeBatch) -> None:
        self.batch, self.counts = batch, np.zeros((len(batch.cut), 2))
        self.counts[:, 1] = batch.cut

    def __call__(self, row: int, logits: Tensor, targets: Tensor) -> None:
        wrong = (logits.argmax(-1) != targets).cpu().numpy()
        before = np.concatenate([[0], np.cumsum(wrong)])  # every position of a row has a target, up to its end
        _, first, last = self.batch.spans[self.batch.spans[:, 0] == row].T
        self.counts[row] += (int((before[first] == before[last]).sum()), len(first))


@dataclasses.dataclass(frozen=True)
class CodeOptions(RunOptions):
    """Options of a completion at a cursor."""

    lines: int | None = None
    """Maximum number of lines; None: one, or until the model ends the middle if it knows what comes after."""
    order: Order | None = None
    """Order of both sides: suffix first (`spm`, the default if it learned that), or prefix first (`psm`)."""


@TASKS.add
class Code(CausalTask[CodeData]):
    """A decoder that completes source code."""

    Settings = CodeData
    Options = CodeOptions

    def __init__(self, settings: CodeData, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        self._front, self._back, self._context = [tokenizer.bos], [tokenizer.eos], settings.context
        self._banned = [tokenizer.unk, *(tokenizer.tag(name) for name in NAMES if name in tokenizer.tags)]
        if tokenizer.decode([*tokenizer.encode("if a:"), *tokenizer.encode("\n    b")]) != "if a:\n    b":
            raise SpecError(
                "completing code needs a tokenizer that keeps every space, wherever a text is cut; use data.tokenizer: "
                "{kind: byte_bpe, leading_space: false, normalize: {unicode: none, spaces: false}}"
            )
        missing = [name for name in NAMES if name not in tokenizer.tags]
        if missing and settings.fim.rate:
            raise SpecError(
                f"this vocabulary has no {', '.join(missing)}; set data.fim.rate to 0, or start from a model of code"
            )
        tag, eos = tokenizer.tag, tokenizer.eos
        self.sentinels = None if missing else Sentinels(tag(NAMES[0]), tag(NAMES[1]), tag(NAMES[2]), eos)

    @property
    def infills(self) -> bool:
        """True if the model reads what comes after a cursor."""
        return self.sentinels is not None and self.settings.fim.rate > 0

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def read(cls, settings: CodeData, seed: int) -> Dataset:
        found, bad = cls._read_files(settings, settings.train)
        if settings.valid:
            held, worse = cls._read_files(settings, settings.valid)
            train, valid, bad = [*found.values()], [*held.values()], [*bad, *worse]
        else:
            train, valid = hold_out_files(found, settings.hold_out)
        texts, aside = survey(HeldDocuments(train), HeldDocuments(valid))
        statistics = {
            "train": {"characters": texts.characters, "distinct": texts.distinct, "documents": len(train)},
            "valid": {"characters": aside.characters, "documents": len(valid)},
        }
        names = name_files([Path(path).name for path in settings.train])
        names = names or f"the standard library of Python {sys.version_info.major}.{sys.version_info.minor}"
        told = (
            f"{names}: {len(train):,} files of {texts.characters:,} characters for training, {len(valid):,} of "
            f"{aside.characters:,} for validation"
        )
        raw = Texts(train, training=True), Texts(valid)
        return Dataset(*raw, aside.fingerprint, statistics, [told, *describe_bad(bad)])

    @classmethod
    def read_test(cls, settings: CodeData, files: Sequence[str]) -> Texts:
        return Texts([*cls._read_files(settings, files)[0].values()])

    @classmethod
    def _read_files(cls, settings: CodeData, paths: Sequence[str]) -> tuple[dict[SourceFile, str], list[str]]:
        found = list_sources(paths, settings.suffixes) if paths else list_library()
        return read_sources(found, drop_bad=settings.on_bad == "drop")

    @classmethod
    def special_tokens(cls, settings: CodeData) -> Sequence[str]:
        return NAMES  # also without fill-in-the-middle: models with and without it share a vocabulary

    def encode_texts(self, raw: Texts, place: StorePlace) -> Packed | TokenStream:
        rows = super().encode_texts(raw, place)
        if not isinstance(rows, Packed):  # a stream
            return rows
        found = CodeRows(rows.windows, rows.rows)
        return found if raw.training else dataclasses.replace(found, tokens=self._locate_tokens(raw, found))

    def _locate_tokens(self, raw: Texts, rows: CodeRows) -> Spans:
        """The pieces of each token of Python, as places among all ids."""
        out, ends = [np.empty((0, 2), np.int64)], rows.windows.texts.ends
        for text, begin, end in zip(raw.documents, (0, *ends[:-1].tolist()), ends.tolist(), strict=True):
            ((_, pieces),) = self.tokenizer.encode_with_offsets([text])
            if len(pieces) == end - begin - len(self._front) - len(self._back):
                out.append(cover_tokens(find_tokens(text), pieces) + begin + len(self._front))
        return np.concatenate(out)

    # ------------------------------------------------------------------------------------------------ to the model

    def augment(self, examples: Packed | TokenStream, seed: int, epoch: int) -> Packed | TokenStream:
        if isinstance(examples, CodeRows) and self.infills:
            return dataclasses.replace(examples, rng=ExampleRng(seed, epoch))
        return examples

    def batch(self, examples: Packed | TokenStream, indices: NDArray[np.int64]) -> Batch:
        if not isinstance(examples, CodeRows):
            return super().batch(examples, indices)
        starts, lengths, counts = examples.locate(indices)
        ids = examples.windows.ids
        if examples.rng is not None and self.sentinels is not None:
            total = np.add.reduceat(lengths, np.cumsum(counts) - counts)
            spare = np.repeat((self.settings.context - total) // counts, counts)  # what the row has left for each
            places = zip(starts.tolist(), (starts + lengths + 1).tolist(), spare.tolist(), strict=True)
            draw, sentinels, rng = self.settings.fim.draw, self.sentinels, examples.rng
            drawn = Ragged.of(
                [
                    draw(ids[start:stop].tolist(), rng.of(start), self._split, sentinels, stop - start + more)
                    for start, stop, more in places
                ]
            )
            sizes = drawn.lengths.astype(np.int64)
            return next_token_batch(drawn.ids, drawn.ends - sizes, sizes - 1, self.tokenizer.pad, counts)
        made = next_token_batch(ids, starts, lengths, self.tokenizer.pad, counts)
        if examples.tokens is None:
            return made
        spans, cut = _place_tokens(examples.tokens, starts, lengths, counts)
        return CodeBatch(made.given, made.wanted, None, made.tokens, spans, cut)

    def _split(self, ids: Ids, rng: Rng) -> Parts:
        """Cut a window in two random places; between characters, each part is encoded by itself."""
        first, last = int(ids[0] == self.tokenizer.bos), len(ids) - int(ids[-1] == self.tokenizer.eos)
        text = self.tokenizer.decode(ids[first:last])
        if self.settings.fim.split == "tokens" or "\ufffd" in text:  # a window may begin inside a character
            return split_tokens(ids, rng)
        start, stop = draw_cuts(len(text), rng)
        prefix, middle, suffix = self.tokenizer.encode_all([text[:start], text[start:stop], text[stop:]])
        return [*ids[:first], *prefix], middle, [*suffix, *ids[last:]]

    def loss(self, net: Net, batch: Batch, smoothing: float) -> Loss:
        if net.training or not isinstance(batch, CodeBatch):
            return super().loss(net, batch, smoothing)
        counter = TokenCounts(batch)
        with observing_predictions(counter):
            loss = super().loss(net, batch, smoothing)
        return dataclasses.replace(loss, rows={**loss.rows, "token_accuracy": torch.from_numpy(counter.counts)})

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self,
        engine: Engine,
        inputs: Sequence[str | Cursor],
        search: Search,
        options: RunOptions = CodeOptions(),
    ) -> list[list[Output]]:
        """The continuation of each text, and the completion at each cursor."""
        out = list[list[Output]]()
        for _, group in groupby(inputs, type):
            its, some = dataclasses.replace(options, first=options.first + len(out)), list(group)
            if cursors := [each for each in some if isinstance(each, Cursor)]:
                out += self._complete(engine, cursors, search, its)
            else:
                out += super().run(engine, [each for each in some if isinstance(each, str)], search, its)
        return out

    def _complete(
        self, engine: Engine, cursors: Sequence[Cursor], search: Search, options: RunOptions
    ) -> list[list[Output]]:
        """The completion at each cursor, in rounds: a line may end long before the limit of tokens."""
        own = options if isinstance(options, CodeOptions) else CodeOptions(options.first)
        most, _ = self._limits(engine, search)
        room = self.limit_room(engine.room)
        prompts = [self._prompt(cursor, room, most, own.order) for cursor in cursors]
        lines = [own.lines if self._reads_after(cursor) else own.lines or 1 for cursor in cursors]
        written, totals = [list[int]() for _ in cursors], [0.0] * len(cursors)
        texts, active, done = [""] * len(cursors), list(range(len(cursors))) if most else [], 0
        while active:
            left = min([most - done, *(ROUND for i in active if lines[i])])
            draw = Draw([options.first + i for i in active], done)
            read = [prompts[i] + written[i] for i in active]
            asked = [min(left, room - len(prompt) + 1) for prompt in read]
            found = engine.decode(self.ask(read, dataclasses.replace(search, max_extra=left), draw))
            done, going = done + left, list[int]()
            for i, (best,), wanted in zip(active, found, asked, strict=True):
                written[i] += best.tokens
                totals[i] += best.log_prob
                texts[i] = self.tokenizer.decode(written[i])
                full = texts[i].count("\n") >= (lines[i] or sys.maxsize)
                if not full and len(best.tokens) == wanted == left and done < most:
                    going.append(i)
            active = going
        return [
            [_make_output(text, limit, total, search.divisor(max(len(ids), 1)))]
            for text, limit, total, ids in zip(texts, lines, totals, written, strict=True)
        ]

    def _reads_after(self, cursor: Cursor) -> bool:
        return self.infills and cursor.after is not None

    def limit_room(self, room: int | None) -> int:
        """The context of training, also for models without a limit: reading takes time that grows with its square."""
        return min(room or self.settings.context, self.settings.context)

    def frame(self) -> Plain | None:
        return {**(super().frame() or {}), "context": self.settings.context}

    def _prompt(self, cursor: Cursor, room: int, reserve: int, order: Order | None = None) -> list[int]:
        """Return the prompt at a cursor: the text around it, as far as `reserve` tokens, or half of the room, stay free."""
        space = room - min(reserve, room // 2)
        before = self._encode_end(cursor.before, room)
        if not self._reads_after(cursor) or self.sentinels is None:
            return before[-space:]
        space = max(space - len(NAMES), 2)
        after = self._encode_start(cursor.after or "", room)
        behind = min(len(after), max(space // 3, space - len(before)))  # a third, or what the text before leaves
        order = self.settings.fim.choose_order(order)
        return self.sentinels.prompt(before[-(space - behind) :], after[:behind], order)

    def _encode_end(self, text: str, room: int, output: str = "") -> list[int]:
        """The last tokens of a text with the output after it; with the start mark if the whole text is encoded."""
        near = text[-room * CHARACTERS :]
        return [*(self._front if near == text else []), *self.tokenizer.encode(near + output)]

    def _encode_start(self, text: str, room: int) -> list[int]:
        """The first tokens of a text; with the end mark if the whole text is encoded."""
        near = text[: room * CHARACTERS]
        return [*self.tokenizer.encode(near), *(self._back if near == text else [])]

    def score(
        self,
        engine: Engine,
        inputs: Sequence[str | Cursor],
        outputs: Sequence[str],
        options: RunOptions = CodeOptions(),
    ) -> list[float]:
        """log P(output | input) of each pair; the input is a text, or what is around a cursor."""
        check_pairs(inputs, outputs)
        return [self._score(engine, given, output, options) for given, output in zip(inputs, outputs, strict=True)]

    def _score(self, engine: Engine, given: str | Cursor, output: str, options: RunOptions) -> float:
        if not isinstance(given, Cursor):
            return super().score(engine, [given], [output], options)[0]
        ids, written = self._join(engine.room, given, output, options)
        net = engine.nets[0]
        tokens = torch.tensor([ids], device=net.device)
        with torch.no_grad():
            stream = net(tokens, Coords.span(len(ids), device=net.device))[0]
            told = compute_log_probs(net, stream[len(ids) - written - 1 : -1])
        return float(told.gather(1, tokens[0, len(ids) - written :, None]).double().sum())

    def _join(self, room: int | None, cursor: Cursor, output: str, options: RunOptions) -> tuple[list[int], int]:
        """The tokens around a cursor and those of what is written there, and the number of the latter.

        If what comes after is not read, text and output are encoded together: a word may continue after the cursor.
        """
        order = options.order if isinstance(options, CodeOptions) else None
        space, tokens = self.limit_room(room), self.tokenizer.encode(output)
        if len(tokens) > space // 2:
            raise DataError(
                f"the model has room for {space // 2} tokens at a cursor, got {len(tokens)}; give less text"
            )
        if self._reads_after(cursor):
            return [*self._prompt(cursor, space, len(tokens), order), *tokens], len(tokens)
        alone, whole = self._encode_end(cursor.before, space), self._encode_end(cursor.before, space, output)
        shared = next((i for i, (a, b) in enumerate(zip(alone, whole, strict=False)) if a != b), len(alone))
        written = len(whole) - max(shared, 1)
        return whole[-max(space, written + 1) :], written

    def forward_pass(
        self, net: Net, text: str | Cursor, output: str, options: RunOptions = CodeOptions()
    ) -> ForwardPass:
        """The text with its output, or what is around a cursor with what is written there."""
        if not isinstance(text, Cursor):
            return super().forward_pass(net, text, output, options)
        ids, written = self._join(net.spec.room, text, output, options)
        wanted = [*(token if i >= len(ids) - written else IGNORE for i, token in enumerate(ids[1:], 1)), IGNORE]
        return ForwardPass.of(net, ids, wanted, tokenizer=self.tokenizer)

    def eval_sets(self, raw: Texts) -> list[EvalSet]:
        """Lines to complete from a random token on, the same in every run; none if no line can be cut."""
        cuts = [
            (document, *cut)
            for document, text in enumerate(raw.documents)
            for cut in find_line_cuts(text, find_tokens(text))
        ]
        by_line = [list(group) for _, group in groupby(cuts, lambda cut: cut[:2])]
        rng = Rng(0)
        chosen = sorted(rng.permutation(len(by_line))[: self.settings.lines].tolist())
        inputs, references = list[Cursor](), list[str]()
        for document, _, place, end in (by_line[i][rng.integer(len(by_line[i]))] for i in chosen):
            text = raw.documents[document]
            inputs.append(Cursor(text[:place], text[end:]))
            references.append(text[place:end])
        return [EvalSet(inputs, references, CodeOptions(lines=1))] if inputs else []


def _make_output(text: str, lines: int | None, log_prob: float, divisor: float) -> Output:
    """A completion of at most so many lines; the log-probability of one that was cut is not known."""
    kept = text if lines is None else "\n".join(text.split("\n")[:lines])
    kept = kept if kept == text else kept.removesuffix("\r")
    return Output(kept, log_prob / divisor, log_prob) if kept == text else Output(kept)


def _place_tokens(
    tokens: Spans, starts: NDArray[np.int64], lengths: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[Spans, NDArray[np.int64]]:
    """Return the places in the batch of tokens that end in these windows, and how many begin before."""
    spans, cut = [np.empty((0, 3), np.int64)], np.zeros(len(counts), np.int64)
    row_of = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(lengths) - lengths
    before -= np.repeat(before[np.cumsum(counts) - counts], counts)  # columns of the row that other windows have
    for row, start, length, column in zip(
        row_of.tolist(), starts.tolist(), lengths.tolist(), before.tolist(), strict=True
    ):
        ends = np.searchsorted(
            tokens[:, 1], [start + 2, start + length + 2]
        )  # the targets are start + 1 … start + length
        here = tokens[ends[0] : ends[1]]
        whole = here[here[:, 0] > start]
        cut[row] += len(here) - len(whole)
        places = whole - (start + 1) + column
        spans.append(np.column_stack([np.full(len(whole), row), places]))
    return np.concatenate(spans), cut
