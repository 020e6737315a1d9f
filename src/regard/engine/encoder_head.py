"""Heads of encoders in numpy: classes, labels, vectors.

They are small beside the encoder, which the native library runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engine.engine_plan import PLAN
from regard.engine.native_engine import NativeEngine
from regard.errors import CheckpointError
from regard.files.tensors import list_tensors, read_floats
from regard.spec import Plain

Numbers = NDArray[np.floating[Any]]
_erf = np.vectorize(math.erf, otypes=[np.float64])
ACTIVATIONS: dict[str, Callable[[Numbers], Numbers]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


class NativeEncoder:
    """An encoder that the native library runs, with its head."""

    def __init__(self, engine: NativeEngine, weights: bytes | mmap, path: Path) -> None:
        self.engine, self._width = engine, int(engine.plan["width"])
        head = engine.plan.get("head")
        if not isinstance(head, dict) or head.get("pool") not in ("first", "mean", None):
            raise CheckpointError(f"{PLAN} is damaged: it does not say what follows the encoder")
        self.pool, self._tensors = head.get("pool"), list_tensors(weights, path)
        self._weights, self._layers = weights, list[tuple[Numbers, Numbers, str | None]]()
        if head.get("dense") is not None:
            self._layers.append((*self._linear(head, "dense", self._width), str(head.get("activation"))))
            if head.get("activation") not in [*ACTIVATIONS]:  # a list: what a file has may be unhashable
                raise CheckpointError(f"{PLAN} is damaged: there is no activation {head.get('activation')!r}")
        if head.get("classes") is not None:
            self._layers.append((*self._linear(head, "classes"), None))

    @property
    def classes(self) -> int:
        """The number of classes; 0 if there are none."""
        return self._layers[-1][0].shape[0] if self._layers and self._layers[-1][2] is None else 0

    def read(self, rows: Sequence[Sequence[int]]) -> list[Numbers]:
        """The encoder's output for each row, (n, d)."""
        return list(self.engine.encode_all(rows))

    def log_probs(self, rows: Sequence[Sequence[int]]) -> list[Numbers]:
        """Log-probabilities for each row: (classes,), or (n, classes) if each token has a class."""
        out = []
        for x in self.read(rows):
            logits = self._apply(x if self.pool is None else pool_tokens(x, self.pool)).astype(np.float64)
            top = logits.max(-1, keepdims=True)
            out.append(logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True)))
        return out

    def _apply(self, x: Numbers) -> Numbers:
        for weight, bias, activation in self._layers:
            x = x @ weight.T + bias
            x = x if activation is None else ACTIVATIONS[activation](x)
        return x

    def _linear(self, head: Plain, name: str, rows: int | None = None) -> tuple[Numbers, Numbers]:
        found = []
        for key in (name, f"{name}_bias"):
            entry = self._tensors.get(str(head.get(key)))
            if entry is None:
                raise CheckpointError(f"{PLAN} names the weight {head.get(key)!r}, which is not in the file")
            found.append(read_floats(self._weights, entry))
        weight, bias = found
        if weight.ndim != 2 or weight.shape[1] != self._width or bias.shape != weight.shape[:1]:
            raise CheckpointError(f"the weight {head.get(name)} does not fit a model of width {self._width}")
        if rows is not None and weight.shape[0] != rows:
            raise CheckpointError(f"the weight {head.get(name)} does not fit a model of width {self._width}")
        return weight, bias


def pool_tokens(x: Numbers, how: object) -> Numbers:
    """One vector of a text (n, d): that of its first token, or the mean of all."""
    pooled: Numbers = x[0] if how == "first" else x.mean(0)
    return pooled
