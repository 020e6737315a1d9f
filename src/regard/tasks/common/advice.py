"""Good settings for translation, from corpus and machine.

They are what an experienced person would choose, with reasons. Small corpora need a small vocabulary (so that every
subword is frequent), a narrow and strongly regularized model and many epochs; large ones need the opposite, as far as
the machine can train it within a week. The row for up to 100,000 pairs is what worked best on Multi30k
(results/time-to-quality.json, translate-29000.json); the others follow the same reasoning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import torch

from regard.data.pairs import Pairs, sample_pairs
from regard.spec import Plain
from regard.tasks.common.task import Advice


@dataclasses.dataclass(frozen=True)
class SizeRow:
    """Settings that suit corpora of up to `pairs` pairs."""

    pairs: int
    width: int
    depth: int
    hidden: int
    dropout: float
    inner: float
    """Dropout of attention weights and of hidden layers."""
    vocab: int
    epochs: int

    @property
    def optimizer(self) -> dict[str, object]:
        return {"kind": "muon", "weight_decay": 0.1}

    @property
    def rate(self) -> float:
        """Peak learning rate."""
        return 3e-3 if self.width <= 128 else 0.5 / self.width

    @property
    def model(self) -> dict[str, object]:
        inner = {"attention_dropout": self.inner, "hidden_dropout": self.inner} if self.inner else {}
        shape = {"width": self.width, "depth": self.depth, "heads": max(self.width // 64, 4), "hidden": self.hidden}
        return {"norm": "pre", **shape, "dropout": self.dropout, **inner}

    def model_for(self, asked: Plain) -> dict[str, object]:
        """Model settings that go with those that were `asked` for."""
        return self.model

    def operations_per_token(self, vocab: int) -> float:
        """Floating-point operations of a training step per target token, with about as many source tokens."""
        layers = self.depth * (12 * self.width**2 + 4 * self.width * self.hidden)
        return 6.0 * (layers + vocab * self.width)


ROWS = (
    SizeRow(2_000, 128, 3, 256, dropout=0.4, inner=0.1, vocab=1_000, epochs=100),
    SizeRow(10_000, 128, 4, 256, dropout=0.35, inner=0.1, vocab=2_000, epochs=60),
    SizeRow(100_000, 128, 4, 256, dropout=0.3, inner=0.1, vocab=6_000, epochs=24),
    SizeRow(500_000, 256, 5, 1024, dropout=0.15, inner=0.0, vocab=12_000, epochs=12),
    SizeRow(2_000_000, 384, 6, 1536, dropout=0.1, inner=0.0, vocab=16_000, epochs=6),
    SizeRow(1 << 62, 512, 6, 2048, dropout=0.1, inner=0.0, vocab=24_000, epochs=4),
)


@dataclasses.dataclass(frozen=True)
class RecurrentRow(SizeRow):
    """Settings of recurrent models; `hidden` is the width of the embeddings, `inner` is not used."""

    @property
    def optimizer(self) -> dict[str, object]:
        return {"kind": "adam", "betas": [0.9, 0.999], "eps": 1e-8}

    @property
    def rate(self) -> float:
        return 1e-3

    @property
    def model(self) -> dict[str, object]:
        shape = {"width": self.width, "embedding": self.hidden, "depth": self.depth}
        return {**shape, "dropout": self.dropout, "attention": "additive", "bidirectional": True}

    def model_for(self, asked: Plain) -> dict[str, object]:
        """Without attention, the model is the published one, which reads in one direction; `dot` needs one as well."""
        one_way = asked.get("attention") in ("none", "dot") or asked.get("reverse_source")
        return self.model | ({"bidirectional": False} if one_way and "bidirectional" in self.model else {})

    def operations_per_token(self, vocab: int) -> float:
        layers = self.depth * 24 * self.width**2 + 8 * self.width * self.hidden
        return 6.0 * (layers + vocab * self.width)


RECURRENT = (
    RecurrentRow(2_000, 128, 1, 128, dropout=0.4, inner=0.0, vocab=1_000, epochs=60),
    RecurrentRow(10_000, 256, 1, 128, dropout=0.4, inner=0.0, vocab=2_000, epochs=30),
    RecurrentRow(100_000, 256, 1, 256, dropout=0.4, inner=0.0, vocab=6_000, epochs=16),
    RecurrentRow(500_000, 512, 2, 256, dropout=0.3, inner=0.0, vocab=12_000, epochs=10),
    RecurrentRow(2_000_000, 512, 2, 512, dropout=0.2, inner=0.0, vocab=16_000, epochs=6),
    RecurrentRow(1 << 62, 1000, 2, 512, dropout=0.2, inner=0.0, vocab=24_000, epochs=4),
)
"""A recurrence needs fewer passes than attention, and overfits sooner."""


@dataclasses.dataclass(frozen=True)
class GatedRow(RecurrentRow):
    """Settings of ConvS2S."""

    @property
    def model(self) -> dict[str, object]:
        shape = {"width": self.width, "embedding": self.hidden, "depth": self.depth, "kernel": 3}
        return {**shape, "dropout": self.dropout}

    def operations_per_token(self, vocab: int) -> float:
        layers = self.depth * (12 * self.width**2 + 2 * self.width * self.hidden) + 4 * self.width * self.hidden
        return 6.0 * (layers + vocab * self.hidden)


@dataclasses.dataclass(frozen=True)
class DilatedRow(RecurrentRow):
    """Settings of ByteNet; `inner` is dropout inside the blocks, `hidden` is not used."""

    @property
    def model(self) -> dict[str, object]:
        shape = {"width": self.width, "depth": self.depth, "max_dilation": 16}
        return {**shape, "dropout": self.dropout, "hidden_dropout": self.inner}

    def operations_per_token(self, vocab: int) -> float:
        return 6.0 * (self.depth * 14 * self.width**2 + 2 * vocab * self.width)


@dataclasses.dataclass(frozen=True)
class GridRow(RecurrentRow):
    """Settings of Neural GPUs, whose `depth` is that of a step; `hidden` and `inner` are not used."""

    @property
    def model(self) -> dict[str, object]:
        return {"width": self.width, "rows": 4, "depth": self.depth, "dropout": self.dropout}

    def operations_per_token(self, vocab: int) -> float:
        steps = 2 * 32  # on both sides, for a text of usual length
        return 6.0 * (steps * self.depth * 4 * 36 * self.width**2 + vocab * self.width)


GATED = (
    GatedRow(2_000, 128, 3, 128, dropout=0.4, inner=0.0, vocab=1_000, epochs=60),
    GatedRow(10_000, 256, 4, 128, dropout=0.3, inner=0.0, vocab=2_000, epochs=30),
    GatedRow(100_000, 256, 4, 256, dropout=0.25, inner=0.0, vocab=6_000, epochs=16),
    GatedRow(500_000, 256, 6, 256, dropout=0.2, inner=0.0, vocab=12_000, epochs=10),
    GatedRow(2_000_000, 512, 8, 256, dropout=0.1, inner=0.0, vocab=16_000, epochs=6),
    GatedRow(1 << 62, 512, 12, 512, dropout=0.1, inner=0.0, vocab=24_000, epochs=4),
)
DILATED = (
    DilatedRow(2_000, 64, 10, 0, dropout=0.3, inner=0.2, vocab=1_000, epochs=60),
    DilatedRow(10_000, 128, 10, 0, dropout=0.2, inner=0.2, vocab=2_000, epochs=30),
    DilatedRow(100_000, 128, 15, 0, dropout=0.1, inner=0.1, vocab=6_000, epochs=16),
    DilatedRow(500_000, 256, 15, 0, dropout=0.1, inner=0.1, vocab=12_000, epochs=10),
    DilatedRow(2_000_000, 256, 20, 0, dropout=0.1, inner=0.0, vocab=16_000, epochs=6),
    DilatedRow(1 << 62, 512, 20, 0, dropout=0.1, inner=0.0, vocab=24_000, epochs=4),
)
GRIDS = (
    GridRow(2_000, 24, 2, 0, dropout=0.15, inner=0.0, vocab=500, epochs=60),
    GridRow(10_000, 32, 2, 0, dropout=0.1, inner=0.0, vocab=1_000, epochs=30),
    GridRow(100_000, 48, 2, 0, dropout=0.1, inner=0.0, vocab=2_000, epochs=16),
    GridRow(500_000, 64, 2, 0, dropout=0.1, inner=0.0, vocab=4_000, epochs=10),
    GridRow(2_000_000, 64, 2, 0, dropout=0.1, inner=0.0, vocab=4_000, epochs=6),
    GridRow(1 << 62, 64, 2, 0, dropout=0.1, inner=0.0, vocab=4_000, epochs=4),
)
"""Sizes follow the reasoning of the other tables; none of these rows was measured."""
TABLES: dict[str, tuple[SizeRow, ...]] = {
    "lstm": RECURRENT, "gru": RECURRENT, "convs2s": GATED, "bytenet": DILATED, "neural_gpu": GRIDS,
    "extended_neural_gpu": GRIDS,
}  # fmt: skip
"""Tables by family, where they are not that of the Transformer."""
UNFOLD = {"bytenet": 1.2, "neural_gpu": 1.5, "extended_neural_gpu": 1.2}
"""Columns of a source per token, for families that write in the columns of the source."""
BATCHES = ((200_000, 1024), (5_000_000, 2048), (50_000_000, 4096), (1 << 62, 8192))
"""Tokens of a batch, by the maximum number of target tokens in the corpus."""
MAX_DAYS = 7.0
"""Days after which a smaller model is the better choice."""
OPERATIONS_PER_SECOND = 6e10
"""Operations per second that one thread of a current processor reaches in training."""
LONG_RUN = 20_000
"""From this number of steps on, validation has its own interval, and training stops when it no longer improves."""


class PlannedLength(NamedTuple):
    """Length of training."""

    steps: int
    """Steps, as far as known before the data is tokenized."""
    settings: dict[str, int]
    """Settings that a recipe needs beside what was asked for."""
    text: str


def plan_length(asked: Plain, steps_per_epoch: float, epochs: int) -> PlannedLength:
    """The length of a run: the steps or epochs that were `asked` for, otherwise `epochs`."""
    steps = asked.get("steps")
    if steps and not asked.get("epochs"):
        passes = steps / max(steps_per_epoch, 1e-9)
        return PlannedLength(
            steps, {}, f"{steps:,} steps, about {passes:.2g} passes" if passes >= 1 else f"{steps:,} steps"
        )
    epochs = asked.get("epochs") or epochs
    about = max(int(epochs * steps_per_epoch), 1)
    if steps and steps < about:
        return PlannedLength(steps, {"epochs": epochs}, f"{steps:,} steps, before {epochs} passes are over,")
    return PlannedLength(about, {"epochs": epochs}, f"{epochs} passes, about {about:,} steps")


def advise_pairs(corpora: Sequence[Pairs], train: Plain, model: Plain | None = None) -> Advice:
    """Vocabulary, model, batch and schedule for these corpora, where `train` and `model` of the recipe leave them open."""
    model = model or {}
    family = str(model.get("family", "transformer"))
    rows = TABLES.get(family, ROWS)
    count = sum(map(len, corpora))
    characters = sum(len(text) for pairs in corpora for text in pairs.target)
    letters = len({letter for p in sample_pairs(corpora) for text in chain(p.source, p.target) for letter in text})
    fitting = next(row for row in rows if count <= row.pairs)
    vocab = max(fitting.vocab, 2 * letters)  # Chinese has more characters than a small vocabulary has pieces
    tokens = max(int(characters / 4.2) + count, 1)  # a piece of BPE is about four characters
    batch = train.get("batch_tokens") or next(size for most, size in BATCHES if tokens <= most)
    batch = batch if isinstance(batch, int) else 4096  # `auto` is measured later
    length = plan_length(train, tokens / (batch * train.get("accumulate", 1)), fitting.epochs)
    steps = length.steps
    row, slower = _fit_machine(rows, fitting, vocab, steps * batch * train.get("accumulate", 1), train.get("threads"))
    warmup = min(steps // 10, 200 if row.width <= 128 else 1000)
    recipe = {
        "data": {
            "tokenizer": {"kind": "bpe", "vocab": vocab},
            **({"unfold": UNFOLD[family]} if family in UNFOLD else {}),
        },
        "model": {"family": family, **row.model_for(model)},
        "train": {
            **length.settings,
            "batch_tokens": batch,
            "optimizer": row.optimizer,
            "schedule": {"kind": "wsd", "lr": row.rate, "warmup": warmup, "decay": 0.7},
            **(
                {"validate_every": LONG_RUN // 10, "save_every": LONG_RUN // 40, "patience": 10}
                if steps > LONG_RUN
                else {}
            ),
        },
    }
    reasons = [
        f"{count:,} pairs, about {tokens:,} target tokens",
        f"vocabulary of {vocab:,} subwords: few enough that most of them are frequent",
        f"{row.depth}+{row.depth} layers of width {row.width}, dropout {row.dropout}: "
        + (
            slower
            or ("a small corpus overfits a larger model" if count <= 100_000 else "a corpus of this size can train it")
        ),
        f"{length.text} in batches of {batch:,} tokens; warm-up of {warmup}, constant, then decay",
    ]
    if steps > LONG_RUN:
        reasons.append(
            f"validation every {LONG_RUN // 10:,} steps; the run ends when 10 of them in a row bring nothing"
        )
    return Advice(recipe, reasons)


def _fit_machine(
    rows: Sequence[SizeRow], fitting: SizeRow, vocab: int, tokens: int, threads: int | None
) -> tuple[SizeRow, str]:
    """The largest model up to the fitting one that this machine trains within a week, and why it is a smaller one."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        return fitting, ""
    threads = threads or torch.get_num_threads()
    days = {row: tokens * row.operations_per_token(vocab) / (OPERATIONS_PER_SECOND * threads) / 86_400 for row in rows}
    small = rows.index(next(row for row in rows if row.pairs > 100_000))  # below, it is the corpus that decides
    sizes = [row for row in rows[small - 1 :] if row.pairs <= fitting.pairs] or [fitting]
    row = next((row for row in reversed(sizes) if days[row] <= MAX_DAYS), sizes[0])
    if row is fitting:
        return row, ""
    regular = dataclasses.replace(row, dropout=fitting.dropout, inner=fitting.inner)
    return regular, f"width {fitting.width} would take about {days[fitting]:.0f} days on {threads} threads"
