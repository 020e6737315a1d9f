"""Position codes against closed forms and against those who wrote them first."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard.errors import ShapeError, SpecError
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.positions.position import (
    ALiBi,
    Bucketed,
    Learned,
    Position,
    Relative,
    Rotary,
    Sinusoidal,
    alibi_slopes,
    distance,
    sinusoid,
)

pytestmark = pytest.mark.numeric

SITE = Site("decoder.position", width=12, length=10, heads=2, head_width=6)
ODD = Coords(torch.tensor([[3, -1, 0, 9], [0, 1, 2, 4]]), padded=True)
"""Positions with gaps, out of order and with padding."""


class TestSinusoidal:
    @pytest.mark.parametrize("width", [2, 7, 12])
    def test_is_the_papers_formula(self, width: int) -> None:
        code = sinusoid(torch.arange(20), width, "pairs", torch.float64)
        for pos in range(20):
            for j in range(width):
                angle = pos / 10000 ** (2 * (j // 2) / width)
                assert code[pos, j].item() == pytest.approx(math.cos(angle) if j % 2 else math.sin(angle), abs=1e-14)

    @pytest.mark.parametrize("width", [2, 7, 12])
    def test_halves_are_the_pairs_unshuffled(self, width: int) -> None:
        pairs, halves = (sinusoid(torch.arange(20), width, layout, torch.float64) for layout in ("pairs", "halves"))
        assert torch.equal(halves, torch.cat([pairs[:, 0::2], pairs[:, 1::2]], 1))

    def test_is_exact_far_out_in_single_precision(self) -> None:
        far = sinusoid(torch.tensor([1_000_003]), 4, "pairs", torch.float32)
        assert far[0, 0].item() == pytest.approx(math.sin(1_000_003), abs=1e-7)

    @pytest.mark.parametrize("layout", ["pairs", "halves"])
    def test_from_its_table_or_computed_is_one(self, layout: str) -> None:
        position = Sinusoidal(layout).build(SITE).double()  # type: ignore[arg-type]
        x = torch.randn(1, 4, 12, dtype=torch.double)
        for first in (0, 5, 61, 500):
            loose = Coords(torch.arange(first, first + 4).unsqueeze(0))
            assert torch.equal(position.embed(x, Coords.span(4, first)), position.embed(x, loose))
        assert torch.equal(position.embed(x.float(), Coords.span(4)), position.embed(x.float(), Coords.span(4).cut(4)))

    def test_a_change_of_precision_keeps_no_rounding(self) -> None:
        """The codes of a net that ran in float32 before are those of one that did not."""
        position = Sinusoidal().build(SITE)
        position.embed(torch.zeros(1, 4, 12), Coords.span(4))
        code = position.double().embed(torch.zeros(1, 4, 12, dtype=torch.double), Coords.span(4))
        assert torch.equal(code[0], sinusoid(torch.arange(4), 12, "pairs", torch.double))

    def test_has_no_parameters_and_leaves_no_trace_in_a_checkpoint(self) -> None:
        position = Sinusoidal().build(SITE)
        position.embed(torch.zeros(1, 4, 12), Coords.span(4))
        assert not position.state_dict()
        assert not list(position.parameters())

    def test_may_be_used_in_inference_first(self) -> None:
        position = Sinusoidal().build(SITE)
        x = torch.randn(1, 4, 12, requires_grad=True)
        with torch.inference_mode():
            position.embed(x, Coords.span(4))
        position.embed(x, Coords.span(4)).sum().backward()
        assert x.grad is not None


class TestLearned:
    @pytest.mark.parametrize("shift", [0, 2])
    def test_adds_a_row_of_its_table(self, shift: int) -> None:
        position = Learned(shift).build(SITE)
        torch.nn.init.normal_(position.weight)
        assert position.weight.shape == (10 + shift, 12)
        x = torch.randn(2, 4, 12)
        assert torch.equal(position.embed(x, Coords.span(4, 3)), x + position.weight[shift + 3 : shift + 7])
        out = position.embed(x, ODD)
        for b, i in ODD.kept.nonzero().tolist():
            assert torch.equal(out[b, i], x[b, i] + position.weight[shift + int(ODD.pos[b, i])])

    @pytest.mark.parametrize("at", [Coords.span(4, 7), Coords(torch.tensor([[10]]))])
    def test_refuses_positions_it_has_not(self, at: Coords) -> None:
        said = r"^decoder.position has 10 positions, asked for 11; shorten the input or raise the length$"
        with pytest.raises(ShapeError, match=said):
            Learned(2).build(SITE).embed(torch.zeros(1, at.n, 12), at)

    def test_leaves_no_negative_room(self) -> None:
        with pytest.raises(SpecError, match=r"^shift: input should be greater than or equal to 0, got -1$"):
            Learned(-1)

    def test_takes_all_it_has(self) -> None:
        position = Learned().build(SITE)
        torch.nn.init.normal_(position.weight)  # a part alone has whatever was in memory, NaN perhaps
        assert torch.equal(position.embed(torch.zeros(1, 10, 12), Coords.span(10))[0], position.weight)


class TestRotary:
    def turned(self, spec: Rotary, x: Tensor, at: Coords) -> Tensor:
        position = spec.build(SITE)
        return position.rotate(x, position.table(at))

    def test_what_would_turn_nothing_is_refused(self) -> None:
        with pytest.raises(SpecError, match=r"share=0\.3 of 6 has none; use fewer heads or a larger share"):
            Rotary(share=0.3).build(SITE)

    @pytest.mark.parametrize("base", [10000.0, 500.0])
    def test_halves_are_llamas(self, base: float) -> None:
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

        config = LlamaConfig(
            hidden_size=12,
            num_attention_heads=2,
            head_dim=6,
            rope_parameters={"rope_type": "default", "rope_theta": base},
        )
        q, k = torch.randn(2, 2, 2, 4, 6).unbind()
        cos, sin = LlamaRotaryEmbedding(config)(q, ODD.pos)
        for mine, theirs in zip((q, k), apply_rotary_pos_emb(q, k, cos, sin), strict=True):
            torch.testing.assert_close(self.turned(Rotary(base), mine, ODD), theirs, rtol=0, atol=1e-5)

    def test_pairs_are_complex_numbers_multiplied(self) -> None:
        x = torch.randn(2, 2, 4, 6, dtype=torch.double)
        rate = 10000.0 ** (-torch.arange(3, dtype=torch.double) / 3)
        wave = torch.exp(1j * ODD.pos[:, None, :, None] * rate)
        wanted = torch.view_as_real(torch.view_as_complex(x.view(2, 2, 4, 3, 2)) * wave).flatten(-2)
        torch.testing.assert_close(self.turned(Rotary(layout="pairs"), x, ODD), wanted, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("layout", ["pairs", "halves"])
    def test_products_depend_on_distance_alone(self, layout: str) -> None:
        spec = Rotary(layout=layout)  # type: ignore[arg-type]
        q, k = torch.randn(2, 1, 1, 1, 6, dtype=torch.double).unbind()
        products = [
            float((self.turned(spec, q, Coords.span(1, a)) * self.turned(spec, k, Coords.span(1, b))).sum())
            for a, b in ((5, 2), (50, 47), (3, 0))
        ]
        assert products == pytest.approx(products[:1] * 3)

    @pytest.mark.parametrize("layout", ["pairs", "halves"])
    def test_a_share_turns_and_the_rest_stays(self, layout: str) -> None:
        x = torch.randn(1, 2, 4, 6, dtype=torch.double)
        out = self.turned(Rotary(layout=layout, share=0.7), x, Coords.span(4))  # type: ignore[arg-type]
        assert torch.equal(out[..., 4:], x[..., 4:])
        assert (out[:, :, 1:, :4] != x[:, :, 1:, :4]).all()
        small = Rotary(layout=layout).build(Site("", 8, 8, head_width=4))  # type: ignore[arg-type]
        assert torch.equal(out[..., :4], small.rotate(x[..., :4], small.table(Coords.span(4))))

    def test_refuses_what_cannot_turn(self) -> None:
        with pytest.raises(SpecError, match=r"^share: input should be less than or equal to 1, got 1.5$"):
            Rotary(share=1.5)
        with pytest.raises(SpecError, match=r"^base: input should be greater than 0, got 0"):
            Rotary(base=0)


class TestALiBi:
    def test_slopes_of_the_papers_example(self) -> None:
        assert alibi_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
        assert alibi_slopes(16)[:2] == pytest.approx([2**-0.5, 2**-1])

    @pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 20])
    def test_slopes_are_blooms(self, heads: int) -> None:
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor

        theirs = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, 0, 1]
        torch.testing.assert_close(torch.tensor(alibi_slopes(heads)), theirs)

    def test_scores_fall_with_distance_on_both_sides(self) -> None:
        position = ALiBi().build(SITE)
        bias = position.bias(position.prepare(ODD, ODD))
        assert bias is not None
        slopes = alibi_slopes(2)
        for b, h, i, j in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(4), torch.arange(4)):
            wanted = -abs(float(ODD.pos[b, i] - ODD.pos[b, j])) * slopes[h]
            assert bias[b, h, i, j].item() == pytest.approx(wanted)


class TestBucketed:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (8, 20), (4, 3), (64, 256)])
    def test_buckets_are_t5s(self, causal: bool, buckets: int, reach: int) -> None:
        from transformers.models.t5.modeling_t5 import T5Attention

        after = torch.arange(-300, 301)
        position = Bucketed(buckets, reach).build(Site("", 12, 8, heads=2, causal=causal))
        theirs = T5Attention._relative_position_bucket(after, not causal, buckets, reach)
        assert torch.equal(position.bucket(after), theirs)  # type: ignore[operator]

    def test_the_bias_is_a_row_of_the_table_a_head(self) -> None:
        position = Bucketed(8, 20).build(SITE)
        torch.nn.init.normal_(position.weight)
        bias = position.bias(position.prepare(ODD, ODD))
        assert bias is not None
        bucket = position.bucket(distance(ODD, ODD))  # type: ignore[operator]
        assert torch.equal(bias, position.weight[bucket].permute(0, 3, 1, 2))

    def test_refuses_odd_numbers(self) -> None:
        with pytest.raises(SpecError, match=r"^buckets should be a multiple of four, got 6$"):
            Bucketed(6)
        with pytest.raises(SpecError, match=r"^reach should be more than half of the 32 buckets, got 16$"):
            Bucketed(32, 16)


class TestRelative:
    @pytest.mark.parametrize("values", [True, False])
    def test_is_shaws_equations_three_and_four(self, values: bool) -> None:
        """e_ij = q_i · (k_j + a_ij^K), z_i = Σ α_ij (v_j + a_ij^V), with a clipped at ±reach."""
        position = Relative(2, values).build(SITE).double()
        for parameter in position.parameters():
            torch.nn.init.normal_(parameter)
        q, weights = torch.randn(2, 2, 4, 6, dtype=torch.double), torch.rand(2, 2, 4, 4, dtype=torch.double)
        p = position.prepare(ODD, ODD)
        score, blend = position.score(q, q, p), position.output_term(weights, p)
        assert (blend is not None) == values
        for b, i in torch.cartesian_prod(torch.arange(2), torch.arange(4)).tolist():
            far = [max(-2, min(2, int(ODD.pos[b, j] - ODD.pos[b, i]))) + 2 for j in range(4)]
            torch.testing.assert_close(score[b, :, i], q[b, :, i] @ position.keys[far].T)
            if blend is not None:
                torch.testing.assert_close(blend[b, :, i], weights[b, :, i] @ position.values[far])

    def test_without_values_has_one_table(self) -> None:
        assert [name for name, _ in Relative(2, False).build(SITE).named_parameters()] == ["keys"]


def test_a_position_does_nothing_it_does_not_say() -> None:
    position, x = Position(), torch.randn(1, 2, 3)
    assert position.embed(x, Coords.span(2)) is position.rotate(x, position.table(Coords.span(2))) is x
    assert position.bias(position.prepare(Coords.span(2), Coords.span(2))) is None
