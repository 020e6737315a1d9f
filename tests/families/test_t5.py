"""T5 against `transformers`: logits of both versions with padding, cached decoding, sizes, initial scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.families import t5
from regard.model.model import Net
from regard.nn.coords import Coords
from tests.families.naming import close, count, put, saved

TINY: dict[str, Any] = dict(width=16, depth=2, heads=4, head_width=6, hidden=24)
VERSIONS = {"1.0": "t5-small", "1.1": "t5-v1.1-small"}


def theirs(shape: dict[str, Any], vocab: int = 32128, buckets: int = 32, reach: int = 128) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=vocab, d_model=shape["width"], d_kv=shape["head_width"], d_ff=shape["hidden"], num_layers=shape["depth"],
        num_heads=shape["heads"], relative_attention_num_buckets=buckets, relative_attention_max_distance=reach,
        feed_forward_proj="gated-gelu" if shape["gated"] else "relu", tie_word_embeddings=shape["tied"],
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
    )  # fmt: skip
    made = T5ForConditionalGeneration(config).eval()
    if not shape["tied"]:  # theirs ties a new model's head in any case; the checkpoints of 1.1 have two tables
        made.lm_head.weight = torch.nn.Parameter(made.lm_head.weight.detach().clone())
    return made


def pair(version: str, folder: Path) -> tuple[Net, Any]:
    other = theirs(t5.SIZES[VERSIONS[version]] | TINY, 23, 8, 10)
    net = t5.spec(VERSIONS[version], **TINY, vocab=23, buckets=8, reach=10).build()
    return put(net, saved(other, folder), t5.NAMES), other


@pytest.mark.parametrize("version", VERSIONS)
def test_logits_are_theirs(version: str, tmp_path: Path) -> None:
    net, other = pair(version, tmp_path)
    at_s, at_t = Coords.lengths([15, 4, 9]), Coords.lengths([6, 13, 2])
    source, target = torch.randint(23, (3, 15)), torch.randint(23, (3, 13))
    with torch.no_grad():
        wanted = other(
            input_ids=source,
            attention_mask=at_s.kept.long(),
            decoder_input_ids=target,
            decoder_attention_mask=at_t.kept.long(),
        ).logits
        close(net.logits(net(target, at_t, (source, at_s)))[at_t.kept], wanted[at_t.kept])


@pytest.mark.parametrize("version", VERSIONS)
def test_cached_decoding_is_theirs(version: str, tmp_path: Path) -> None:
    """Some tokens, then one at a time, both sides remembering."""
    net, other = pair(version, tmp_path)
    source, at_s, target = torch.randint(23, (2, 7)), Coords.lengths([7, 4]), torch.randint(23, (2, 14))
    state, cache = net.start(2, 14), None
    with torch.no_grad():
        memory = net.encode(source, at_s)
        seen = other.encoder(input_ids=source, attention_mask=at_s.kept.long())
        for a, b in [(0, 11), (11, 12), (12, 13), (13, 14)]:
            stream, state = net.decode(target[:, a:b], Coords.span(b - a, a), memory, state)  # type: ignore[assignment]
            said = other(
                encoder_outputs=seen, attention_mask=at_s.kept.long(), decoder_input_ids=target[:, a:b],
                past_key_values=cache, use_cache=True,
            )  # fmt: skip
            cache = said.past_key_values
            close(net.logits(stream), said.logits)


PUBLISHED = {"t5-small": 60_506_624, "t5-v1.1-small": 76_961_152, "t5-base": 222_903_552, "t5-v1.1-base": 247_577_856}


@pytest.mark.parametrize("size", t5.SIZES)
def test_as_many_parameters_as_theirs(size: str) -> None:
    with torch.device("meta"):
        ours = count(t5.spec(size).build())
        assert ours == count(theirs(t5.SIZES[size]))
    assert ours == PUBLISHED.get(size, ours)


def test_the_initial_scales_are_t5s() -> None:
    shape = dict(width=64, depth=2, heads=4, head_width=25, hidden=100)
    ours = dict(t5.spec("t5-v1.1-small", **shape, vocab=300).build(0).named_parameters())  # type: ignore[arg-type]
    other = theirs(t5.SIZES["t5-v1.1-small"] | shape, 300)
    values = {n: v for n, v in other.state_dict().items() if not n.endswith(("embed_tokens.weight", "lm_head.weight"))}
    values["lm_head.weight"] = torch.randn(300, 64) * 64**-0.5  # theirs starts at 1; see `regard.model.init`
    net = put(t5.spec("t5-v1.1-small", **shape, vocab=300).build(), values, t5.NAMES)  # type: ignore[arg-type]
    for name, value in net.named_parameters():
        assert ours[name].std().item() == pytest.approx(value.std().item(), rel=0.2), name
    assert ours["decoder.blocks.0.mix.q.weight"].std().item() == pytest.approx((64 * 25) ** -0.5, rel=0.05)
    assert ours["embed.weight"].std().item() == pytest.approx(1, rel=0.05)


def test_the_dials() -> None:
    spec = t5.spec("t5-v1.1-small", depth=3, decoder_depth=1, dropout=0.2, tied=True)
    plain = spec.plain()
    assert (plain["encoder"]["depth"], plain["decoder"]["depth"]) == (3, 1)
    assert plain["head"] == {"kind": "vocab", "tied": True, "bias": False, "scale": 512**-0.5}
    assert plain["decoder"]["block"]["cross"]["dropout"] == plain["encoder"]["wiring"]["dropout"] == 0.2
    assert spec.room is None
