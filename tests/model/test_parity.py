"""Other people's models, composed from our parts: Llama (rotary, grouped heads, gates) and T5 (buckets, no scale).

Together with GPT-2, Marian and torch's own Transformer in `tests/families` these meet every part of the core in company.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard.model.spec import ModelSpec
from regard.nn.block import Block
from regard.nn.body import Stack
from regard.nn.coords import Coords
from regard.nn.embed import Tokens
from regard.nn.feedforward import FeedForward
from regard.nn.head import Vocab
from regard.nn.mixers import Full
from regard.nn.norm import RMSNorm
from regard.nn.position import Bucketed, Rotary
from regard.nn.wiring import PreNorm

VOCAB, WIDTH, HIDDEN, DEPTH, LENGTH = 23, 16, 24, 2, 32

LLAMA = {
    # ours: Llama's
    "mix.q": "self_attn.q_proj",
    "mix.k": "self_attn.k_proj",
    "mix.v": "self_attn.v_proj",
    "mix.out": "self_attn.o_proj",
    "feed.gate": "mlp.gate_proj",
    "feed.up": "mlp.up_proj",
    "feed.down": "mlp.down_proj",
    "mix_norm": "input_layernorm",
    "feed_norm": "post_attention_layernorm",
}


def shaken(model: torch.nn.Module) -> dict[str, Tensor]:
    """Their weights, far from where they start."""
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.3)
    return dict(model.state_dict())


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_llama(left: bool) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=DEPTH, num_attention_heads=4,
            num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
        )
    ).eval()  # fmt: skip
    w = shaken(theirs)
    named = {"embed.weight": w["model.embed_tokens.weight"], "head.weight": w["lm_head.weight"]}
    named["decoder.norm.weight"] = w["model.norm.weight"]
    for i in range(DEPTH):
        named |= {f"decoder.blocks.{i}.{a}.weight": w[f"model.layers.{i}.{b}.weight"] for a, b in LLAMA.items()}
    block = Block(mix=Full(4, kv_heads=2, bias=False), feed=FeedForward(HIDDEN, "silu", gated=True, bias=False))
    stack = Stack(block, depth=DEPTH, causal=True, wiring=PreNorm(RMSNorm(eps=1e-5)), position=Rotary())
    net = ModelSpec(WIDTH, LENGTH, Tokens(VOCAB), decoder=stack, head=Vocab(tied=False)).build().eval()
    net.load_state_dict(named)

    at, ids = Coords.lengths([12, 7, 3], left=left), torch.randint(VOCAB, (3, 12))
    with torch.no_grad():
        wanted = theirs(input_ids=ids, attention_mask=at.kept.long(), position_ids=at.pos.clamp(min=0)).logits
        mine = net.logits(net(ids, at))
    torch.testing.assert_close(mine[at.kept], wanted[at.kept], rtol=0, atol=1e-5)


def t5_names(w: dict[str, Tensor]) -> dict[str, Tensor]:
    out = {"embed.weight": w["shared.weight"]}
    for side, roles in (("encoder", ("mix", "feed")), ("decoder", ("mix", "cross", "feed"))):
        out[f"{side}.norm.weight"] = w[f"{side}.final_layer_norm.weight"]
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        out[f"{side}.position.weight"] = w[bias]
        for i in range(DEPTH):
            for j, role in enumerate(roles):
                ours, layer = f"{side}.blocks.{i}.{role}", f"{side}.block.{i}.layer.{j}"
                out[f"{ours}_norm.weight"] = w[f"{layer}.layer_norm.weight"]
                if role == "feed":
                    out |= {
                        f"{ours}.{a}.weight": w[f"{layer}.DenseReluDense.{b}.weight"]
                        for a, b in (("up", "wi"), ("down", "wo"))
                    }
                else:
                    kind = "SelfAttention" if role == "mix" else "EncDecAttention"
                    parts = (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o"))
                    out |= {f"{ours}.{a}.weight": w[f"{layer}.{kind}.{b}.weight"] for a, b in parts}
    return out


def test_t5() -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    theirs = T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCAB, d_model=WIDTH, d_kv=6, d_ff=HIDDEN, num_layers=DEPTH, num_heads=4, dropout_rate=0.0,
            relative_attention_num_buckets=8, relative_attention_max_distance=10, tie_word_embeddings=True,
            pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
        )
    ).eval()  # fmt: skip
    w = shaken(theirs)
    look, feed = Full(4, head_width=6, scale=1.0, bias=False), FeedForward(HIDDEN, bias=False)
    shared = {"depth": DEPTH, "wiring": PreNorm(RMSNorm(eps=1e-6)), "position": Bucketed(8, 10)}
    spec = ModelSpec(
        WIDTH,
        LENGTH,
        Tokens(VOCAB),
        encoder=Stack(Block(mix=look, feed=feed), **shared),  # type: ignore[arg-type]
        decoder=Stack(Block(mix=look, cross=look, feed=feed), causal=True, **shared),  # type: ignore[arg-type]
        head=Vocab(scale=WIDTH**-0.5),
    )
    net = spec.build().eval()
    net.load_state_dict(t5_names(w))

    source_at, target_at = Coords.lengths([15, 4, 9]), Coords.lengths([6, 13, 2])
    source, target = torch.randint(VOCAB, (3, 15)), torch.randint(VOCAB, (3, 13))
    with torch.no_grad():
        wanted = theirs(
            input_ids=source,
            attention_mask=source_at.kept.long(),
            decoder_input_ids=target,
            decoder_attention_mask=target_at.kept.long(),
        ).logits
        mine = net.logits(net(target, target_at, (source, source_at)))
    torch.testing.assert_close(mine[target_at.kept], wanted[target_at.kept], rtol=0, atol=1e-5)
