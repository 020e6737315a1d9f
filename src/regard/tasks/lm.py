"""Language modelling: what comes next in a text, learned from nothing but texts (Bengio et al. 2003; Radford et al. 2018)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batch import Batch, next_token_batch, stream_batch
from regard.data.bptt import TokenStream
from regard.data.packing import Packed
from regard.data.ragged import Ragged
from regard.data.windows import Windows
from regard.decode import Constraints, Draw, Search, SpecialTokens, generate, stream_tokens
from regard.decode.ensemble import compute_log_probs
from regard.decode.stream_text import stream_text
from regard.errors import DataError, SpecError
from regard.metrics import METRICS
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Classes, Vector
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.nn.core.state import State
from regard.spec import Count, spec
from regard.tasks.common.capabilities import bucket
from regard.tasks.common.encoder_input import Attention
from regard.tasks.common.example_names import by_text
from regard.tasks.common.losses import sequence_loss
from regard.tasks.common.task import TASKS, BatchOrder, EvalSet, Loss, Output, RunOptions
from regard.tasks.common.text_corpus import FromTexts, TextData, Texts
from regard.text import Chars, Normalize, Tokenizer, TokenizerSpec


@spec
class LmData(TextData):
    """The `data` part of a recipe: text files, and how far the model sees."""

    tokenizer: TokenizerSpec = Chars(normalize=Normalize(unicode="none", spaces=False))
    context: Count = 64
    stride: Count | None = None
    """Tokens from one window to the next; without it, a quarter of the context."""
    pack: bool = True
    """Short documents share a row; no token sees another document than its own."""
    stream: bool = False
    """Rows go on from batch to batch, and the model remembers what it read before; for one whose memory has an end."""
    metrics: tuple[str, ...] = ("loss",)

    def __post_init__(self) -> None:
        for name in self.metrics:
            METRICS[name]


@TASKS.add
class Lm(FromTexts):
    """A decoder that reads a text and says what comes next.

    A file that is one long text has neither beginning nor end, unless its tokenizer came with a mark to begin texts with;
    documents begin with the start mark and end with the end mark.
    """

    Settings = LmData
    settings: LmData

    def __init__(self, settings: LmData, target: Tokenizer) -> None:
        self.settings, self.target = settings, target
        whole = settings.documents == "file"
        opening = [] if target.template is None else target.template.opening
        self._front, self._back = (opening, []) if whole else ([target.bos], [target.eos])

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    # ------------------------------------------------------------------------------------------------ from data

    def model_arguments(self) -> dict[str, Any]:
        return {"vocab": self.target.size, "length": self.settings.context}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        if spec.encoder is not None or isinstance(spec.head, Classes | Vector):
            raise SpecError(
                "to go on with a text a model has a decoder alone, and writes tokens; use model.family: gpt"
            )
        return spec

    def encode(self, raw: Texts) -> Packed | TokenStream:
        ids = Ragged.of([[*self._front, *ids, *self._back] for ids in self.target.encode_all(raw.documents)])
        if int(ids.lengths.max(initial=0)) < 2:
            raise DataError("a text should have at least two tokens, so that one follows another")
        context = self.settings.context
        if self.settings.stream:
            return TokenStream.of(ids, context)
        stride = (self.settings.stride or max(context // 4, 1)) if raw.learn else context
        windows = Windows.of(ids, context=context, stride=stride)
        return Packed.of(windows, room=context) if self.settings.pack else Packed.alone(windows)

    # ------------------------------------------------------------------------------------------------ to the model

    @property
    def streaming(self) -> bool:
        return self.settings.stream

    def order_batches(
        self, examples: Packed | TokenStream, *, tokens: int | None, seed: int, evaluate: bool = False
    ) -> BatchOrder:
        """A stream is read in as many rows as fit, each of a segment at least; where nobody says how many, in one."""
        if not isinstance(examples, TokenStream):
            return bucket(examples, tokens=tokens, seed=seed, evaluate=evaluate)
        return examples.rows(min(max((tokens or 0) // examples.context, 1), len(examples)), seed)

    def batch(self, examples: Packed | TokenStream, indices: NDArray[np.int64]) -> Batch:
        if isinstance(examples, TokenStream):
            return stream_batch(examples.ids, examples.docs, indices)
        rows, windows = examples.rows.take(indices), examples.windows
        return next_token_batch(
            windows.ids, windows.starts[rows.ids], windows.lengths[rows.ids], self.target.pad, rows.lengths
        )

    def describe_examples(self, examples: Packed | TokenStream, indices: NDArray[np.int64]) -> list[str]:
        side = self.batch(examples, indices).given
        return by_text(indices, (row[:n].numpy() for row, n in zip(side.ids, side.lengths, strict=True)), self.target)

    def loss(self, net: Net, batch: Batch, smoothing: float) -> Loss:
        tape, side = Tape(), batch.given
        at = Coords.lengths(side.lengths) if side.documents is None else Coords.documents(side.documents)
        stream = net(side.ids, at.to(side.ids.device), tape=tape)
        return sequence_loss(net, stream, batch, smoothing, tape)

    def stream_loss(self, net: Net, batch: Batch, smoothing: float, state: State | None) -> Loss:
        """Of a stream's next batch, by a model that remembers those before."""
        tape, side = Tape(), batch.given
        at = Coords.span(side.ids.shape[1], side.first, device=side.ids.device)
        if side.docs is not None:
            at = dataclasses.replace(at, doc=side.docs, first=None)
        before = net.start(len(side.ids), 0) if state is None else state
        stream, after = net.decode(side.ids, at, state=before, tape=tape)
        return sequence_loss(net, stream, batch, smoothing, tape, after)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self, nets: Sequence[Net], inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """What follows each input, which is not repeated. A model that is full goes on from the later half of what it saw.

        Where tokens are drawn they depend on the seed and on the number of the input, counted from `options.first`.
        """
        most, room = self._limits(nets, search)
        prompts, written = self._begun(inputs), [list[int]() for _ in inputs]
        totals = [0.0] * len(prompts)
        active = list(range(len(prompts))) if most else []
        while active:
            left = most - min(len(written[i]) for i in active)
            now = [i for i in active if len(written[i]) == most - left]  # the others wait for these
            read = [self._read(prompts[i] + written[i], room) for i in now]
            found = generate(
                nets, read, dataclasses.replace(search, max_extra=left), SpecialTokens.of(self.target),
                constraints=Constraints(banned=[self.target.unk]), draw=Draw([options.first + i for i in now], most - left),
            )  # fmt: skip
            for i, prompt, (best,) in zip(now, read, found, strict=True):
                written[i] += best.tokens
                totals[i] += best.log_prob
                asked = left if room is None else min(left, room - len(prompt) + 1)
                if len(best.tokens) < asked or len(written[i]) >= most:
                    active.remove(i)
        return [
            [Output(self._after(text, prompt, ids), total / search.divisor(max(len(ids), 1)), total)]
            for text, prompt, ids, total in zip(inputs, prompts, written, totals, strict=True)
        ]

    def stream(
        self, nets: Sequence[Net], text: str, search: Search, options: RunOptions = RunOptions()
    ) -> Iterator[str]:
        """The continuation of one text in pieces, as they are generated."""
        most, room = self._limits(nets, search)
        (prompt,) = self._begun([text])

        def tokens() -> Iterator[int]:
            written: list[int] = []
            while len(written) < most:
                before, left = len(written), most - len(written)
                read = self._read(prompt + written, room)
                for token in stream_tokens(
                    nets, read, dataclasses.replace(search, max_extra=left), SpecialTokens.of(self.target),
                    constraints=Constraints(banned=[self.target.unk]), draw=Draw([options.first], before),
                ):  # fmt: skip
                    written.append(token)
                    yield token
                asked = left if room is None else min(left, room - len(read) + 1)
                if len(written) - before < asked:
                    return

        return stream_text(tokens(), lambda ids: self._after(text, prompt, ids))

    def _limits(self, nets: Sequence[Net], search: Search) -> tuple[int, int | None]:
        """The number of tokens to write, and how many the models can see; None: any number."""
        if search.n_best > 1:
            raise SpecError(
                f"a text goes on in one way here, got n_best={search.n_best}; for more, draw with sample and other seeds"
            )
        most = search.max_extra if search.max_length is None else min(search.max_extra, search.max_length)
        rooms = [net.spec.room for net in nets]
        return most, min((room for room in rooms if room is not None), default=None)

    def score(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], options: RunOptions = RunOptions()
    ) -> list[float]:
        """log P(output | input), where the output comes right after the input.

        It is of the tokens that both together have beyond those that they share with the input alone.
        """
        if len(inputs) != len(outputs):
            raise DataError(f"as many outputs as inputs are needed, got {len(outputs)} for {len(inputs)}")
        totals = []
        both = self._begun([text + output for text, output in zip(inputs, outputs, strict=True)])
        for read, whole in zip(self._begun(inputs), both, strict=True):
            shared = next((i for i, (a, b) in enumerate(zip(read, whole, strict=False)) if a != b), len(read))
            before, after = whole[:shared], whole[shared:]
            ids = torch.tensor([(before or [self.target.bos]) + after], device=net.device)
            with torch.no_grad():
                stream = net(ids, Coords.span(ids.shape[1], device=net.device))[0]
                told = compute_log_probs(net, stream[len(stream) - len(after) - 1 : -1])
            totals.append(float(told.gather(1, ids[0, len(stream) - len(after) :, None]).double().sum()))
        return totals

    def attention(self, net: Net, text: str, output: str, options: RunOptions = RunOptions()) -> Attention:
        """Attention weights (h, n, n) by place for the text with its output."""
        ids, tape = self._read(self._begun([text + output])[0], net.spec.room), Tape("*.weights")
        with torch.no_grad():
            net(torch.tensor([ids], device=net.device), Coords.span(len(ids), device=net.device), tape=tape)
        labels = self.target.tokens(ids)
        return {name.removesuffix(".weights"): w[0].cpu() for name, w in tape.kept.items()}, labels, labels

    def eval_sets(self, raw: Texts) -> list[EvalSet]:
        return []

    def _begun(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts as beginnings of documents; a tokenizer from elsewhere may want something before every text."""
        template = self.target.template
        front = self._front or ([] if template is None else template.opening)
        return [[*front, *ids] for ids in self.target.encode_all(texts)]

    def _after(self, text: str, prompt: list[int], ids: list[int]) -> str:
        """What tokens say after a prompt: they alone would not tell whether a space comes first."""
        before, whole = self.target.decode(prompt), self.target.decode(prompt + ids)
        said = next((said for said in (text, before) if whole.startswith(said)), None)
        return self.target.decode(ids) if said is None else whole[len(said) :]

    def _read(self, ids: list[int], room: int | None) -> list[int]:
        """What the model reads: all of it, or where that would fill it the last half of what it can see; never nothing."""
        ids = ids if room is None or len(ids) <= room else ids[-max(room // 2, 1) :]
        return ids or [self.target.bos]
