"""The Transformer family against `torch.nn.Transformer`: outputs and every gradient, in double precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regard.families import transformer
from regard.model.net import Net
from regard.nn.core.context import Context, Memory
from regard.nn.core.coords import Coords

pytestmark = pytest.mark.numeric

WIDTH, HEADS, HIDDEN, DEPTH = 12, 3, 20, 2
CLOSE = {"rtol": 0.0, "atol": 1e-10}

SUBLAYERS = {
    # ours: torch's, in an encoder layer and in a decoder layer
    "mix": ("self_attn", "self_attn"),
    "cross": (None, "multihead_attn"),
    "feed.up": ("linear1", "linear1"),
    "feed.down": ("linear2", "linear2"),
    "mix_norm": ("norm1", "norm1"),
    "cross_norm": (None, "norm2"),
    "feed_norm": ("norm2", "norm3"),
}


def torchs(activation: str, norm_first: bool) -> nn.Transformer:
    """Theirs, built by hand: by default it would put a norm at the end of post-norm stacks too."""
    same = {"dim_feedforward": HIDDEN, "dropout": 0.0, "activation": activation, "batch_first": True}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, HEADS, norm_first=norm_first, **same),  # type: ignore[arg-type]
        DEPTH,
        norm=nn.LayerNorm(WIDTH) if norm_first else None,
        enable_nested_tensor=False,
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(WIDTH, HEADS, norm_first=norm_first, **same),  # type: ignore[arg-type]
        DEPTH,
        norm=nn.LayerNorm(WIDTH) if norm_first else None,
    )
    made = nn.Transformer(WIDTH, HEADS, custom_encoder=encoder, custom_decoder=decoder, batch_first=True).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.4)
    return made


def by_our_names(values: dict[str, Tensor], norm_first: bool) -> dict[str, Tensor]:
    """Their tensors (weights or gradients) under our names."""
    out = {}
    for side, stack in enumerate(("encoder", "decoder")):
        for i in range(DEPTH):
            for ours, theirs in SUBLAYERS.items():
                name, to = f"{stack}.layers.{i}.{theirs[side]}", f"{stack}.blocks.{i}.{ours}"
                if theirs[side] is None:
                    continue
                for kind in ("weight", "bias"):
                    if f"{name}.in_proj_{kind}" not in values:
                        out[f"{to}.{kind}"] = values[f"{name}.{kind}"]
                        continue
                    for part, value in zip("qkv", values[f"{name}.in_proj_{kind}"].chunk(3), strict=True):
                        out[f"{to}.{part}.{kind}"] = value
                    out[f"{to}.out.{kind}"] = values[f"{name}.out_proj.{kind}"]
        if norm_first:
            out |= {f"{stack}.norm.{kind}": values[f"{stack}.norm.{kind}"] for kind in ("weight", "bias")}
    return out


def ours(reference: nn.Transformer, activation: str, norm_first: bool) -> Net:
    spec = transformer.spec(
        width=WIDTH, depth=DEPTH, heads=HEADS, hidden=HIDDEN, vocab=5, activation=activation, dropout=0.0,
        norm="pre" if norm_first else "post",
    )  # fmt: skip
    net = spec.build().double()
    missing, unexpected = net.load_state_dict(
        by_our_names(dict(reference.named_parameters()), norm_first), strict=False
    )
    assert (missing, unexpected) == (["embed.weight"], [])
    return net


@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_outputs_and_gradients_are_torchs(norm_first: bool, activation: str, padded: bool, training: bool) -> None:
    reference = torchs(activation, norm_first).train(training)
    net = ours(reference, activation, norm_first).train(training)
    source, target = (torch.randn(3, n, WIDTH, dtype=torch.double, requires_grad=True) for n in (7, 5))
    at_s, at_t = (Coords.lengths([n, 3, 1]) if padded else Coords.span(n) for n in (7, 5))
    kept = at_t.kept.expand(3, 5)

    def hidden(at: Coords) -> Tensor | None:
        return ~at.kept if padded else None

    theirs = reference(
        source,
        target,
        tgt_mask=torch.ones(5, 5).triu(1).bool(),
        src_key_padding_mask=hidden(at_s),
        tgt_key_padding_mask=hidden(at_t),
        memory_key_padding_mask=hidden(at_s),
    )
    assert net.encoder is not None
    assert net.decoder is not None
    memory, _ = net.encoder(source, Context(at_s))
    mine, _ = net.decoder(target, Context(at_t, memory=Memory(memory, memory, at_s)))
    torch.testing.assert_close(mine[kept], theirs[kept], **CLOSE)

    pull = torch.randn_like(mine[kept])
    params = dict(reference.named_parameters())
    wanted = torch.autograd.grad((theirs[kept] * pull).sum(), [source, target, *params.values()])
    named = by_our_names(dict(zip(params, wanted[2:], strict=True)), norm_first)
    own = {n: p for n, p in net.named_parameters() if n in named}
    got = torch.autograd.grad((mine[kept] * pull).sum(), [source, target, *own.values()])
    for name, a, b in zip(("source", "target", *own), got, [*wanted[:2], *(named[n] for n in own)], strict=True):
        torch.testing.assert_close(a, b, **CLOSE, msg=lambda m, name=name: f"{name}: {m}")
    assert set(own) == {n for n, _ in net.named_parameters()} - {"embed.weight"}
