"""Language modelling: what comes next in a text, learned from nothing but texts (Bengio et al. 2003; Radford et al. 2018)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from regard.data.batch import Batch, next_tokens
from regard.data.ragged import Ragged
from regard.data.sources import read_text
from regard.data.windows import Windows, text_fingerprint
from regard.decode import Search, generate
from regard.decode.steps import log_probs
from regard.errors import DataError
from regard.model.model import Net
from regard.nn.context import Tape
from regard.nn.coords import Coords
from regard.spec import Count, Spec, spec
from regard.tasks.metrics import METRICS
from regard.tasks.task import TASKS, Advice, Loss, Output, Raw, Trial
from regard.text import Chars, Normalize, Tokenizer, TokenizerSpec

FILE = "tokenizer.json"


@spec
class LmData(Spec):
    """The `data` part of a recipe: text files, and how far the model sees."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    aside: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The last part of each text, kept for validation where no validation files are given."""
    tokenizer: TokenizerSpec = Chars(normalize=Normalize(unicode="none", spaces=False))
    context: Count = 64
    stride: Count | None = None
    """Tokens from one window to the next; without it, a quarter of the context."""
    metrics: tuple[str, ...] = ("loss",)

    def __post_init__(self) -> None:
        for name in self.metrics:
            METRICS[name]


@dataclasses.dataclass(frozen=True)
class Texts:
    """Whole texts, and how windows are laid over them."""

    texts: tuple[str, ...]
    stride: int


class Lm:
    """A decoder that reads a text and says what comes next."""

    Settings = LmData

    def __init__(self, settings: LmData, target: Tokenizer) -> None:
        self.settings, self.target = settings, target

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def given(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, Any]:
        named = {"train": list(files), "valid": []} if files else {}
        return {**named, "valid": list(valid)} if valid else named

    @classmethod
    def gather(cls, settings: LmData, files: Sequence[str]) -> Texts:
        return Texts(tuple(read_text(path) for path in files), settings.context)

    @classmethod
    def read(cls, settings: LmData, seed: int) -> Raw:
        if not settings.train:
            raise DataError("there is nothing to learn from; name a text file")
        texts = tuple(read_text(path) for path in settings.train)
        if settings.valid:
            held = tuple(read_text(path) for path in settings.valid)
        else:
            cuts = [round(len(text) * (1 - settings.aside)) for text in texts]
            held = tuple(text[cut:] for text, cut in zip(texts, cuts, strict=True))
            texts = tuple(text[:cut] for text, cut in zip(texts, cuts, strict=True))
        sizes = {"characters": sum(map(len, texts)), "distinct": len(set().union(*texts))}
        facts = {"train": sizes, "valid": {"characters": sum(map(len, held))}}
        names = ", ".join(Path(path).name for path in settings.train)
        said = [f"{names}: {sizes['characters']:,} characters to learn from, {sum(map(len, held)):,} to be judged by"]
        stride = settings.stride or max(settings.context // 4, 1)
        train, valid = Texts(texts, stride), Texts(held, settings.context)
        return Raw(train, valid, text_fingerprint([*texts, *held]), facts, said)

    @classmethod
    def advise(cls, settings: LmData, raw: Raw, asked: Mapping[str, Any]) -> Advice:
        return Advice({"train": {}}, [])

    @classmethod
    def prepare(cls, settings: LmData, raw: Raw) -> Self:
        return cls(settings, Tokenizer.train(raw.train.texts, settings.tokenizer))

    @classmethod
    def load(cls, settings: LmData, files: Mapping[str, bytes]) -> Self:
        return cls(settings, Tokenizer.from_bytes(files[FILE], FILE))

    def files(self) -> dict[str, bytes]:
        return {FILE: self.target.to_bytes()}

    def facts(self) -> dict[str, Any]:
        return {"vocab": self.target.size, "length": self.settings.context}

    def encode(self, raw: Texts) -> Windows:
        ids = Ragged.of(self.target.encode_all(raw.texts))
        if int(ids.lengths.max(initial=0)) < 2:
            raise DataError("a text should have at least two tokens, so that one follows another")
        return Windows.of(ids, context=self.settings.context, stride=raw.stride)

    # ------------------------------------------------------------------------------------------------ to the model

    def batch(self, examples: Windows, indices: NDArray[np.int64]) -> Batch:
        return next_tokens(examples.ids, examples.starts[indices], examples.lengths[indices], self.target.pad)

    def loss(self, net: Net, batch: Batch, smoothing: float) -> Loss:
        tape = Tape()
        at = Coords.lengths(batch.given.lengths, batch.given.ids.device)
        total, plain = net.loss(net(batch.given.ids, at, tape=tape), batch.wanted, smoothing)
        for extra in tape.losses.values():
            total = total + extra * batch.tokens
        return Loss(total, plain, batch.tokens)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(self, nets: Sequence[Net], inputs: Sequence[str], search: Search) -> list[list[Output]]:
        """What follows each input, which is not repeated. A model that is full goes on from the later half of what it saw."""
        prompts, written = self.target.encode_all(inputs), [list[int]() for _ in inputs]
        totals, rooms = [0.0] * len(prompts), [net.spec.room for net in nets]
        room = min((r for r in rooms if r is not None), default=None)
        active = list(range(len(prompts)))
        while active:
            read = [self._read(prompts[i] + written[i], room) for i in active]
            left = search.extra - len(written[active[0]])
            found = generate(
                nets, read, dataclasses.replace(search, extra=left, n_best=1), bos=self.target.bos, eos=self.target.eos,
                pad=self.target.pad, banned=[self.target.unk],
            )  # fmt: skip
            going = []
            for i, prompt, (best,) in zip(active, read, found, strict=True):
                written[i] += best.tokens
                totals[i] += best.log_prob
                asked = left if room is None else min(left, room - len(prompt) + 1)
                if len(best.tokens) == asked and len(written[i]) < search.extra:
                    going.append(i)
            active = going
        return [
            [Output(self.target.decode(ids), total / search.divisor(max(len(ids), 1)), total)]
            for ids, total in zip(written, totals, strict=True)
        ]

    def score(self, net: Net, inputs: Sequence[str], outputs: Sequence[str]) -> list[float]:
        """log P(output | input), where the output comes right after the input."""
        if len(inputs) != len(outputs):
            raise DataError(f"as many outputs as inputs are needed, got {len(outputs)} for {len(inputs)}")
        totals = []
        for before, after in zip(self.target.encode_all(inputs), self.target.encode_all(outputs), strict=True):
            ids = torch.tensor([(before or [self.target.bos]) + after], device=net.device)
            with torch.no_grad():
                stream = net(ids, Coords.span(ids.shape[1], device=net.device))[0]
                told = log_probs(net, stream[len(stream) - len(after) - 1 : -1])
            totals.append(float(told.gather(1, ids[0, len(stream) - len(after) :, None]).double().sum()))
        return totals

    def attention(self, net: Net, text: str, output: str) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Attention weights (h, n, n) by place for the text with its output."""
        ids, tape = self._read(self.target.encode(text + output), net.spec.room), Tape("*.weights")
        with torch.no_grad():
            net(torch.tensor([ids], device=net.device), Coords.span(len(ids), device=net.device), tape=tape)
        labels = self.target.tokens(ids)
        return {name.removesuffix(".weights"): w[0].cpu() for name, w in tape.kept.items()}, labels, labels

    def trials(self, raw: Texts) -> list[Trial]:
        return []

    def _read(self, ids: list[int], room: int | None) -> list[int]:
        """What the model reads: all of it, or where that would fill it the last half of what it can see; never nothing."""
        ids = ids if room is None or len(ids) <= room else ids[-max(room // 2, 1) :]
        return ids or [self.target.bos]


TASKS.add(Lm)
