"""Small models, one for each thing that the native engine must compute as torch does."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from regard.decode import Hypothesis, SpecialTokens
from regard.families import bart, gpt, llama, marian, t5, transformer
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.wiring import Bare, PreNorm, WiringSpec
from regard.nn.core.mask import Window
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm, RMSNorm
from regard.nn.mixers import Full
from regard.nn.mixers.local import Local
from regard.nn.positions.position import ALiBi, Bucketed, PositionSpec, Relative, Rotary
from regard.nn.positions.rope_scaling import Llama3Scaling, YarnScaling

VOCAB = 53
SPECIAL = SpecialTokens(bos=1, eos=2, pad=0)
SHAPE = dict(width=32, depth=2, heads=4, hidden=48, vocab=VOCAB, dropout=0.0)
FAMILIES: dict[str, ModelSpec] = {
    "transformer": transformer.spec(**SHAPE),  # type: ignore[arg-type]
    "pre": transformer.spec(**SHAPE, norm="pre", activation="gelu", gated=True, tied=False, source_vocab=41),  # type: ignore[arg-type]
    "parallel": transformer.spec(**SHAPE, norm="parallel", activation="silu"),  # type: ignore[arg-type]
    "t5": t5.spec(**SHAPE, head_width=8, activation="gelu_tanh", gated=True, buckets=8, reach=12),  # type: ignore[arg-type]
    "bart": bart.spec(**SHAPE),  # type: ignore[arg-type]
    "marian": marian.spec(**SHAPE),  # type: ignore[arg-type]
    "marian from a zero vector": marian.spec(**SHAPE, start=1),  # type: ignore[arg-type]
    "gpt": gpt.spec(width=32, depth=2, heads=4, vocab=VOCAB, length=64, dropout=0.0),
    "llama": llama.spec(
        width=32, depth=2, heads=4, kv_heads=2, hidden=48, vocab=VOCAB, length=64, window=5, qk_norm=True, bias="qkv"
    ),
}


def decoder(
    mix: Full | Local, position: PositionSpec | None = None, wiring: WiringSpec = PreNorm(LayerNorm())
) -> ModelSpec:
    """A decoder alone with this mixer; its feed-forward width is no multiple of anything."""
    block = Block(mix=mix, feed=FeedForward(37, "tanh"))
    return ModelSpec(
        width=24, length=64, embed=Tokens(VOCAB, segments=2, norm=RMSNorm()),
        decoder=Stack(block, depth=2, causal=True, wiring=wiring, position=position), head=Vocab(tied=False, bias=True),
    )  # fmt: skip


PARTS: dict[str, ModelSpec] = {
    "alibi": decoder(Full(3), ALiBi()),
    "buckets": decoder(Full(3), Bucketed(8, 12)),
    "shaw": decoder(Full(3), Relative(3)),
    "shaw of one layer, keys only": decoder(Full(3, position=Relative(2, values=False))),
    "rotary pairs of half a head": decoder(Full(2), Rotary(layout="pairs", share=0.5)),
    "rotary for longer texts": decoder(Full(2), Rotary(rope_scaling=YarnScaling(4.0, 8))),
    "rotary of Llama 3": decoder(Full(2, position=Rotary(rope_scaling=Llama3Scaling(4.0, 8)))),
    "window": decoder(Full(3, mask=Window(2))),
    "dilated window": decoder(Full(3, mask=Window(2, dilation=2))),
    "local": decoder(Local(3, reach=2)),
    "grouped heads of their own width": decoder(Full(4, kv_heads=2, head_width=5, scale=0.3, bias=False)),
    "normalized queries and keys": decoder(Full(3, qk_norm=LayerNorm())),
    "bare": decoder(Full(3), wiring=Bare()),
}
ALL = FAMILIES | PARTS


def build(spec: ModelSpec, seed: int = 1) -> Net:
    """A model whose every weight matters: norms and biases are not left at one and zero."""
    net = spec.build(seed=seed).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
    return net


def make_sources(net: Net, count: int = 9, seed: int = 5) -> list[list[int]]:
    """Texts of one to eight tokens, with an end mark where an encoder reads them."""
    draw, end = random.Random(seed), [] if net.encoder is None else [SPECIAL.eos]
    vocab = (net.spec.source or net.spec.embed).vocab
    return [[draw.randrange(3, vocab) for _ in range(draw.randrange(1, 9))] + end for _ in range(count)]


def differ(
    found: Sequence[Sequence[Hypothesis]], wanted: Sequence[Sequence[Hypothesis]], tolerance: float = 1e-4
) -> list[int]:
    """Inputs whose hypotheses differ: other tokens with scores that are not just as good, or other scores."""
    out = []
    for i, (one, other) in enumerate(zip(found, wanted, strict=True)):
        same = len(one) == len(other) and all(
            abs(a.score - b.score) <= tolerance and (a.tokens != b.tokens or abs(a.log_prob - b.log_prob) <= tolerance)
            for a, b in zip(one, other, strict=True)
        )
        if not same:
            out.append(i)
    return out
