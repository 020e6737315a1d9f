"""Every published size: as many parameters as `transformers` has with the same configuration, and as was published."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from regard import families
from regard.conversion.hf import match_form
from regard.model.net import Net

PUBLISHED = {
    "openai-gpt": 116_534_784,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-v1.1-small": 76_961_152,
    "t5-v1.1-base": 247_577_856,
    "vit-ti16": 5_717_416,
    "vit-s16": 22_050_664,
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
    "smollm2-135m": 134_515_008,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "tinyllama-1.1b": 1_100_048_384,
    "llama-2-7b": 6_738_415_616,
    "bart-base": 139_420_416,
    "bart-large": 406_291_456,
}
"""As their cards and libraries say: of BERT with both heads of pre-training, of ViT with a thousand classes."""


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def theirs(config: dict[str, Any]) -> nn.Module:
    import transformers

    made = transformers.AutoConfig.for_model(**{"pad_token_id": 1, **config})
    model: nn.Module = getattr(transformers, config["architectures"][0])(made)
    return model


@pytest.mark.parametrize("size", families.sizes())
def test_as_many_parameters_as_theirs(size: str) -> None:
    name, said = families.sizes()[size], families.paper(size)
    with torch.device("meta"):
        net = families.find(name)(size).build()
        if hasattr(getattr(families, name), "FORMS"):
            assert count(net) == learned(net)
    assert count(net) == PUBLISHED.get(size, count(net))
    # Papers round, count with or without embeddings and heads, or have another vocabulary: none is off by a third.
    assert said is None or abs(count(net) - said) < said / 3


def learned(net: Net) -> int:
    """How many parameters a model of theirs has with the same configuration, as far as they are learned."""
    form, _, config = match_form(net.spec)
    other = theirs(config)
    if form.kind == "marian":  # theirs counts its waves, which are not learned, and does not count the bias, which is
        waves = sum(p.numel() for name, p in other.named_parameters() if "embed_positions" in name)
        return count(other) - waves + net.spec.embed.vocab
    if form.kind == "t5" and not config["tie_word_embeddings"]:  # a new model of theirs is tied in any case
        return count(other) + net.spec.embed.vocab * net.spec.width
    return count(other)
