"""Costs against torch's own counter of floating-point operations."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.families import gpt, t5
from regard.model.cost import Cost, cost
from regard.model.model_spec import ModelSpec
from regard.model.tree import attention_plans, summary, tree
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Classes, HeadSpec, Masked, Vocab
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers import BigBird, Full, XLMemory
from regard.nn.mixers.compress import Pooling
from regard.nn.positions.position import ALiBi, Bucketed, Learned
from regard.nn.positions.relative import Distance

MIX = Full(4, kv_heads=2, head_width=3)
FEED = FeedForward(20, gated=True)


def encoder(**head: bool) -> ModelSpec:
    return ModelSpec(8, 16, Tokens(11), encoder=Stack(Block(mix=MIX, feed=FEED), depth=3), head=Vocab(**head))  # type: ignore[arg-type]


def both() -> ModelSpec:
    return ModelSpec(
        8,
        16,
        Tokens(11),
        encoder=Stack(Block(mix=MIX, feed=FEED), depth=3),
        decoder=Stack(Block(mix=MIX, cross=MIX, feed=FEED), depth=2, causal=True),
    )


def counted(spec: ModelSpec, n: int) -> float:
    """What torch counts for one row of n tokens on either side, on the plain path."""
    net, at, ids = spec.build(), Coords.span(n), torch.zeros(1, n, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net.logits(net(ids, at, (ids, at) if spec.decoder else None, Tape("*")), at)
    return float(counter.get_total_flops())


@pytest.mark.parametrize("spec", [encoder(), encoder(tied=False)], ids=["tied", "untied"])
@pytest.mark.parametrize("n", [1, 7])
def test_flops_are_what_torch_counts(spec: ModelSpec, n: int) -> None:
    assert cost(spec.build(), n).flops * n == counted(spec, n)


@pytest.mark.parametrize("head", [Masked(), Classes(5, None), Classes(5, "mean", hidden=True)], ids=str)
@pytest.mark.parametrize("n", [1, 7])
def test_other_heads_are_counted_too(head: HeadSpec, n: int) -> None:
    """A pooled row is read once, whatever its length."""
    spec = dataclasses.replace(encoder(), head=head)
    assert cost(spec.build(), n).flops * n == pytest.approx(counted(spec, n))


def test_a_causal_mixer_is_charged_half_of_the_square() -> None:
    """The plain path computes all of it, so torch counts more: by two layers of half a square."""
    n = 6
    assert counted(both(), n) - cost(both().build(), n).flops * n == 2 * 4 * (n / 2) * 12 * n


@pytest.mark.parametrize("compress", [None, Pooling(8, 4)], ids=["recent", "compressed"])
def test_a_memory_is_paid_for(compress: Pooling | None) -> None:
    """Keys, values and codes of distances of what is remembered; here, too, torch counts the other half of the square."""
    n, width = 32, 16
    mix = XLMemory(4, memory_length=24, compress=compress)
    spec = ModelSpec(width, n, Tokens(11), decoder=Stack(Block(mix=mix), depth=1, causal=True, position=Distance()))
    body = spec.build(0).eval().decoder
    assert body is not None
    state, counter = body.start(1, n), FlopCounterMode(display=False)
    for i in range(3):
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            _, state = body(torch.randn(1, n, width), Context(Coords.span(n, i * n)), state)
    told = cost(body, n).flops + 4 * (n / 2) * width
    assert told == pytest.approx(counter.get_total_flops() / n, rel=0.05)


def test_parameters_are_counted_once_and_state_where_it_is_kept() -> None:
    """An encoder reads everything at once: it remembers nothing."""
    net = both().build()
    whole = cost(net, 5)
    assert whole.parameters == sum(p.numel() for p in net.parameters())
    assert whole.state == 2 * 2 * 2 * 3
    assert net.encoder is not None
    assert cost(net.encoder, 5).state == 0


def test_keys_of_a_memory_are_made_once_for_all_tokens_that_look() -> None:
    """Twice as long a memory costs twice its keys and values, and twice the looking."""
    cross = both().build().decoder.blocks[0].cross  # type: ignore[union-attr, index]
    kv, looking, rest = 2 * (2 * 6 * 8), 4 * 12, 2 * (2 * 12 * 8)
    assert [cost(cross, 6, m).flops for m in (6, 12, 3)] == [
        kv + 6 * looking + rest,
        2 * kv + 12 * looking + rest,
        kv / 2 + 3 * looking + rest,
    ]


def test_costs_add_up() -> None:
    assert Cost(1, 2.0, 3.0) + Cost(10, 20.0, 30.0) == Cost(11, 22.0, 33.0)
    net = both().build()
    parts = [cost(part, 5) for part in net.children()]
    assert sum(parts, Cost(0, 0.0, 0.0)) == cost(net, 5)


class TestShow:
    def test_the_tree_draws_alike_blocks_once(self) -> None:
        drawn = tree(both().build())
        assert "blocks.0–2" in drawn
        assert "blocks.0–1" in drawn
        assert drawn.count("feed") == drawn.count("feed_forward(") + 2  # a line a kind of block, naming its role
        assert "12 × 8: q" in drawn

    def test_it_says_how_attention_will_run(self) -> None:
        assert "in training: fused; causal triangle" in tree(both().build())

    def test_plans_are_those_of_training_and_leave_no_trace(self) -> None:
        net = gpt.spec(width=8, depth=2, heads=2, vocab=11, length=8, dropout=0.1).build().eval()
        before = torch.get_rng_state()
        assert attention_plans(net, 4) == {
            f"decoder.blocks.{i}.mix": "plain: attention dropout; causal triangle" for i in range(2)
        }
        assert torch.equal(torch.get_rng_state(), before)
        assert not net.training

    def test_plans_are_those_of_the_length_that_is_asked_for(self) -> None:
        spec = ModelSpec(8, 512, Tokens(11), encoder=Stack(Block(mix=BigBird(2, block=16)), depth=1))
        short, long = (attention_plans(spec.build(), n)["encoder.blocks.0.mix"] for n in (8, 512))
        assert short == "full: so short that all would be seen"
        assert long.startswith("blocks of 16: ")
        assert long in tree(spec.build(), 512)

    def test_what_all_blocks_share_is_drawn_too(self) -> None:
        drawn = tree(t5.spec(width=8, depth=2, heads=2, hidden=16, vocab=11).build())
        assert "  position" in drawn and "  norm" in drawn

    @pytest.mark.parametrize(
        ("position", "why"), [(ALiBi(), "fused"), (Bucketed(), "plain: the bias is being trained")]
    )
    def test_a_trained_bias_is_told(self, position: ALiBi | Bucketed, why: str) -> None:
        spec = ModelSpec(8, 16, Tokens(11, Learned()), encoder=Stack(Block(mix=Full(2)), depth=1, position=position))
        assert attention_plans(spec.build(), 4)["encoder.blocks.0.mix"] == f"{why}; mask of coordinates"

    def test_the_summary_has_the_same_numbers(self) -> None:
        net = both().build()
        facts, whole = summary(net, 7), cost(net, 7)
        assert (facts["parameters"], facts["flops"], facts["state"]) == (whole.parameters, whole.flops, whole.state)
        assert sum(part["parameters"] for part in facts["parts"].values()) == whole.parameters
        assert ModelSpec.parse(facts["spec"]) == net.spec
