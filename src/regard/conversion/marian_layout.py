"""Marian's layout of a vocabulary: padding starts and is last.

Marian's decoder starts with the padding token, whose vector is zero, and other programs rely on that: CTranslate2 removes the
last row of every table and starts from a zero vector. A model that was trained here has a start token of its own. Its row
becomes that of the padding token, which moves to the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Core
from torch import Tensor

from regard.conversion.hf_tokenizer import with_names
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.embedding import Tokens
from regard.text import Tokenizer
from regard.text.template import Template
from regard.text.tokenizer_specs import BOS, EOS, PAD, UNK

TABLES = ("embed.weight", "head.weight", "head.bias")
"""Weights with a row per token."""


def to_marian_layout(
    spec: ModelSpec, weights: Mapping[str, Tensor], tokenizer: Tokenizer, opening: Sequence[int]
) -> tuple[ModelSpec, dict[str, Tensor], Tokenizer]:
    """Give a model Marian's layout; unchanged if its padding token is its start token already.

    `opening` are the tokens that its encoder reads before a text.
    """
    embed = spec.embed
    assert isinstance(embed, Tokens)
    if tokenizer.bos == tokenizer.pad:
        return spec, dict(weights), tokenizer
    kept = [i for i in range(tokenizer.size) if i not in (tokenizer.pad, tokenizer.bos)]
    rows = torch.tensor([*kept, tokenizer.bos])
    out = {name: tensor[rows.to(tensor.device)] if name in TABLES else tensor for name, tensor in weights.items()}
    if embed.zero == tokenizer.bos:
        out["embed.weight"][-1] = 0.0
    spec = spec.replace("embed.vocab", len(rows)).replace("embed.zero", None)
    front = [tokenizer.pad if i == tokenizer.bos else i for i in opening]
    return spec, out, _renumber(tokenizer, {old: new for new, old in enumerate([*kept, tokenizer.pad])}, front)


def starts_from_zero(weights: Mapping[str, Tensor], tokenizer: Tokenizer) -> bool:
    """True if the decoder starts from a zero vector."""
    return not weights["embed.weight"][tokenizer.bos].any()


def _renumber(tokenizer: Tokenizer, ids: Mapping[int, int], opening: Sequence[int]) -> Tokenizer:
    """The tokenizer with other ids; tokens without one are left out. Padding is also the start token."""
    state, roles = json.loads(tokenizer.core.to_str()), {PAD: tokenizer.pad, BOS: tokenizer.pad, EOS: tokenizer.eos}
    names = {role: tokenizer.spell(i) for role, i in (roles | {UNK: tokenizer.unk}).items()}
    state["model"] = _renumber_model(state["model"], ids)
    added = [token | {"id": ids[token["id"]]} for token in state["added_tokens"] if token["id"] in ids]
    state["added_tokens"] = sorted(added, key=lambda token: token["id"])
    state["post_processor"] = None
    core = Core.from_str(json.dumps(state))
    around = {tokenizer.spell(i): ids[i] for i in (*opening, tokenizer.eos)}
    template = Template.of([*map(tokenizer.spell, opening)], [names[EOS]], around, segment=0)
    return with_names(core, template, names, Path("tokenizer.json"))


def _renumber_model(model: dict[str, Any], ids: Mapping[int, int]) -> dict[str, Any]:
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        return model | {"vocab": {name: ids[i] for name, i in vocab.items() if i in ids}}
    pieces = [vocab[old] for old in sorted(ids, key=lambda old: ids[old])]  # a unigram model lists its pieces
    return model | {"vocab": pieces, "unk_id": None if model["unk_id"] is None else ids[model["unk_id"]]}
