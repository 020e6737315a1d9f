"""Training learns: eight sentences by heart, and to copy and to reverse strings it never saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import regard

pytestmark = pytest.mark.numeric

SENTENCES = [
    ("The dog sleeps under the old table.", "Der Hund schläft unter dem alten Tisch."),
    ("She reads a long letter from her brother.", "Sie liest einen langen Brief von ihrem Bruder."),
    ("We will go to the market tomorrow.", "Wir werden morgen auf den Markt gehen."),
    ("Two children play in the snow.", "Zwei Kinder spielen im Schnee."),
    ("The train was late again.", "Der Zug hatte wieder Verspätung."),
    ("I have never seen the sea.", "Ich habe das Meer noch nie gesehen."),
    ("Where is the key to the blue door?", "Wo ist der Schlüssel zur blauen Tür?"),
    ("It rained for three days.", "Es regnete drei Tage lang."),
]
SMALL: dict[str, Any] = {
    "model.width": 64,
    "model.depth": 1,
    "model.heads": 4,
    "model.hidden": 128,
    "model.dropout": 0.0,
    "train.threads": 1,
    "train.precision": "float32",
}


@pytest.mark.slow
@pytest.mark.parametrize("joint", [True, False], ids=["one vocabulary", "two vocabularies"])
def test_eight_sentences_by_heart(tmp_path: Path, joint: bool) -> None:
    sources, targets = [s for s, _ in SENTENCES], [t for _, t in SENTENCES]
    for name, texts in (("x.en", sources), ("x.de", targets)):
        (tmp_path / name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    files = [str(tmp_path / "x.en"), str(tmp_path / "x.de")]
    settings = SMALL | {
        "data.tokenizer": {"kind": "bpe", "vocab": 120},
        "data.joint_vocab": joint,
        "data.metrics": ["exact", "bleu"],
        "train.steps": 80,
        "train.epochs": None,
        "train.average": None,
        "train.label_smoothing": 0.0,
        "train.schedule": {"kind": "cosine", "lr": 0.01, "warmup": 10},
        "train.validate_every": 40,
    }
    model = regard.train("translate", files, valid=files, set=settings, out=tmp_path / "run", quiet=True)
    assert model.run(sources) == targets
    assert model.run(sources, beam=1) == targets
    assert all(score > -1.0 for score in model.score(sources, targets))


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        {"family": "lstm", "attention": "none", "depth": 1, "embedding": 32},
        {"family": "lstm", "attention": "general", "depth": 1, "embedding": 32},
        {"family": "gru", "embedding": 32},
        {"family": "convs2s", "depth": 2, "embedding": 32},
        {"family": "bytenet", "depth": 4, "max_dilation": 8},
    ],
    ids=["lstm", "luong", "bahdanau", "convs2s", "bytenet"],
)
def test_predecessors_learn_eight_sentences(tmp_path: Path, model: dict[str, Any]) -> None:
    (tmp_path / "x.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in SENTENCES), encoding="utf-8")
    settings: dict[str, Any] = {
        "data.tokenizer": {"kind": "bpe", "vocab": 120},
        "data.metrics": ["exact"],
        "data.unfold": 1.2 if model["family"] == "bytenet" else 1.0,
        "model": {**model, "width": 64, "dropout": 0.0},
        "train.steps": 120,
        "train.epochs": None,
        "train.label_smoothing": 0.0,
        "train.optimizer": {"kind": "adam"},
        "train.schedule": {"kind": "cosine", "lr": 0.01, "warmup": 10},
        "train.validate_every": 120,
        "train.threads": 1,
        "train.precision": "float32",
    }
    files = [str(tmp_path / "x.tsv")]
    found = regard.train("translate", files, valid=files, set=settings, out=tmp_path / "run", quiet=True)
    sources, targets = [s for s, _ in SENTENCES], [t for _, t in SENTENCES]
    assert found.run(sources) == targets
    assert found.run(sources, beam=1) == targets


@pytest.mark.slow
def test_a_neural_gpu_reverses_numbers(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "data.generate": {"kind": "algorithm", "problem": "reverse", "max_digits": 4, "count": 4000, "valid": 60},
        "data.curriculum": {"start": 5, "steps": 100},
        "model": {"family": "neural_gpu", "width": 24, "rows": 2, "copies": 4, "pull_every": 6, "dropout": 0.05},
        "train.steps": 240,
        "train.batch_tokens": 512,
        "train.schedule": {"kind": "wsd", "lr": 5e-3, "warmup": 20, "decay": 0.3},
        "train.gradient_noise": None,
        "train.validate_every": 80,
        "train.threads": 1,
    }
    found = regard.train("algorithm", set=settings, out=tmp_path / "run", quiet=True)
    assert found.run(["0111", "10", "1000", "110"]) == ["1110", "01", "0001", "011"]


@pytest.mark.slow
def test_strings_never_seen_are_reversed_without_a_fault(tmp_path: Path) -> None:
    settings = SMALL | {
        "data.generate": {"kind": "copy", "symbols": 8, "max_length": 8, "count": 20_000, "reverse": True},
        "train.steps": 900,
        "train.batch_tokens": 512,
        "train.schedule.lr": 5e-3,
        "train.validate_every": 300,
    }
    model = regard.train("copy", set=settings, out=tmp_path / "run", quiet=True)
    unseen = model.task.settings.generate.pairs("valid")
    assert len(unseen) == 200
    assert model.run(unseen.source) == unseen.target
    assert model.run(["habcdefg"]) == ["gfedcbah"]
