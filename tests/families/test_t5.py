"""T5: what it starts from, and its words. That it is theirs is shown in `tests/conversion`."""

from __future__ import annotations

import pytest
import torch

from regard.families import t5
from regard.families.weight_map import import_weights

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize("size", ["t5-small", "t5-v1.1-small"])
def test_the_initial_scales_are_t5s(size: str) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    tied, gated = t5.SIZES[size]["tied"], t5.SIZES[size]["gated"]
    spec = t5.spec(size, width=64, depth=2, heads=4, head_width=25, hidden=100, vocab=300)
    ours = dict(spec.build(0).named_parameters())
    made = T5Config(
        vocab_size=300, d_model=64, d_kv=25, d_ff=100, num_layers=2, num_heads=4, decoder_start_token_id=0,
        feed_forward_proj="gated-gelu" if gated else "relu",
    )  # fmt: skip
    made.tie_word_embeddings = tied  # its constructor ties all; what a table of its own would start from is in its code
    torch.manual_seed(0)
    other = dict(T5ForConditionalGeneration(made).state_dict())
    theirs, _ = import_weights(t5.FORMS[0].names, {name: tuple(value.shape) for name, value in ours.items()}, other)
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        if value.numel() > 500:
            assert value.std().item() == pytest.approx(theirs[name].std().item(), rel=0.05), name
    assert ours["decoder.blocks.0.mix.q.weight"].std().item() == pytest.approx((64 * 25) ** -0.5, rel=0.05)
    assert ours["embed.weight"].std().item() == pytest.approx(1, rel=0.05)
    if not tied:
        assert ours["head.weight"].std().item() == pytest.approx(1, rel=0.05)


def test_the_dials() -> None:
    spec = t5.spec("t5-v1.1-small", depth=3, decoder_depth=1, dropout=0.2, tied=True)
    plain = spec.plain()
    assert (plain["encoder"]["depth"], plain["decoder"]["depth"]) == (3, 1)
    assert plain["head"] == {"kind": "vocab", "tied": True, "bias": False, "scale": 512**-0.5}
    assert plain["decoder"]["block"]["cross"]["dropout"] == plain["encoder"]["wiring"]["dropout"] == 0.2
    assert spec.room is None


def test_a_scale_apart_from_the_tie() -> None:
    assert t5.spec(scaled=False).plain()["head"] == {"kind": "vocab", "tied": True, "bias": False, "scale": 1.0}
    assert t5.spec("t5-v1.1-small", scaled=True).plain()["head"]["scale"] == 512**-0.5
