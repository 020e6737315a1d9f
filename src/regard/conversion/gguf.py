"""Llama-like models from GGUF files.

The metadata gives the spec, and the tokenizer is in the file, too. The rotary positions of llama.cpp pair neighboring numbers
of a query or key, ours pair halves, so the rows of Q and K are reordered here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.conversion.gguf_file import GgufFile
from regard.conversion.gguf_tokenizer import tokenizer
from regard.conversion.hf_origin import Origin
from regard.errors import CheckpointError, DataError, SpecError
from regard.families import llama
from regard.model.model_spec import ModelSpec
from regard.nn.positions.rope_scaling import LinearScaling
from regard.serialization.load import build_outline
from regard.text.tokenizer import Tokenizer

NAMES = (
    # ours, theirs; {} is the layer
    ("embed", "token_embd"),
    ("decoder.blocks.{}.mix_norm", "blk.{}.attn_norm"),
    ("decoder.blocks.{}.mix.q", "blk.{}.attn_q"),
    ("decoder.blocks.{}.mix.k", "blk.{}.attn_k"),
    ("decoder.blocks.{}.mix.v", "blk.{}.attn_v"),
    ("decoder.blocks.{}.mix.out", "blk.{}.attn_output"),
    ("decoder.blocks.{}.mix.q_norm", "blk.{}.attn_q_norm"),
    ("decoder.blocks.{}.mix.k_norm", "blk.{}.attn_k_norm"),
    ("decoder.blocks.{}.feed_norm", "blk.{}.ffn_norm"),
    ("decoder.blocks.{}.feed.gate", "blk.{}.ffn_gate"),
    ("decoder.blocks.{}.feed.up", "blk.{}.ffn_up"),
    ("decoder.blocks.{}.feed.down", "blk.{}.ffn_down"),
    ("decoder.norm", "output_norm"),
    ("head", "output"),
)
_PAIRED = {"llama": True, "qwen3": False}
"""Supported architectures, and whether their rotary positions pair neighbors instead of halves."""


def read(path: Path) -> tuple[ModelSpec, dict[str, Tensor], Tokenizer]:
    """Read the spec, the weights (by our names) and the tokenizer of a file."""
    file = GgufFile(path)
    spec, heads = _spec(file)
    named = _check_weights(file, spec)
    weights = {}
    for ours, theirs in named.items():
        weight = torch.from_numpy(file.read(theirs))
        count = next((n for end, n in heads.items() if ours.endswith(end)), None)
        weights[ours] = weight if count is None else _halves(weight, count)
    return spec, weights, tokenizer(file)


def read_origin(path: Path) -> Origin:
    """Read what a file says besides the model: its chat template."""
    template = GgufFile(path).said.get("tokenizer.chat_template")
    return Origin(tokenizer={"chat_template": template} if isinstance(template, str) else {})


def read_stored(path: Path) -> dict[str, Tensor]:
    """The weights by our names, in blocks of 4 and 8 bits where they are stored so (see `engine/quantized_weights.py`)."""
    file = GgufFile(path)
    spec, heads = _spec(file)
    out = dict[str, Tensor]()
    for ours, theirs in _check_weights(file, spec).items():
        count = next((n for end, n in heads.items() if ours.endswith(end)), None)
        for suffix, part in (file.read_blocks(theirs) or {"": file.read(theirs)}).items():
            tensor = torch.from_numpy(part)
            out[ours + suffix] = tensor if count is None else _halves(tensor, count)
    return out


def _spec(file: GgufFile) -> tuple[ModelSpec, dict[str, int]]:
    """The spec, and the number of heads of weights whose rows must be reordered."""
    said, kind = file.said, file.said.get("general.architecture")
    if not isinstance(kind, str) or kind not in _PAIRED:
        raise DataError(f"{file.path} holds a model of kind {kind!r}; only {' and '.join(_PAIRED)} are supported")
    faults: list[str] = []

    def number(key: str, default: float | None = None, whole: bool = True) -> Any:
        value = said.get(f"{kind}.{key}", default)
        if not isinstance(value, int if whole else int | float) or isinstance(value, bool) or not 0 < value < 2**40:
            faults.append(f"{kind}.{key} should be a number above 0, got {value!r}")
            return 1
        return value

    heads = number("attention.head_count")
    width, kv_heads = number("embedding_length"), number("attention.head_count_kv", heads)
    head_width = number("attention.key_length", width // heads)
    depth, table = number("block_count"), file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        faults.append("token_embd.weight is missing or not a matrix")
    turned, value = number("rope.dimension_count", head_width), number("attention.value_length", head_width)
    if {turned, value} != {head_width}:
        faults.append(
            f"keys are {head_width} wide, {turned} of it rotated, and values {value}; only equal widths are supported"
        )
    scaling = said.get(f"{kind}.rope.scaling.type", "none")
    scaling = "rope_freqs" if "rope_freqs.weight" in file.tensors else scaling
    if scaling not in ("none", "linear"):
        faults.append(
            f"its RoPE scaling is {scaling!r}, and only 'linear' is read from GGUF; convert its Hugging Face folder"
        )
    factor = number("rope.scaling.factor", whole=False) if scaling == "linear" else None
    if said.get(f"{kind}.expert_count"):
        faults.append("it is a mixture of experts")
    shape: dict[str, Any] = dict(
        width=width, depth=depth, heads=heads, kv_heads=kv_heads, head_width=head_width,
        hidden=number("feed_forward_length"), length=number("context_length"),
        base=float(number("rope.freq_base", 10000.0, whole=False)),
        eps=float(number("attention.layer_norm_rms_epsilon", whole=False)),
        tied="output.weight" not in file.tensors, qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
    )  # fmt: skip
    if faults or table is None:
        raise CheckpointError(f"cannot make a model of {file.path}: {'; '.join(faults)}")
    order = {".mix.q.weight": heads, ".mix.k.weight": kv_heads} if _PAIRED[kind] else {}
    if head_width * heads == width:
        shape["head_width"] = None
    try:
        rope_scaling = None if factor is None else LinearScaling(factor)
        return llama.spec(**shape, vocab=table.shape[0], rope_scaling=rope_scaling), order
    except SpecError as error:
        raise CheckpointError(f"cannot make a model of {file.path}: {error}") from None


def _check_weights(file: GgufFile, spec: ModelSpec) -> dict[str, str]:
    """The name in the file of each of our weights; all must be there with their shapes, and no others."""
    try:
        wanted = build_outline(spec, layers=len(file.tensors)).shapes()
    except SpecError as error:
        raise CheckpointError(f"cannot make a model of {file.path}: {error}") from None
    named = {ours: _theirs(ours) for ours in wanted}
    faults = [f"{theirs} is missing" for theirs in named.values() if theirs not in file.tensors]
    faults += [f"{theirs} is not part of this model" for theirs in file.tensors if theirs not in named.values()]
    for ours, theirs in named.items():
        if theirs in file.tensors and (shape := file.tensors[theirs].shape) != wanted[ours]:
            faults.append(f"{theirs} should be {wanted[ours]}, got {shape}")
    if faults:
        raise CheckpointError(f"the weights of {file.path} do not fit its model: {'; '.join(faults)}")
    return named


def _theirs(name: str) -> str:
    """`decoder.blocks.3.mix.q.weight` is `blk.3.attn_q.weight`."""
    part, _, leaf = name.rpartition(".")
    layer = "".join(re.findall(r"\d+", part))
    return f"{_TABLE[re.sub(r'[0-9]+', '{}', part)]}.{leaf}".format(layer)


_TABLE = dict(NAMES)


def _halves(weight: Tensor, heads: int) -> Tensor:
    """Reorder rows from neighbors to halves: the even rows of each head first."""
    return weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
