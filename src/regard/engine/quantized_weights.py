"""Quantized weights: int8 by rows, or blocks of 4 or 8 bits.

int8    whole numbers from -127 to 127 and a float32 scale for each row, its largest element / 127
blocks  32 numbers of a row share a scale: w = scale · q of 8 bits, or w = scale · u + minimum of 4 bits, 0 to 15. Byte i of a
        block of 4 bits has number i and, in its upper half, number i + 16. So do GGUF's Q8_0, Q4_0 and Q4_1.
panels  either of them in the order in which the engine reads it (native/kernels.h), and its `.shape`. A model folder has
        them like this: the library computes with the file as it is mapped from disk, and copies nothing

Only matrices of linear maps and tables of tokens are quantized; norms, biases and positions stay. The native engine computes
with the whole numbers; torch gets the products back (`restore_weights`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.engine.engine_plan import BLOCK, BLOCK_BYTES, LANES, MINIMUM, SCALE
from regard.errors import CheckpointError
from regard.files.tensors import pack
from regard.spec import Plain

SHAPE = ".shape"
"""Suffix of the tensor with the rows and columns of a weight in panels, which are padded."""
MAX_SIZE = 1 << 24
MAPS = ("q", "k", "v", "out", "up", "gate", "down")
TABLES = ("table",)
ROWS = 1 << 12
"""Rows of a matrix that are quantized together."""
SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8)
"""Shares of the range of a block that its 16 levels may cover: the extremes may be worth less than the rest."""


def list_matrices(plan: object, keys: tuple[str, ...] = MAPS + TABLES) -> Iterator[str]:
    """The names of the weights in a plan that are quantized."""
    if isinstance(plan, dict):
        for key, value in plan.items():
            if key in keys and isinstance(value, str):
                yield value
            else:
                yield from list_matrices(value, keys)
    elif isinstance(plan, list):
        for value in plan:
            yield from list_matrices(value, keys)


def quantize_weights(
    weights: Mapping[str, Tensor], plan: Plain, to: Literal["int8", "int4"] = "int8"
) -> dict[str, Tensor]:
    """The weights with the matrices of a plan in int8, or in blocks of 4 bits; tied weights stay tied.

    Tables of tokens, which also are the output projection, have blocks of 8 bits instead of 4.
    """
    names, tables = set(list_matrices(plan)), set(list_matrices(plan, TABLES))
    done, out = dict[int, dict[str, Tensor]](), dict[str, Tensor]()
    for name, tensor in weights.items():
        whole = to == "int8" or tensor.shape[-1:] == () or tensor.shape[-1] % BLOCK == 0
        if name not in names or tensor.dim() != 2 or not tensor.is_floating_point() or not whole:
            out[name] = tensor
            continue
        made = done.get(tensor.data_ptr())
        if made is None:
            made = quantize_rows(tensor) if to == "int8" else quantize_blocks(tensor, 8 if name in tables else 4)
            done[tensor.data_ptr()] = made
        out |= {name + suffix: part for suffix, part in made.items()}
    return out


def pack_weights(weights: Mapping[str, Tensor], plan: Plain) -> bytes:
    """A weights file in which the quantized matrices of a plan are in panels, in the order in which the engine reads them.

    So maps of the same input, such as queries, keys and values, lie behind one another and are one map for the engine.
    """
    order = dict.fromkeys(name for name in list_matrices(plan) if name + SCALE in weights)
    panels, scales, rest = dict[str, Tensor](), dict[str, Tensor](), dict[str, Tensor]()
    done = dict[int, dict[str, Tensor]]()
    for name in order:
        tensor = weights[name]
        if id(tensor) not in done:
            done[id(tensor)] = to_panels(tensor, weights[name + SCALE], weights.get(name + MINIMUM))
        made = done[id(tensor)]
        panels[name], rest[name + SHAPE] = made[""], made[SHAPE]
        if SCALE in made:
            scales[name + SCALE] = made[SCALE]
    taken = {name + suffix for name in order for suffix in ("", SCALE, MINIMUM)}
    rest |= {name: tensor for name, tensor in weights.items() if name not in taken}
    return pack(panels | scales | rest, ordered=len(panels) + len(scales))


def to_panels(matrix: Tensor, scale: Tensor, least: Tensor | None = None) -> dict[str, Tensor]:
    """A quantized matrix in panels, by the suffixes of their names."""
    rows, blocks = len(matrix), scale.dim() == 2
    more = -rows % LANES
    shape = torch.tensor([rows, matrix.shape[1] * (2 if matrix.dtype == torch.uint8 else 1)])
    if not blocks:
        unsigned = (F.pad(matrix.short(), (0, -matrix.shape[1] % 4, 0, more)) + 128).to(torch.uint8)
        packed = unsigned.view(-1, LANES, unsigned.shape[1] // 4, 4).transpose(1, 2)
        return {"": packed.contiguous(), SCALE: F.pad(scale.float(), (0, more)), SHAPE: shape}
    if matrix.dtype == torch.uint8:  # two numbers in a byte: i and i + 16 of a block are those of quads j and j + 4
        numbers = F.pad(matrix, (0, 0, 0, more))
    else:
        numbers, least = (F.pad(matrix.short(), (0, 0, 0, more)) + 128).to(torch.uint8), -128.0 * scale.float()
    assert least is not None
    halves = torch.stack([F.pad(part.half(), (0, 0, 0, more)) for part in (scale, least)])  # (2, rows, blocks)
    count = scale.shape[1]
    head = (
        halves.view(2, -1, LANES, count).permute(1, 3, 0, 2).contiguous().view(torch.uint8)
    )  # (panels, blocks, 2, bytes)
    body = numbers.view(-1, LANES, count, numbers.shape[1] // count // 4, 4).permute(0, 2, 3, 1, 4)
    return {"": torch.cat([head.flatten(2), body.flatten(2)], 2), SHAPE: shape}


def from_panels(name: str, packed: Tensor, shape: Tensor, scale: Tensor | None) -> Tensor:
    """The numbers of a matrix in panels."""
    fault = CheckpointError(f"the weight {name} is in panels that do not fit its shape and scales")
    if shape.dtype != torch.int64 or shape.shape != (2,) or packed.dtype != torch.uint8 or packed.dim() < 3:
        raise fault
    rows, cols = shape.tolist()
    if not (0 < rows < MAX_SIZE and 0 < cols < MAX_SIZE) or len(packed) != -(-rows // LANES):
        raise fault
    lanes = len(packed) * LANES
    if packed.dim() == 4:
        whole = scale is not None and scale.shape == (lanes,) and scale.is_floating_point()
        if scale is None or not whole or packed.shape[1:] != (-(-cols // 4), LANES, 4):
            raise fault
        signed = packed.transpose(1, 2).reshape(lanes, -1).float() - 128
        return (signed * scale.float().unsqueeze(1))[:rows, :cols].contiguous()
    if packed.dim() != 3 or packed.shape[2] not in BLOCK_BYTES or packed.shape[1] * BLOCK != cols:
        raise fault
    count = packed.shape[1]
    halves = packed[:, :, : 4 * LANES].contiguous().view(torch.float16).view(-1, count, 2, LANES).permute(2, 0, 3, 1)
    scales, least = (part.reshape(lanes, count, 1).float() for part in halves)
    body = (
        packed[:, :, 4 * LANES :]
        .view(len(packed), count, -1, LANES, 4)
        .permute(0, 3, 1, 2, 4)
        .reshape(lanes, count, -1)
    )
    if body.shape[2] == BLOCK:
        numbers = (body.float() - 128) * scales  # exact: the minimum is -128 times the scale
    else:
        numbers = torch.cat([body & 15, body >> 4], 2).float() * scales + least
    out: Tensor = numbers[:rows].flatten(1)
    return out


def quantize_rows(matrix: Tensor) -> dict[str, Tensor]:
    """int8 with a scale per row, by the suffixes of their names."""
    scale = matrix.float().abs().amax(1).clamp(min=1e-30) / 127
    return {"": (matrix.float() / scale.unsqueeze(1)).round().to(torch.int8), SCALE: scale}


def quantize_blocks(matrix: Tensor, bits: int) -> dict[str, Tensor]:
    """Blocks of 4 or 8 bits, by the suffixes of their names."""
    parts = [
        (_blocks_of_8 if bits == 8 else _blocks_of_4)(some) for some in torch.split(matrix.float().contiguous(), ROWS)
    ]
    return {suffix: torch.cat([part[suffix] for part in parts]) for suffix in parts[0]}


def _blocks_of_8(matrix: Tensor) -> dict[str, Tensor]:
    x = matrix.view(len(matrix), -1, BLOCK)
    scale = (x.abs().amax(2) / 127).half()
    q = (x / scale.float().clamp(min=1e-30).unsqueeze(2)).round().clamp(-127, 127)
    return {"": q.to(torch.int8).flatten(1), SCALE: scale}


def _blocks_of_4(matrix: Tensor) -> dict[str, Tensor]:
    """The levels with the least squared error among a few ranges, each fitted to the numbers that take them."""
    x = matrix.view(len(matrix), -1, BLOCK)
    low, high = x.amin(2, keepdim=True), x.amax(2, keepdim=True)
    best: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    for shrink in SHRINKS:
        center, width = (low + high) / 2, (high - low) * shrink
        u = ((x - (center - width / 2)) / (width / 15).clamp(min=1e-30)).round().clamp(0, 15)
        scale, least = (part.half().float() for part in _fit_line(u, x))
        u = ((x - least) / torch.where(scale.abs() < 1e-30, torch.ones_like(scale), scale)).round().clamp(0, 15)
        error = (u * scale + least - x).square().sum(2, keepdim=True)
        if best is None:
            best = u, scale, least, error
        else:
            better = error < best[3]
            best = (*(torch.where(better, a, b) for a, b in zip((u, scale, least, error), best, strict=True)),)  # type: ignore[assignment]
    assert best is not None
    u, scale, least, _ = best
    levels = u.to(torch.uint8)
    packed = levels[..., : BLOCK // 2] | (levels[..., BLOCK // 2 :] << 4)
    return {"": packed.flatten(1), SCALE: scale.squeeze(2).half(), MINIMUM: least.squeeze(2).half()}


def _fit_line(u: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The line scale · u + least with the least squared error in each block."""
    mean_u, mean_x = u.mean(2, keepdim=True), x.mean(2, keepdim=True)
    spread = (u - mean_u).square().sum(2, keepdim=True)
    scale = ((u - mean_u) * (x - mean_x)).sum(2, keepdim=True) / spread.clamp(min=1e-30)
    return scale, mean_x - scale * mean_u


def is_quantized(weights: Mapping[str, Tensor]) -> bool:
    """True if some of the weights are whole numbers with scales."""
    return any(name + SCALE in weights or name + SHAPE in weights for name in weights)


def restore_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights as torch uses them: whole numbers times their scales."""
    whole = (torch.int8, torch.uint8)
    if not any(tensor.dtype in whole for tensor in weights.values()):
        return dict(weights)
    known, out = dict[int, Tensor](), dict[str, Tensor]()
    for name, tensor in weights.items():
        if tensor.dtype not in whole:
            stem = name.removesuffix(SCALE).removesuffix(MINIMUM).removesuffix(SHAPE)
            if stem == name or stem not in weights or weights[stem].dtype not in whole:
                out[name] = tensor
            continue
        if id(tensor) not in known:
            known[id(tensor)] = _restore(name, tensor, weights)
        out[name] = known[id(tensor)]
    return out


def _restore(name: str, tensor: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    scale, least, shape = (weights.get(name + suffix) for suffix in (SCALE, MINIMUM, SHAPE))
    if shape is not None:
        return from_panels(name, tensor, shape, scale)
    rows, per_byte = tensor.shape[:1], 2 if tensor.dtype == torch.uint8 else 1
    if tensor.dim() == 2 and scale is not None and scale.is_floating_point():
        blocks = (*rows, tensor.shape[1] * per_byte // BLOCK)
        if tensor.dtype == torch.int8 and scale.shape == rows:
            return tensor.float() * scale.float().unsqueeze(1)
        if scale.shape == blocks and tensor.shape[1] * per_byte % BLOCK == 0:
            if tensor.dtype == torch.int8:
                return (tensor.float().view(*blocks, BLOCK) * scale.float().unsqueeze(2)).flatten(1)
            if least is not None and least.shape == blocks and least.is_floating_point():
                bytes_ = tensor.view(*blocks, BLOCK // 2)
                u = torch.cat([bytes_ & 15, bytes_ >> 4], 2).float()
                return (u * scale.float().unsqueeze(2) + least.float().unsqueeze(2)).flatten(1)
    kind = "int8" if tensor.dtype == torch.int8 else "uint8"
    raise CheckpointError(f"the weight {name} is {kind} and has no scales of its rows or blocks")
