"""Good settings from the size of a corpus: what a person with some experience would choose, and the reason in words.

Small corpora want a small vocabulary (every piece must be seen often), a narrow and strongly regularised model and many
passes; large ones the opposite. The row that holds Multi30k was measured (results/translate-multi30k.json); the others follow
the same reasoning and wait for their measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from regard.data.sources import Pairs, sample
from regard.tasks.task import Advice

SHAPES: tuple[tuple[int, dict[str, Any], int, int], ...] = (
    # pairs up to, model, BPE vocabulary, passes over the corpus
    (2_000, dict(width=128, depth=3, heads=4, hidden=256, dropout=0.4), 1_000, 100),
    (10_000, dict(width=128, depth=4, heads=4, hidden=256, dropout=0.35), 2_000, 60),
    (100_000, dict(width=128, depth=4, heads=4, hidden=256, dropout=0.2), 6_000, 20),
    (500_000, dict(width=256, depth=5, heads=4, hidden=1024, dropout=0.15), 12_000, 12),
    (2_000_000, dict(width=384, depth=6, heads=6, hidden=1536, dropout=0.1), 16_000, 6),
    (1 << 62, dict(width=512, depth=6, heads=8, hidden=2048, dropout=0.1), 24_000, 4),
)


def advise(corpora: Sequence[Pairs], asked: Mapping[str, Any]) -> Advice:
    """Vocabulary, model, batch and schedule for these corpora, where `asked` (a recipe's `train`) leaves them open."""
    count = sum(map(len, corpora))
    characters = sum(len(text) for pairs in corpora for text in pairs.target)
    letters = len({letter for p in sample(corpora) for text in chain(p.source, p.target) for letter in text})
    _, model, vocab, epochs = next(row for row in SHAPES if count <= row[0])
    vocab = max(vocab, 2 * letters)  # Chinese has more characters than a small vocabulary has pieces
    tokens = max(int(characters / 4.2) + count, 1)  # a piece of BPE is about four characters
    batch = 4096 if tokens > 200_000 else 1024
    epochs, batch = asked.get("epochs") or epochs, asked.get("tokens") or batch
    steps = max(epochs * tokens // (batch * asked.get("accumulate", 1)), 1)
    steps = min(steps, asked.get("steps") or steps)
    warmup = min(steps // 10, 1000)
    recipe = {
        "data": {"tokenizer": {"kind": "bpe", "vocab": vocab}},
        "model": {"family": "transformer", "norm": "pre", **model},
        "train": {
            "epochs": epochs,
            "tokens": batch,
            "optimizer": {"kind": "adamw"},
            "schedule": {
                "kind": "wsd",
                "peak": 4e-3 if model["width"] <= 128 else 0.5 / model["width"],
                "warmup": warmup,
                "decay": 0.4,
            },
        },
    }
    reasons = [
        f"{count:,} pairs, about {tokens:,} target tokens",
        f"vocabulary of {vocab:,} pieces: small enough that most of them are seen often",
        f"{model['depth']}+{model['depth']} layers of width {model['width']}, dropout {model['dropout']}: "
        + ("a small corpus overfits a larger model" if count <= 100_000 else "a corpus of this size feeds it"),
        f"{epochs} passes in batches of {batch:,} tokens, about {steps:,} steps; warm-up of {warmup}, constant, then decay",
    ]
    return Advice(recipe, reasons)
