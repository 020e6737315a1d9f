"""Block-sparse attention: which blocks are drawn, the same attention under a mask of each head, BigBird of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import ShapeError, SpecError
from regard.model.model_spec import ModelSpec
from regard.nn.attention.attend import grouped_matmul
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.wiring import PostNorm
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.core.shape import merge_heads, split_heads
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import BigBird, Full
from regard.nn.positions.position import ALiBi, Rotary
from tests.nn.mixers.test_local import converted

pytestmark = pytest.mark.numeric

WIDTH, N = 8, 45
SITE = Site("encoder.blocks.1.mix", WIDTH, N, layer=1)


def built(spec: Any, site: Site = SITE) -> Any:
    mixer = spec.build(site).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return mixer


def blocks_seen(mixer: Any, count: int) -> Tensor:
    """Which block sees which, (h, count, count)."""
    table = mixer.table(torch.tensor([count]), count)[0]
    seen = torch.zeros(mixer.heads, count, count, dtype=torch.bool)
    for h in range(mixer.heads):
        for i in range(count):
            for j in table[h, i].tolist():
                if j >= 0:
                    assert not seen[h, i, j], "a block is seen once"
                    seen[h, i, j] = True
    seen[:, [0, count - 1]] = True
    return seen


class TestTable:
    @pytest.mark.parametrize("count", range(1, 14))
    @pytest.mark.parametrize("random", [0, 1, 3])
    def test_neighbours_both_ends_and_as_many_more_as_there_are(self, count: int, random: int) -> None:
        seen = blocks_seen(built(BigBird(2, block=2, random=random)), count)
        for i in range(count):
            usual = {0, count - 1} | {j for j in (i - 1, i, i + 1) if 0 <= j < count}
            assert seen[:, i, sorted(usual)].all()
            more = count if i in (0, count - 1) else min(len(usual) + random, count)
            assert (seen[:, i].sum(-1) == more).all()

    def test_drawn_anew_for_each_head_and_layer_and_the_same_every_time(self) -> None:
        spec = BigBird(2, block=2, random=3)
        table, again, above = (
            m.table(torch.tensor([20]), 20)[0, :, :, 5:]
            for m in (built(spec), built(spec), built(spec, Site("encoder.blocks.2.mix", WIDTH, N, layer=2)))
        )
        assert torch.equal(table, again)
        assert not torch.equal(table, above)
        assert not torch.equal(table[0], table[1])
        other = built(BigBird(2, block=2, random=3, seed=1)).table(torch.tensor([20]), 20)[0, :, :, 5:]
        assert not torch.equal(table, other)

    def test_the_length_of_the_model_changes_no_draw(self) -> None:
        short, long = (built(BigBird(2, block=2), Site("x", WIDTH, n)) for n in (6, 600))
        assert torch.equal(short.table(torch.tensor([40]), 40), long.table(torch.tensor([40]), 40))

    def test_every_block_is_drawn_as_often(self) -> None:
        count, many = 11, 4000
        table = built(BigBird(many, block=2, head_width=1)).table(torch.tensor([count]), count)[0, :, 5, 5:]
        often = torch.bincount(table.flatten(), minlength=count)
        expected = many * 3 / (count - 5)
        assert often[[0, 4, 5, 6, 10]].sum() == 0
        assert ((often[[1, 2, 3, 7, 8, 9]] - expected).abs() < 5 * expected**0.5).all()


def by_hand(mixer: Any, x: Tensor, lengths: list[int]) -> Tensor:
    """Every row by itself, under the mask of each head."""
    rows = []
    for row, n in zip(x, lengths, strict=True):
        seen = blocks_seen(mixer, -(-n // mixer.block))
        keep = seen.repeat_interleave(mixer.block, 1).repeat_interleave(mixer.block, 2)[:, :n, :n]
        given = row[:n].unsqueeze(0)
        q, k, v = (
            split_heads(m(given), h)
            for m, h in ((mixer.q, mixer.heads), *((m, mixer.kv_heads) for m in (mixer.k, mixer.v)))
        )
        scores = grouped_matmul(q * mixer.scale, k.mT).masked_fill(~keep, -torch.inf)
        rows.append(mixer.out(merge_heads(grouped_matmul(scores.softmax(-1), v)))[0])
    return torch.cat(rows)


class TestTwin:
    @pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
    @pytest.mark.parametrize(
        "spec", [BigBird(2, block=3, random=2), BigBird(4, block=4, random=1, kv_heads=2)], ids=str
    )
    def test_the_same_attention_under_a_mask_of_each_head(self, spec: BigBird, left: bool) -> None:
        lengths = [N, 31, 5]
        mixer, at = built(spec), Coords.lengths(lengths, left=left)
        x = torch.randn(3, N, WIDTH, dtype=torch.double, requires_grad=True)
        moved = torch.stack([row.roll(N - n, 0) if left else row for row, n in zip(x, lengths, strict=True)])
        out, wanted = mixer(moved, Context(at))[0][at.kept], by_hand(mixer, x, lengths)
        torch.testing.assert_close(out, wanted, rtol=0, atol=1e-10)
        parts = [x, *mixer.parameters()]
        for a, b in zip(*(torch.autograd.grad(y.sin().sum(), parts) for y in (out, wanted)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("n", [1, 4, 27, 28])
    def test_short_rows_get_full_attention(self, n: int) -> None:
        mixer, full = built(BigBird(2, block=4, random=3)), built(Full(2))
        mixer.load_state_dict(full.state_dict())
        x = torch.randn(2, n, WIDTH, dtype=torch.double)
        torch.testing.assert_close(*(m(x, Context(Coords.span(n)))[0] for m in (mixer, full)), rtol=0, atol=1e-12)

    def test_weights_show_the_pattern(self) -> None:
        mixer, tape = built(BigBird(2, block=3, random=2, position=Rotary())), Tape("*.weights")
        x = torch.randn(1, N, WIDTH, dtype=torch.double)
        out, _ = mixer(x, Context(Coords.span(N), tape=tape))
        torch.testing.assert_close(out, mixer(x, Context(Coords.span(N)))[0], rtol=0, atol=1e-12)
        weights = tape.kept["encoder.blocks.1.mix.weights"]
        keep = blocks_seen(mixer, 15).repeat_interleave(3, 1).repeat_interleave(3, 2)
        assert ((weights[0] > 0) == keep).all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_in_lower_precision(self, dtype: torch.dtype) -> None:
        mixer, at = built(BigBird(2, block=3, random=2)), Coords.lengths([N, 31])
        x = torch.randn(2, N, WIDTH, dtype=torch.double)
        wanted = mixer(x, Context(at))[0]
        out = mixer.to(dtype)(x.to(dtype), Context(at))[0]
        torch.testing.assert_close(out.double(), wanted, rtol=0, atol=20 * torch.finfo(dtype).eps)


class TestWork:
    def test_only_the_blocks_of_the_table_are_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import regard.nn.mixers.bigbird as bigbird

        seen, attend = [], bigbird.attend
        monkeypatch.setattr(bigbird, "attend", lambda q, k, *a, **kw: seen.append((q, k)) or attend(q, k, *a, **kw))
        for n in (60, 120):
            seen.clear()
            built(BigBird(2, block=3, random=2))(torch.randn(1, n, WIDTH).double(), Context(Coords.span(n)))
            (q, k), (ends, all_keys) = seen
            assert (tuple(q.shape), k.shape[2]) == ((2 * n // 3, 1, 3, 4), 7 * 3)
            assert (ends.shape[2], all_keys.shape[2]) == (6, n)

    def test_flops(self) -> None:
        mixer = BigBird(2, block=4, random=2).build(SITE)
        maps = 4 * 2 * WIDTH * WIDTH
        assert mixer.flops(1000, 0) == maps + 4 * 28 * WIDTH
        assert mixer.flops(5, 0) == maps + 4 * 5 * WIDTH

    def test_the_plan_says_how(self) -> None:
        tape, mixer = Tape("nothing"), built(BigBird(2, block=3, random=2))
        for n, said in ((N, "blocks of 3: 7 of 15 for each"), (9, "full: so short that all would be seen")):
            mixer(torch.randn(1, n, WIDTH, dtype=torch.double), Context(Coords.span(n), tape=tape))
            assert tape.plans == {"encoder.blocks.1.mix": said}


class TestRefusals:
    def spec(self, causal: bool = False, **stack: Any) -> ModelSpec:
        side = Stack(Block(mix=BigBird(2, block=2)), depth=1, causal=causal, **stack)
        return ModelSpec(WIDTH, N, Tokens(7), **{"decoder" if causal else "encoder": side})  # type: ignore[arg-type]

    def test_causal(self) -> None:
        with pytest.raises(
            SpecError, match=r"^mixer 'bigbird' cannot be causal \(decoder.blocks.0.mix\); use 'full' or"
        ):
            self.spec(causal=True).build()

    def test_positions_in_the_scores(self) -> None:
        with pytest.raises(SpecError, match=r"^mixer 'bigbird' cannot use position 'alibi' \(encoder.blocks.0.mix\)"):
            self.spec(position=ALiBi()).build()
        with pytest.raises(SpecError, match=r"^mixer 'bigbird' cannot use position 'alibi' \(encoder.blocks.1.mix\)"):
            BigBird(2, position=ALiBi()).build(SITE)

    def test_documents(self) -> None:
        net = self.spec().build()
        with pytest.raises(ShapeError, match=r"^mixer 'bigbird' in the encoder cannot keep packed documents apart"):
            net(torch.zeros(1, 5, dtype=torch.long), Coords.documents([[2, 3]]))


def test_bigbird_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our table is given to both sides: in evaluation theirs draws block 0 again and again."""
    from transformers import BigBirdConfig, BigBirdModel

    config = BigBirdConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        block_size=4, num_random_blocks=2, max_position_embeddings=64, initializer_range=0.5, hidden_act="gelu",
    )  # fmt: skip
    theirs = BigBirdModel(config, add_pooling_layer=False).eval()
    block = Block(mix=BigBird(2, block=4, random=2), feed=FeedForward(24, "gelu"))
    stack = Stack(block, depth=2, wiring=PostNorm(LayerNorm(config.layer_norm_eps)))
    mine: Any = stack.build(Site("encoder", 16, 64)).eval()
    mine.load_state_dict(converted(theirs.state_dict()))
    for layer, ours in zip(theirs.encoder.layer, mine.blocks, strict=True):
        table = ours.mix.table(torch.tensor([12]), 12)[0, :, 1:-1, 5:].numpy()
        monkeypatch.setattr(
            layer.attention.self, "_bigbird_block_rand_mask_with_head", lambda *a, t=table, **kw: list(t)
        )
    with torch.no_grad():
        wanted = theirs(torch.randint(1, 30, (2, N)), output_hidden_states=True)
        out, _ = mine(wanted.hidden_states[0][:, :N], Context(Coords.span(N)))
    assert theirs.attention_type == "block_sparse"
    assert (out - wanted.last_hidden_state).abs().max() <= 1e-5
    assert wanted.last_hidden_state.std() > 0.5
