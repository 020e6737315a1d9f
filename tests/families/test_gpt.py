"""GPT: what it starts from, and its words. That it is theirs is shown in `tests/conversion`."""

from __future__ import annotations

from typing import Any

import pytest

from regard.errors import UnknownName
from regard.families import gpt
from regard.families.weight_map import import_weights
from regard.nn.blocks.wiring import PostNorm

pytestmark = pytest.mark.numeric


def gpt2(vocab: int, length: int, width: int, depth: int, heads: int, hidden: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocab, n_positions=length, n_embd=width, n_layer=depth, n_head=heads, n_inner=hidden,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def test_the_initial_scales_are_gpt2s() -> None:
    """0.02, and 0.02/√(2·layers) for maps that feed the stream; checked on theirs and ours alike."""
    depth = 4
    mine = dict(gpt.spec(width=64, depth=depth, heads=4, vocab=300, length=64).build(0).named_parameters())
    shapes = {name: tuple(value.shape) for name, value in mine.items()}
    theirs, _ = import_weights(gpt.FORMS[0].names, shapes, dict(gpt2(300, 64, 64, depth, 4, 256).state_dict()))
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


def test_the_first_puts_its_norms_after_and_starts_otherwise() -> None:
    spec = gpt.spec("openai-gpt")
    assert isinstance(spec.decoder.wiring, PostNorm)  # type: ignore[union-attr]
    assert (spec.init, spec.embed.vocab, spec.length) == ("normal", 40478, 512)
    assert gpt.spec("openai-gpt", norm="pre") == gpt.spec("gpt2", vocab=40478, length=512)


def test_an_unknown_norm_placement() -> None:
    with pytest.raises(UnknownName, match=r"^no norm placement 'prre'; did you mean 'pre'\?$"):
        gpt.spec(norm="prre")
