"""A tiny example of every task: its recipe and its files. The laws of tasks run over these."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.families.expand import model_keys
from regard.training.request import TrainRequest
from tests.training.small import TINY

Recipe = dict[str, Any]
PLAY = (
    "the cat sat on the mat.\nthe dog saw the cat.\n\na man went to the market.\nhe bought a fish.\n\n"
    "it rained for a day.\nthe mat was wet.\n\nthe man saw the dog.\nhe went home, and it rained.\n"
)
BERT: Recipe = {"family": "bert", "dropout": 0.2}
T5: Recipe = {"family": "t5", "head_width": 8, "dropout": 0.2, "gated": True}


def _text(folder: Path) -> list[str]:
    path = folder / "play.txt"
    path.write_text(PLAY)
    return [str(path)]


def _mixture(folder: Path) -> Recipe:
    corpora = []
    for name, weight in (("back", 1.0), ("double", 2.0)):
        path = folder / f"{name}.tsv"
        words = PLAY.replace(".", "").replace(",", "").split()
        path.write_text("".join(f"{w}{i}\t{w[::-1] if name == 'back' else 2 * w}\n" for i, w in enumerate(words)))
        corpora.append({"paths": [str(path)], "prefix": f"{name}: ", "weight": weight})
    return {"train": corpora, "tokenizer": "chars", "max_length": 32, "metrics": ["chrf"], "temperature": 2.0}


def _summaries(folder: Path) -> Recipe:
    path = folder / "texts.tsv"
    lines = [line for line in PLAY.splitlines() if line]
    path.write_text(
        "".join(f"{line} {i}\t{' '.join(line.split()[1 : 2 + i % 3])}\n" for i, line in enumerate(lines * 6))
    )
    data = {"tokenizer": "chars", "max_length": 24, "lengths": [1, 2], "prefix": "s: ", "word_dropout": 0.1}
    return {
        "task": "summarize",
        "data": {"train": [{"paths": [str(path)]}], **data},
        "model": {"head": {"kind": "pointer", "coverage": 1.0}, "dropout": 0.2},
    }


def _dictionary(folder: Path) -> Recipe:
    path = folder / "words.dict"
    words = sorted(
        {word for i in range(6) for word in PLAY.replace(".", "").replace(",", "").replace("a", "ab"[:i]).split()}
    )
    path.write_text(
        "".join(f"{word} {' '.join(word.upper())}\n{word}(2) {' '.join(word.upper()[::-1])}\n" for word in words)
    )
    return {"task": "pronounce", "data": {"train": [str(path)], "valid": 0.2, "max_length": 16}}


def _sources(folder: Path) -> Recipe:
    place = folder / "sources"
    place.mkdir(exist_ok=True)
    for i, line in enumerate(PLAY.splitlines()):
        words = line.replace(".", "").replace(",", "").split() or ["nothing"]
        body = "".join(f"    {word} = [{n}, {word!r}]\n" for n, word in enumerate(words))
        (place / f"{words[-1]}{i}.py").write_text(f"def {words[0]}(x):\n{body}    return x + {words[-1]}\n")
    bpe = {"kind": "byte_bpe", "vocab": 300, "leading_space": False, "normalize": {"unicode": "none", "spaces": False}}
    data = {"train": [str(place)], "hold_out": 0.3, "tokenizer": bpe, "context": 24, "lines": 4, "fim": {"rate": 0.7}}
    return {"task": "code", "data": data, "model": {"family": "llama", "dropout": 0.2}}


def _over_text(task: str, model: Recipe, **data: Any) -> Callable[[Path], Recipe]:
    return lambda folder: {"task": task, "data": {"train": _text(folder), **data}, "model": model}


TASK: dict[str, dict[str, Callable[[Path], Recipe]]] = {
    "translate": {
        "copy": lambda folder: {
            "task": "translate",
            "data": {
                "generate": {"kind": "copy", "count": 60, "valid": 6, "max_length": 6},
                "tokenizer": "chars",
                "metrics": ["exact"],
            },
        },
        "mixture": lambda folder: {"task": "translate", "data": _mixture(folder), "model": T5},
        "lstm": lambda folder: {
            "task": "translate",
            "data": _mixture(folder),
            "model": {"family": "lstm", "embedding": 12, "dropout": 0.2, "attention": "general", "hidden_dropout": 0.1},
        },
        "gru": lambda folder: {
            "task": "translate",
            "data": _mixture(folder),
            "model": {"family": "gru", "embedding": 12, "dropout": 0.2},
        },
        "convs2s": lambda folder: {
            "task": "translate",
            "data": _mixture(folder),
            "model": {"family": "convs2s", "embedding": 12, "depth": 2, "dropout": 0.2},
        },
        "bytenet": lambda folder: {
            "task": "translate",
            "data": {**_mixture(folder), "unfold": 1.5},
            "model": {"family": "bytenet", "depth": 2, "dropout": 0.2, "hidden_dropout": 0.1},
        },
        "neural_gpu": lambda folder: {
            "task": "translate",
            "data": {
                "generate": {"kind": "algorithm", "max_digits": 5, "count": 60, "valid": 6},
                "tokenizer": "chars",
                "metrics": ["exact"],
                "curriculum": {"start": 5, "steps": 8},
            },
            "model": {"family": "neural_gpu", "rows": 2, "copies": 2, "pull_every": 1, "dropout": 0.2},
            "train": {"gradient_noise": 0.01},
        },
        "extended_neural_gpu": lambda folder: {
            "task": "translate",
            "data": {
                "generate": {
                    "kind": "algorithm",
                    "problem": "sort",
                    "base": 3,
                    "max_digits": 5,
                    "count": 60,
                    "valid": 6,
                },
                "tokenizer": "chars",
                "metrics": ["exact"],
            },
            "model": {"family": "extended_neural_gpu", "rows": 2, "dropout": 0.2},
        },
        "regularised": lambda folder: {
            "task": "translate",
            "data": {
                **_mixture(folder),
                "tokenizer": {"kind": "bpe", "vocab": 60},
                "subword_sampling": 0.2,
                "word_dropout": 0.1,
            },
        },
    },
    "pronounce": {"dictionary": _dictionary},
    "lm": {
        "file": _over_text("lm", {"family": "gpt", "dropout": 0.2}, context=12),
        "documents": _over_text("lm", {"family": "gpt", "dropout": 0.2}, context=40, documents="line"),
    },
    "mlm": {
        "bert": _over_text(
            "mlm", BERT, tokenizer={"kind": "wordpiece", "vocab": 100}, context=24, dupe_factor=2, hold_out=0.5
        ),
        "roberta": _over_text(
            "mlm",
            {**BERT, "size": "roberta-base"},
            tokenizer={"kind": "byte_bpe", "vocab": 300},
            context=16,
            next_sentence=False,
            masking={"whole_words": True},
        ),
        "distilbert": _over_text(
            "mlm",
            {**BERT, "size": "distilbert-base"},
            tokenizer="chars",
            documents="line",
            context=16,
            next_sentence=False,
        ),
    },
    "code": {"fim": _sources},
    "denoise": {
        "bart": _over_text(
            "denoise",
            {"family": "bart", "dropout": 0.2},
            tokenizer={"kind": "bpe", "vocab": 90},
            max_length=16,
            noise={"delete": 0.1, "mask": 0.1, "rotate": 0.5},
            hold_out=0.3,
        ),
    },
    "summarize": {"copying": _summaries},
    "span": {
        "t5": _over_text("span", T5, tokenizer={"kind": "bpe", "vocab": 90}, max_length=16, sentinels=8, hold_out=0.3),
    },
}
"""Each task with the shapes it comes in; each shape is a recipe, given a folder for its files."""


def order_of(example: Callable[[Path], Recipe], files: Path, out: Path, **changes: Any) -> TrainRequest:
    """An order for a tiny run of an example."""
    recipe = example(files)
    known = {f"model.{key}" for key in model_keys(recipe.get("model", {}))}
    settings = {path: v for path, v in TINY.items() if not path.startswith("model.") or path in known} | {
        "train.label_smoothing": 0.1,
        "train.schedule.warmup": 1,
    }
    settings |= {path.replace("__", "."): value for path, value in changes.items()}
    return TrainRequest(recipe, set=settings, out=str(out), quiet=True)
