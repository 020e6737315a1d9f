"""The Transformer family against Marian of `transformers`: logits, costs, and its own words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.errors import UnknownName
from regard.families import transformer
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.body import Stack
from regard.nn.blocks.wiring import Parallel, PostNorm, PreNorm
from regard.nn.core.coords import Coords

pytestmark = pytest.mark.numeric

NAMES = {
    # ours: Marian's
    "mix.{}": "self_attn.{}_proj",
    "cross.{}": "encoder_attn.{}_proj",
    "mix_norm": "self_attn_layer_norm",
    "cross_norm": "encoder_attn_layer_norm",
    "feed.up": "fc1",
    "feed.down": "fc2",
    "feed_norm": "final_layer_norm",
}


def marian(vocab: int, **sizes: Any) -> Any:
    from transformers import MarianConfig, MarianMTModel

    both = {"layers": sizes["depth"], "attention_heads": sizes["heads"], "ffn_dim": sizes["hidden"]}
    config = MarianConfig(
        vocab_size=vocab, d_model=sizes["width"], scale_embedding=True, max_position_embeddings=32,
        activation_function=sizes.get("activation", "relu"), pad_token_id=0, eos_token_id=0, decoder_start_token_id=0,
        **{f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in both.items()},
    )  # fmt: skip
    return MarianMTModel(config).eval()


def by_our_names(values: dict[str, torch.Tensor], depth: int) -> dict[str, torch.Tensor]:
    out = {"embed.weight": values["model.shared.weight"], "head.bias": values["final_logits_bias"][0]}
    for side in ("encoder", "decoder"):
        for i in range(depth):
            for ours, theirs in NAMES.items():
                for part in ("q", "k", "v", "out") if "{}" in ours else ("",):
                    for kind in ("weight", "bias"):
                        name = f"model.{side}.layers.{i}.{theirs.format(part)}.{kind}"
                        if name in values:
                            out[f"{side}.blocks.{i}.{ours.format(part)}.{kind}"] = values[name]
    return out


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
def test_logits_are_marians(activation: str) -> None:
    sizes: dict[str, Any] = {"width": 16, "depth": 2, "heads": 4, "hidden": 24}
    theirs = marian(23, **sizes, activation=activation)
    for parameter in theirs.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    theirs.final_logits_bias.normal_()
    activation = activation.replace("swish", "silu")
    spec = transformer.spec(**sizes, vocab=23, activation=activation)
    spec = spec.overlay({"embed": {"position": {"layout": "halves"}}, "head": {"bias": True}})
    net = spec.build().eval()
    net.load_state_dict(by_our_names(theirs.state_dict(), 2))

    at_s, at_t = Coords.lengths([9, 4, 1]), Coords.lengths([6, 7, 3])
    source, target = torch.randint(23, (3, 9)), torch.randint(23, (3, 7))
    with torch.no_grad():
        wanted = theirs(
            input_ids=source,
            attention_mask=at_s.kept.long(),
            decoder_input_ids=target,
            decoder_attention_mask=at_t.kept.long(),
        ).logits
        mine = net.logits(net(target, at_t, (source, at_s)))
    torch.testing.assert_close(mine[at_t.kept], wanted[at_t.kept], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("size", "about"), [("base", 65e6), ("big", 213e6)])
def test_as_many_parameters_as_marian_and_as_the_paper_says(size: str, about: float) -> None:
    """Trainable ones: Marian keeps its sinusoids in a frozen table. The paper's vocabulary is "about 37000" (§5.1)."""
    shape = {k: v for k, v in transformer.SIZES[size].items() if k != "dropout"}
    with torch.device("meta"):
        theirs = sum(p.numel() for p in marian(37000, **shape).parameters() if p.requires_grad)
        ours = sum(p.numel() for p in transformer.spec(size).build().parameters())
    assert ours == theirs
    assert ours == pytest.approx(about, rel=0.04)


class TestWords:
    def stacks(self, spec: ModelSpec) -> tuple[Stack, Stack]:
        assert isinstance(spec.encoder, Stack)
        assert isinstance(spec.decoder, Stack)
        return spec.encoder, spec.decoder

    def test_the_defaults_are_the_papers_base(self) -> None:
        spec = transformer.spec()
        encoder, decoder = self.stacks(spec)
        assert (spec.width, encoder.depth, decoder.depth) == (512, 6, 6)
        assert encoder.wiring == decoder.wiring == PostNorm(dropout=0.1)
        plain = spec.plain()
        assert plain["embed"]["scaled"]
        assert plain["embed"]["position"] == {"kind": "sinusoidal", "layout": "pairs"}
        assert plain["encoder"]["block"]["mix"]["heads"] == 8
        assert plain["decoder"]["block"]["feed"] == {
            "kind": "feed_forward", "width": 2048, "activation": "relu", "gated": False, "bias": True, "dropout": 0.0,
        }  # fmt: skip

    @pytest.mark.parametrize(("norm", "kind"), [("post", PostNorm), ("pre", PreNorm), ("parallel", Parallel)])
    def test_norm_places_the_norms(self, norm: str, kind: type) -> None:
        assert all(isinstance(s.wiring, kind) for s in self.stacks(transformer.spec("tiny", norm=norm)))

    def test_sides_may_differ(self) -> None:
        spec = transformer.spec("tiny", depth=6, decoder_depth=1, source_vocab=50, vocab=70, tied=False)
        encoder, decoder = self.stacks(spec)
        assert (encoder.depth, decoder.depth) == (6, 1)
        net = spec.build()
        assert net.source is not None
        assert (net.source.weight.shape[0], net.embed.weight.shape[0], net.head.weight.shape[0]) == (50, 70, 70)  # type: ignore[union-attr]

    def test_numbers_by_hand_replace_the_sizes_own(self) -> None:
        spec = transformer.spec("big", depth=2, heads=4, dropout=0.0)
        encoder, _ = self.stacks(spec)
        assert (spec.width, encoder.depth, encoder.wiring) == (1024, 2, PostNorm(dropout=0.0))

    def test_unknown_words(self) -> None:
        with pytest.raises(UnknownName, match=r"^no size 'bigg'; did you mean 'big'\?$"):
            transformer.spec("bigg")
        with pytest.raises(UnknownName, match=r"^no norm placement 'prenorm'; did you mean 'pre'\?$"):
            transformer.spec(norm="prenorm")
