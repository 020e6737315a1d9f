"""Llama and its kin: their words. That they are theirs is shown in `tests/conversion`."""

from __future__ import annotations

import pytest

from regard.families import llama

pytestmark = pytest.mark.numeric


def test_heads_given_by_hand_share_keys_only_when_told() -> None:
    def shares(**given: int) -> tuple[int, int]:
        mix = llama.spec(width=32, depth=1, **given).plain()["decoder"]["block"]["mix"]
        return mix["heads"], mix["kv_heads"]

    assert shares() == (9, 3)
    assert shares(heads=4) == (4, 4)
    assert shares(heads=4, kv_heads=2) == (4, 2)


def test_qwen2_has_biases_on_queries_keys_and_values() -> None:
    net = llama.spec("qwen2.5-0.5b", width=16, depth=1, heads=4, hidden=8, vocab=9).build()
    assert sorted(name for name in net.shapes() if name.endswith("bias")) == [
        f"decoder.blocks.0.mix.{part}.bias" for part in "kqv"
    ]
