"""GPT against GPT-2 of `transformers`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.errors import UnknownName
from regard.families import gpt
from regard.nn.coords import Coords

NAMES = {
    # ours: GPT-2's, whose maps are stored the other way round
    "mix.out": "attn.c_proj",
    "feed.up": "mlp.c_fc",
    "feed.down": "mlp.c_proj",
    "mix_norm": "ln_1",
    "feed_norm": "ln_2",
}


def gpt2(vocab: int, length: int, width: int, depth: int, heads: int, hidden: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocab, n_positions=length, n_embd=width, n_layer=depth, n_head=heads, n_inner=hidden,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def by_our_names(values: dict[str, torch.Tensor], depth: int) -> dict[str, torch.Tensor]:
    out = {"embed.weight": values["transformer.wte.weight"], "embed.position.weight": values["transformer.wpe.weight"]}
    for kind in ("weight", "bias"):
        out[f"decoder.norm.{kind}"] = values[f"transformer.ln_f.{kind}"]
        for i in range(depth):
            for ours, theirs in NAMES.items():
                out[f"decoder.blocks.{i}.{ours}.{kind}"] = values[f"transformer.h.{i}.{theirs}.{kind}"].t()
            joined = values[f"transformer.h.{i}.attn.c_attn.{kind}"].t()
            for part, value in zip("qkv", joined.chunk(3), strict=True):
                out[f"decoder.blocks.{i}.mix.{part}.{kind}"] = value
    return out


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_logits_are_gpt2s(left: bool) -> None:
    theirs = gpt2(23, 12, 16, 3, 4, 24)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    net = gpt.spec(width=16, depth=3, heads=4, hidden=24, vocab=23, length=12).build().eval()
    net.load_state_dict(by_our_names(theirs.state_dict(), 3))
    at, ids = Coords.lengths([9, 12, 3], left=left), torch.randint(23, (3, 12))
    with torch.no_grad():
        wanted = theirs(input_ids=ids, attention_mask=at.kept.long(), position_ids=at.pos.clamp(min=0)).logits
        mine = net.logits(net(ids, at))
    torch.testing.assert_close(mine[at.kept], wanted[at.kept], rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", gpt.SIZES)
def test_as_many_parameters_as_published(size: str) -> None:
    with torch.device("meta"):
        ours = sum(p.numel() for p in gpt.spec(size).build().parameters())
        theirs = sum(p.numel() for p in gpt2(50257, 1024, **gpt.SIZES[size]).parameters())
    assert ours == theirs
    published = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200}
    assert ours == published[size]


def test_the_initial_scales_are_gpt2s() -> None:
    """0.02, and 0.02/√(2·layers) for maps that feed the stream; checked on theirs and ours alike."""
    depth = 4
    mine = dict(gpt.spec(width=64, depth=depth, heads=4, vocab=300, length=64).build(0).named_parameters())
    theirs = by_our_names(dict(gpt2(300, 64, 64, depth, 4, 256).state_dict()), depth)
    assert set(mine) == set(theirs)
    for name, value in mine.items():
        small = name.endswith(("out.weight", "down.weight"))
        wanted = 0.02 / (2 * depth) ** 0.5 if small else 0.02
        for tensor in (value, theirs[name]):
            if name.endswith("bias"):
                assert (tensor == 0).all()
            elif "norm" in name:
                assert (tensor == 1).all()
            else:
                assert tensor.std().item() == pytest.approx(wanted, rel=0.08), name


def test_without_biases_there_are_none() -> None:
    net = gpt.spec(width=16, depth=1, heads=2, vocab=9, length=8, bias=False).build()
    assert not [name for name, _ in net.named_parameters() if name.endswith("bias")]


def test_the_hidden_width_follows_the_width() -> None:
    assert gpt.spec(width=32, heads=2, depth=1).plain()["decoder"]["block"]["feed"]["width"] == 128
    assert gpt.spec(width=32, heads=2, depth=1, hidden=50).plain()["decoder"]["block"]["feed"]["width"] == 50


def test_an_unknown_size() -> None:
    with pytest.raises(UnknownName, match=r"^no size 'gpt2-medum'; did you mean 'gpt2-medium'\?$"):
        gpt.spec("gpt2-medum")
