"""Good settings from the size of a corpus and the machine: what a person with some experience would choose, with reasons.

Small corpora want a small vocabulary (every piece must be seen often), a narrow and strongly regularised model and many
passes; large ones the opposite, as far as the machine carries them within a week. The row up to 100,000 pairs has what paid on
Multi30k (results/time-to-quality.json, translate-29000.json); the others follow the same reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch

from regard.data.pairs import Pairs, sample_pairs
from regard.tasks.common.task import Advice


class Row(NamedTuple):
    """What suits corpora up to a size."""

    pairs: int
    width: int
    depth: int
    hidden: int
    dropout: float
    inner: float
    """Dropout of attention weights and inside the feed-forward parts."""
    vocab: int
    epochs: int

    @property
    def model(self) -> dict[str, Any]:
        inner = {"attention_dropout": self.inner, "hidden_dropout": self.inner} if self.inner else {}
        shape = {"width": self.width, "depth": self.depth, "heads": max(self.width // 64, 4), "hidden": self.hidden}
        return {**shape, "dropout": self.dropout, **inner}

    def work(self, vocab: int) -> float:
        """Operations of a training step for each target token, and about as many of the source: forward, and twice back."""
        layers = self.depth * (12 * self.width**2 + 4 * self.width * self.hidden)
        return 6.0 * (layers + vocab * self.width)


ROWS = (
    Row(2_000, 128, 3, 256, dropout=0.4, inner=0.1, vocab=1_000, epochs=100),
    Row(10_000, 128, 4, 256, dropout=0.35, inner=0.1, vocab=2_000, epochs=60),
    Row(100_000, 128, 4, 256, dropout=0.3, inner=0.1, vocab=6_000, epochs=24),
    Row(500_000, 256, 5, 1024, dropout=0.15, inner=0.0, vocab=12_000, epochs=12),
    Row(2_000_000, 384, 6, 1536, dropout=0.1, inner=0.0, vocab=16_000, epochs=6),
    Row(1 << 62, 512, 6, 2048, dropout=0.1, inner=0.0, vocab=24_000, epochs=4),
)
BATCHES = ((200_000, 1024), (5_000_000, 2048), (50_000_000, 4096), (1 << 62, 8192))
"""Target tokens of the corpus up to, and of a batch."""
WEEK = 7.0
"""Days that a run may take before a smaller model is the better choice."""
SPEED = 6e10
"""Operations a second that training gets from one thread of a processor of today."""
LONG = 20_000
"""From so many steps on, validation has intervals of its own, and a run ends when it brings nothing any more."""


class Length(NamedTuple):
    """How long to train."""

    steps: int
    """Steps, as far as known before the data is tokenized."""
    settings: dict[str, int]
    """What a recipe needs beside what was asked for."""
    text: str


def plan_length(asked: Mapping[str, Any], steps_per_epoch: float, epochs: int) -> Length:
    """The length of a run: what was `asked` for in steps or epochs, or else so many `epochs`."""
    steps = asked.get("steps")
    if steps and not asked.get("epochs"):
        passes = steps / max(steps_per_epoch, 1e-9)
        return Length(steps, {}, f"{steps:,} steps, about {passes:.2g} passes" if passes >= 1 else f"{steps:,} steps")
    epochs = asked.get("epochs") or epochs
    about = max(int(epochs * steps_per_epoch), 1)
    if steps and steps < about:
        return Length(steps, {"epochs": epochs}, f"{steps:,} steps, before {epochs} passes are over,")
    return Length(about, {"epochs": epochs}, f"{epochs} passes, about {about:,} steps")


def advise(corpora: Sequence[Pairs], asked: Mapping[str, Any]) -> Advice:
    """Vocabulary, model, batch and schedule for these corpora, where `asked` (a recipe's `train`) leaves them open."""
    count = sum(map(len, corpora))
    characters = sum(len(text) for pairs in corpora for text in pairs.target)
    letters = len({letter for p in sample_pairs(corpora) for text in chain(p.source, p.target) for letter in text})
    fitting = next(row for row in ROWS if count <= row.pairs)
    vocab = max(fitting.vocab, 2 * letters)  # Chinese has more characters than a small vocabulary has pieces
    tokens = max(int(characters / 4.2) + count, 1)  # a piece of BPE is about four characters
    batch = asked.get("batch_tokens") or next(size for most, size in BATCHES if tokens <= most)
    batch = batch if isinstance(batch, int) else 4096  # `auto` is measured later
    length = plan_length(asked, tokens / (batch * asked.get("accumulate", 1)), fitting.epochs)
    steps = length.steps
    row, slower = _carried(fitting, vocab, steps * batch * asked.get("accumulate", 1), asked.get("threads"))
    warmup = min(steps // 10, 200 if row.width <= 128 else 1000)
    peak = 3e-3 if row.width <= 128 else 0.5 / row.width
    recipe = {
        "data": {"tokenizer": {"kind": "bpe", "vocab": vocab}},
        "model": {"family": "transformer", "norm": "pre", **row.model},
        "train": {
            **length.settings,
            "batch_tokens": batch,
            "optimizer": {"kind": "muon", "weight_decay": 0.1},
            "schedule": {"kind": "wsd", "lr": peak, "warmup": warmup, "decay": 0.7},
            **({"validate_every": LONG // 10, "save_every": LONG // 40, "patience": 10} if steps > LONG else {}),
        },
    }
    reasons = [
        f"{count:,} pairs, about {tokens:,} target tokens",
        f"vocabulary of {vocab:,} pieces: small enough that most of them are seen often",
        f"{row.depth}+{row.depth} layers of width {row.width}, dropout {row.dropout}: "
        + (
            slower
            or ("a small corpus overfits a larger model" if count <= 100_000 else "a corpus of this size feeds it")
        ),
        f"{length.text} in batches of {batch:,} tokens; warm-up of {warmup}, constant, then decay",
    ]
    if steps > LONG:
        reasons.append(f"validation every {LONG // 10:,} steps; the run ends when 10 of them in a row bring nothing")
    return Advice(recipe, reasons)


def _carried(fitting: Row, vocab: int, tokens: int, threads: int | None) -> tuple[Row, str]:
    """The largest shape, up to the one that fits the corpus, that this machine trains within a week; and why not that one."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        return fitting, ""
    threads = threads or torch.get_num_threads()
    days = {row: tokens * row.work(vocab) / (SPEED * threads) / 86_400 for row in ROWS}
    small = ROWS.index(next(row for row in ROWS if row.width > 128))  # below, it is the corpus that decides
    sizes = [row for row in ROWS[small - 1 :] if row.pairs <= fitting.pairs] or [fitting]
    row = next((row for row in reversed(sizes) if days[row] <= WEEK), sizes[0])
    if row is fitting:
        return row, ""
    regular = row._replace(dropout=fitting.dropout, inner=fitting.inner)
    return regular, f"width {fitting.width} would take about {days[fitting]:.0f} days on {threads} threads"
