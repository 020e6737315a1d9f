"""Llama and its kin against `transformers`: logits with padding on either side, cached decoding, sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.families import llama
from regard.model.model import Net
from regard.nn.coords import Coords
from tests.families.naming import close, count, put, saved

TINY: dict[str, Any] = dict(
    width=16, depth=2, heads=4, kv_heads=2, head_width=None, hidden=24, vocab=23, length=32, base=1e4, eps=1e-5
)
KINDS: dict[str, dict[str, Any]] = {
    "tied": TINY | dict(tied=True),
    "untied": TINY | dict(tied=False, base=500.0),
    "qwen3": TINY | dict(tied=True, head_width=6, qk_norm=True, eps=1e-3),
}


def theirs(shape: dict[str, Any]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    made: dict[str, Any] = dict(
        vocab_size=shape["vocab"], hidden_size=shape["width"], intermediate_size=shape["hidden"],
        num_hidden_layers=shape["depth"], num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"],
        head_dim=shape.get("head_width") or shape["width"] // shape["heads"], rms_norm_eps=shape["eps"],
        tie_word_embeddings=shape["tied"], max_position_embeddings=shape["length"],
        rope_parameters={"rope_type": "default", "rope_theta": shape["base"]}, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    if shape.get("qk_norm"):
        return Qwen3ForCausalLM(Qwen3Config(**made)).eval()
    return LlamaForCausalLM(LlamaConfig(**made)).eval()


def pair(kind: str, folder: Path) -> tuple[Net, Any]:
    other = theirs(KINDS[kind])
    return put(llama.spec(**KINDS[kind]).build(), saved(other, folder), llama.NAMES), other


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_theirs(kind: str, left: bool, tmp_path: Path) -> None:
    net, other = pair(kind, tmp_path)
    at, ids = Coords.lengths([12, 7, 3], left=left), torch.randint(23, (3, 12))
    with torch.no_grad():
        wanted = other(input_ids=ids, attention_mask=at.kept.long(), position_ids=at.pos.clamp(min=0)).logits
        close(net.logits(net(ids, at))[at.kept], wanted[at.kept])


@pytest.mark.parametrize("kind", KINDS)
def test_cached_decoding_is_theirs(kind: str, tmp_path: Path) -> None:
    """A prompt, then a token at a time, both sides remembering."""
    net, other = pair(kind, tmp_path)
    ids, state, cache = torch.randint(23, (2, 9)), net.start(2, 9), None
    with torch.no_grad():
        for a, b in [(0, 5), (5, 6), (6, 7), (7, 9)]:
            stream, state = net.decode(ids[:, a:b], Coords.span(b - a, a), state=state)  # type: ignore[assignment]
            said = other(input_ids=ids[:, a:b], past_key_values=cache, use_cache=True)
            cache = said.past_key_values
            close(net.logits(stream), said.logits)


PUBLISHED = {
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm2-1.7b": 1_711_376_384,
    "llama-2-7b": 6_738_415_616,
}


@pytest.mark.parametrize("size", [s for s in llama.SIZES if not s.endswith("13b")])
def test_as_many_parameters_as_theirs(size: str) -> None:
    with torch.device("meta"):
        ours = count(llama.spec(size).build())
        assert ours == count(theirs(llama.SIZES[size]))
    assert ours == PUBLISHED.get(size, ours)


def test_heads_given_by_hand_share_keys_only_when_told() -> None:
    def shares(**given: int) -> tuple[int, int]:
        mix = llama.spec(width=32, depth=1, **given).plain()["decoder"]["block"]["mix"]
        return mix["heads"], mix["kv_heads"]

    assert shares() == (9, 3)
    assert shares(heads=4) == (4, 4)
    assert shares(heads=4, kv_heads=2) == (4, 2)
