"""int8 weights: a quarter of the size, one scale per row.

A matrix W becomes whole numbers from -127 to 127 and a float32 scale for each row, its largest element / 127. Only matrices of
linear maps and tables of tokens are quantized; norms, biases and positions stay. The native engine computes with the whole
numbers; torch gets the product back (`restore_weights`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from regard.engine.engine_plan import SCALE
from regard.errors import CheckpointError
from regard.spec import Plain

MAPS = ("q", "k", "v", "out", "up", "gate", "down", "table")


def list_matrices(plan: object) -> Iterator[str]:
    """The names of the weights in a plan that are quantized."""
    if isinstance(plan, dict):
        for key, value in plan.items():
            if key in MAPS and isinstance(value, str):
                yield value
            else:
                yield from list_matrices(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from list_matrices(value)


def quantize_weights(weights: Mapping[str, Tensor], plan: Plain) -> dict[str, Tensor]:
    """The weights with the matrices of a plan in int8; tied weights stay tied."""
    names, done, out = set(list_matrices(plan)), dict[int, tuple[Tensor, Tensor]](), dict[str, Tensor]()
    for name, tensor in weights.items():
        if name not in names or tensor.dim() != 2 or not tensor.is_floating_point():
            out[name] = tensor
            continue
        if tensor.data_ptr() not in done:
            scale = tensor.float().abs().amax(1).clamp(min=1e-30) / 127
            done[tensor.data_ptr()] = (tensor.float() / scale.unsqueeze(1)).round().to(torch.int8), scale
        out[name], out[name + SCALE] = done[tensor.data_ptr()]
    return out


def is_quantized(weights: Mapping[str, Tensor]) -> bool:
    """Whether some of the weights are int8."""
    return any(tensor.dtype == torch.int8 for tensor in weights.values())


def restore_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights as torch uses them: whole numbers times their scales."""
    if not is_quantized(weights):
        return dict(weights)
    known, out = dict[int, Tensor](), dict[str, Tensor]()
    for name, tensor in weights.items():
        if tensor.dtype != torch.int8:
            if not (name.endswith(SCALE) and name.removesuffix(SCALE) in weights):
                out[name] = tensor
            continue
        scale = weights.get(name + SCALE)
        if tensor.dim() != 2 or scale is None or scale.shape != tensor.shape[:1] or not scale.is_floating_point():
            raise CheckpointError(f"the weight {name} is int8 and has no scales of its rows")
        if id(tensor) not in known:
            known[id(tensor)] = tensor.float() * scale.float().unsqueeze(1)
        out[name] = known[id(tensor)]
    return out
