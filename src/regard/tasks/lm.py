"""Language modeling: predict the next token of a text.

Learned from plain text (Bengio et al. 2003; Radford et al. 2018).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batch import IGNORE, Batch, next_token_batch, stream_batch
from regard.data.bptt import TokenStream
from regard.data.bucket import POOL, EqualBatches
from regard.data.packing import Packed
from regard.data.windows import Windows
from regard.decode import Engine
from regard.decode.ensemble import compute_log_probs
from regard.errors import DataError, SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Classes, Vector
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.nn.core.state import State
from regard.spec import Count, Plain, spec
from regard.stopping import rest
from regard.tasks.common.data_settings import check_metrics
from regard.tasks.common.encoded_documents import StorePlace, encode_documents
from regard.tasks.common.example_names import quote_examples
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.lm_frame import LmFrame
from regard.tasks.common.losses import sequence_loss
from regard.tasks.common.task import TASKS, BatchOrder, Loss, RunOptions, TextSide, check_pairs
from regard.tasks.common.text_corpus import CorpusTask, TextData, Texts
from regard.tasks.common.training_hooks import TOKENS, bucket
from regard.text import Chars, Normalize, Template, Tokenizer, TokenizerSpec


@spec
class LmData(TextData):
    """The `data` part of a recipe: text files, and the context of the model."""

    tokenizer: TokenizerSpec = Chars(normalize=Normalize(unicode="none", spaces=False))
    context: Count = 64
    stride: Count | None = None
    """Tokens from one window to the next; by default a quarter of the context."""
    pack: bool = True
    """Short documents share a row; no token sees another document than its own."""
    stream: bool = False
    """Rows continue from batch to batch with the model's memory, for a model whose memory is bounded."""
    metrics: tuple[str, ...] = ("loss",)

    def __post_init__(self) -> None:
        check_metrics(self.metrics)


@dataclasses.dataclass(frozen=True)
class EqualRows:
    """Batches of equally many rows, in another random order in every epoch."""

    count: int
    rows: int
    seed: int

    def epoch(self, epoch: int) -> EqualBatches:
        return EqualBatches(self.count, self.rows, self.seed, epoch)


L = TypeVar("L", bound=LmData)


class CausalTask(LmFrame, CorpusTask[L]):
    """A decoder that predicts the next token.

    A file that is one long text has neither start nor end mark, unless its tokenizer has a mark that begins every
    text; documents begin with the start mark and end with the end mark.
    """

    settings: L

    def __init__(self, settings: L, tokenizer: Tokenizer) -> None:
        whole = settings.documents == "file"
        opening = [] if tokenizer.template is None else tokenizer.template.opening
        super().__init__(tokenizer, opening if whole else [tokenizer.bos], [tokenizer.unk])
        self.settings, self._back = settings, [] if whole else [tokenizer.eos]

    @property
    def input_template(self) -> Template:
        """The special tokens before a text that is continued."""
        return self.tokenizer.surround(self._front, [])

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    # ------------------------------------------------------------------------------------------------ from data

    def model_arguments(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.size, "length": self.settings.context}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        if spec.encoder is not None or isinstance(spec.head, Classes | Vector):
            raise SpecError(
                "language modeling needs a model with a decoder alone and a head over tokens; use model.family: gpt"
            )
        return spec

    def encode_texts(self, raw: Texts, place: StorePlace) -> Packed | TokenStream:
        ids = encode_documents(raw.documents, self.tokenizer, place, self._front, self._back)
        context = self.settings.context
        if not len(Windows.of(ids, context=1, stride=1)):
            raise DataError("a text should have at least two tokens")
        if self.settings.stream:
            return TokenStream.of(ids, context)
        stride = (self.settings.stride or max(context // 4, 1)) if raw.training else context
        windows = Windows.of(ids, context=context, stride=stride)
        return Packed.of(windows, room=context) if self.settings.pack else Packed.alone(windows)

    # ------------------------------------------------------------------------------------------------ to the model

    @property
    def streaming(self) -> bool:
        return self.settings.stream

    def order_batches(
        self, examples: Packed | TokenStream, *, tokens: int | None, seed: int, evaluate: bool = False
    ) -> BatchOrder:
        """A stream is read in as many rows as fit, at least one segment each; in one row if no number is given."""
        if isinstance(examples, Packed):
            if self.settings.pack and len(examples) > POOL:  # nearly all rows are full
                return EqualRows(len(examples), max((tokens or TOKENS) // self.settings.context, 1), seed)
            return bucket(examples, tokens=tokens, seed=seed, evaluate=evaluate)
        return examples.rows(min(max((tokens or 0) // examples.context, 1), len(examples)), seed)

    def batch(self, examples: Packed | TokenStream, indices: NDArray[np.int64]) -> Batch:
        if isinstance(examples, TokenStream):
            return stream_batch(examples.ids, examples.docs, indices)
        starts, lengths, counts = examples.locate(indices)
        return next_token_batch(examples.windows.ids, starts, lengths, self.tokenizer.pad, counts)

    def describe_examples(self, examples: Packed | TokenStream, indices: NDArray[np.int64]) -> list[str]:
        side = self.batch(examples, indices).given
        return quote_examples(
            indices, (row[:n].numpy() for row, n in zip(side.ids, side.lengths, strict=True)), self.tokenizer
        )

    def loss(self, net: Net, batch: Batch, smoothing: float) -> Loss:
        tape, side = Tape(outer=net.tape), batch.given
        at = Coords.lengths(side.lengths) if side.documents is None else Coords.documents(side.documents)
        stream = net(side.ids, at.to(side.ids.device), tape=tape)
        return sequence_loss(net, stream, batch, smoothing, tape)

    def stream_loss(self, net: Net, batch: Batch, smoothing: float, state: State | None) -> Loss:
        """The loss of a stream's next batch, with the memory of the batches before."""
        tape, side = Tape(outer=net.tape), batch.given
        at = Coords.span(side.ids.shape[1], side.first, device=side.ids.device)
        if side.docs is not None:
            at = dataclasses.replace(at, doc=side.docs, first=None)
        before = net.start(len(side.ids), 0) if state is None else state
        stream, after = net.decode(side.ids, at, state=before, tape=tape)
        return sequence_loss(net, stream, batch, smoothing, tape, after)

    # ------------------------------------------------------------------------------------------------ to the user

    def frame(self) -> Plain | None:
        return {"kind": "lm", "front": [*self._front], "banned": [*self._banned]}

    def score(
        self, engine: Engine, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = RunOptions()
    ) -> list[float]:
        """log P(output | input), where the output directly follows the input.

        It covers the tokens of both together beyond those that they share with the input alone.
        """
        net = engine.nets[0]
        check_pairs(inputs, outputs)
        totals = []
        both = self._encode_prompts([text + output for text, output in zip(inputs, outputs, strict=True)])
        for number, (read, whole) in enumerate(zip(self._encode_prompts(inputs), both, strict=True), 1):
            if net.spec.room is not None and len(whole) > net.spec.room:
                raise DataError(
                    f"input {number} and its output have {len(whole):,} tokens, and the model reads {net.spec.room:,}; "
                    "shorten them"
                )
            rest()
            shared = next((i for i, (a, b) in enumerate(zip(read, whole, strict=False)) if a != b), len(read))
            before, after = whole[:shared], whole[shared:]
            ids = torch.tensor([(before or [self.tokenizer.bos]) + after], device=net.device)
            with torch.no_grad():
                stream = net(ids, Coords.span(ids.shape[1], device=net.device))[0]
                told = compute_log_probs(net, stream[len(stream) - len(after) - 1 : -1])
            totals.append(float(told.gather(1, ids[0, len(stream) - len(after) :, None]).double().sum()))
        return totals

    def forward_pass(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> ForwardPass:
        """The text with its output, whose tokens are predicted; every token of the text, if there is no output.

        A model with a memory reads a long text in segments: the last is looked at, the others are in its memory.
        """
        whole, prompt = self._encode_prompts([text + output, text])
        ids = self._truncate(whole, net.spec.room)
        given = next((i for i, (a, b) in enumerate(zip(whole, prompt, strict=False)) if a != b), len(prompt))
        first = max(given - (len(whole) - len(ids)) if output else 1, 1)
        wanted = [*(token if i >= first else IGNORE for i, token in enumerate(ids[1:], 1)), IGNORE]
        begin = (len(ids) - 1) // self.settings.context * self.settings.context if self.streaming else 0
        read = ForwardPass.of(net, ids[begin:], wanted[begin:], tokenizer=self.tokenizer)
        if begin <= 0:
            return read
        size = self.settings.context
        return read.after_segments([ids[i : i + size] for i in range(0, begin, size)], self.tokenizer)

    def list_texts(self, raw: Texts) -> list[TextSide]:
        return [dataclasses.replace(side, written=True) for side in super().list_texts(raw)]


@TASKS.add
class Lm(CausalTask[LmData]):
    """A decoder that continues a text."""

    Settings = LmData
