"""Memory across segments: Transformer-XL and Compressive Transformer beside a plain decoder of equal size, on equal tokens.

`python -m bench.memory` trains each three times on characters, about a quarter of an hour on two cores in all, and then
reads the validation text with shorter and longer memories than in training. The same command again goes on where it stopped.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import regard
from bench.entry import Mode, cut, find_data, parse
from bench.results import write
from regard.families import gpt, transformer_xl
from regard.model.model_spec import ModelSpec
from regard.report.table import Table
from regard.tasks.common.losses import evaluate_loss

CONTEXT, MEMORY_LENGTH, SEEDS = 64, 128, (1, 2, 3)
MEMORY_LENGTHS = {"xl": (1, 128, 256, 512), "compressive": (128,)}
"""Memories to judge each with; that of training is among them."""
ROWS = 8
"""The validation text is judged in so many streams side by side."""
SHAPE = dict(width=128, depth=4, heads=4, hidden=512, dropout=0.0)
MEMORY = SHAPE | dict(family="transformer_xl", memory_length=MEMORY_LENGTH, attention_dropout=0.0, norm="pre")
COMPRESS = dict(kind="convolution", slots=64, rate=4)
VOCAB = 69
"""Of tinyshakespeare with its marks; it only decides how wide the plain decoder must be."""


def parameters(spec: ModelSpec) -> int:
    return sum(p.numel() for p in spec.build().parameters())


def plain_hidden() -> int:
    """The feed-forward width with which a plain decoder has at least as many parameters as Transformer-XL."""
    known = {name: value for name, value in MEMORY.items() if name != "family"}
    wanted, hidden = parameters(transformer_xl.spec(vocab=VOCAB, length=CONTEXT, **known)), int(str(SHAPE["hidden"]))  # type: ignore[arg-type]
    rest = {name: value for name, value in SHAPE.items() if name != "hidden"}
    while parameters(gpt.spec(vocab=VOCAB, length=CONTEXT, hidden=hidden, bias=False, **rest)) < wanted:  # type: ignore[arg-type]
        hidden += 4
    return hidden


def contenders() -> dict[str, dict[str, Any]]:
    """What differs between the runs."""
    stream = {"data.stream": True}
    return {
        "plain": {"model": {**SHAPE, "family": "gpt", "bias": False, "hidden": plain_hidden()}},
        "xl": stream | {"model": MEMORY},
        "compressive": stream | {"model": {**MEMORY, "compress": COMPRESS}},
    }


def recipe(model: dict[str, Any], steps: int) -> dict[str, Any]:
    """The recipe `gpt` with another model."""
    return {
        "task": "lm",
        "data": {"context": CONTEXT},
        "model": model,
        "train": {
            "steps": steps,
            "batch_tokens": 128 if Mode.smoke else 1024,
            "optimizer": {"kind": "adamw", "betas": [0.9, 0.99], "weight_decay": 0.1},
            "schedule": {"kind": "cosine", "lr": 2.0e-3, "warmup": min(100, steps // 4), "min_lr_ratio": 0.1},
            "label_smoothing": 0.0,
            "validate_every": steps,
        },
    }


def judged(model: regard.Model, text: str, memory_length: int | None = None) -> float:
    """Loss a character of the last tenth of the text, as in training, with a memory of this length."""
    if memory_length is not None:
        model = regard.load(model.path, set={"model.decoder.block.mix.memory_length": memory_length})
    held = model.task.read(model.task.settings.overlay({"train": [text]}), 1).valid
    tokens = ROWS * CONTEXT if memory_length is not None else None
    return evaluate_loss(model.task, model.net, model.task.encode(held), tokens=tokens)["loss"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("text", nargs="?", type=Path, help="by default tinyshakespeare")
    arguments.add_argument("--steps", type=int, default=900)
    said = parse(arguments, out="runs/memory", seeds=SEEDS)
    text = said.text or find_data("tinyshakespeare", "input.txt")
    name_of_text = text.parent.name
    if said.smoke:
        said.steps, text = 2, cut(text, 150)
    losses: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for name, changes in contenders().items():
        for seed in said.seed:
            settings = {"train.seed": seed} | {k: v for k, v in changes.items() if k != "model"}
            whole = recipe(changes["model"], said.steps)
            model = regard.train(whole, [str(text)], set=settings, out=said.out / f"{name}-{seed}")
            counts[name] = sum(p.numel() for p in model.net.parameters())
            lengths: list[int | None] = [None] if name == "plain" else list(MEMORY_LENGTHS[name])
            for memory_length in lengths:
                key = name if memory_length is None else f"{name}, memory {memory_length}"
                losses.setdefault(key, []).append(judged(model, str(text), memory_length))
                print(f"{key}, seed {seed}: {losses[key][-1]:.4f}", file=sys.stderr, flush=True)
    base = losses["plain"]
    figures: dict[str, dict[str, Any]] = {}
    for key, found in losses.items():
        gain = [a - b for a, b in zip(base, found, strict=True)]
        figures[key] = {
            "loss": round(statistics.mean(found), 4),
            "by seed": [round(loss, 4) for loss in found],
            "below plain": round(statistics.mean(gain), 4),
            "parameters": counts[key.partition(",")[0]],
        }
    rows = tuple((key, f["loss"], f["below plain"], f["parameters"]) for key, f in figures.items())
    print(Table(("model", "validation loss", "below plain", "parameters"), rows).markdown())
    facts = dict(steps=said.steps, tokens=said.steps * 1024, seeds=said.seed, context=CONTEXT, memory=MEMORY_LENGTH)
    title = f"Transformer-XL and Compressive beside a plain decoder, {name_of_text}"
    path = write("memory", title=title, figures=figures, **facts)
    print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
