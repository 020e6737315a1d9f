"""The full mixer: its dials, its refusals, and several hypotheses that share a sentence's keys."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.errors import ShapeError, SpecError, StateError
from regard.nn.core.context import Context, Memory, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Causal, Everything, Window
from regard.nn.core.mixer import Mixer, Site
from regard.nn.core.state import KeyValues
from regard.nn.layers.norm import RMSNorm
from regard.nn.mixers import Full
from regard.nn.positions.position import ALiBi, Rotary

pytestmark = pytest.mark.numeric

SITE = Site("decoder.blocks.0.mix", width=8, length=16, causal=True)
CROSS = Site("decoder.blocks.0.cross", width=8, length=16, causal=True, role="cross")
AT = Coords.span(5)


def mixed(spec: Full, x: torch.Tensor, site: Site = SITE) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    mixer = spec.build(site).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return mixer(x, Context(AT))[0], mixer.state_dict()


def stream() -> torch.Tensor:
    return torch.randn(2, 5, 8, dtype=torch.double)


class TestDials:
    @pytest.mark.parametrize("kv", [None, 4, 2, 1])
    @pytest.mark.parametrize("norm", [None, RMSNorm()])
    @pytest.mark.parametrize("width", [None, 3])
    @pytest.mark.parametrize("scale", [None, 0.9])
    def test_mean_what_they_say(
        self, kv: int | None, norm: RMSNorm | None, width: int | None, scale: float | None
    ) -> None:
        """Head h reads group h·g//heads of keys; norms come before the scale, which is 1/√e unless given."""
        x = stream()
        out, w = mixed(Full(4, kv_heads=kv, head_width=width, scale=scale, qk_norm=norm), x)
        groups, e = kv or 4, width or 2
        heads = []
        for h in range(4):
            g = h * groups // 4
            q, k, v = (
                x @ w[f"{n}.weight"][i * e : (i + 1) * e].T + w[f"{n}.bias"][i * e : (i + 1) * e]
                for n, i in (("q", h), ("k", g), ("v", g))
            )
            if norm is not None:
                q, k = (F.rms_norm(t, (e,), w[f"{n}_norm.weight"], 1e-6) for n, t in (("q", q), ("k", k)))
            scores = q @ k.transpose(1, 2) * (e**-0.5 if scale is None else scale)
            heads.append(scores.masked_fill(~torch.ones(5, 5).tril().bool(), -torch.inf).softmax(-1) @ v)
        wanted = torch.cat(heads, -1) @ w["out.weight"].T + w["out.bias"]
        torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)

    def test_without_bias(self) -> None:
        assert not [n for n, _ in Full(2, bias=False).build(SITE).named_parameters() if "bias" in n]

    def test_a_scale_of_zero_is_a_scale(self) -> None:
        """All that is seen weighs the same."""
        x = stream()
        mixer = Full(2, scale=0.0).build(SITE).double()
        tape = Tape("*")
        mixer(x, Context(AT, tape=tape))
        weights = tape.kept["decoder.blocks.0.mix.weights"]
        torch.testing.assert_close(weights[0, 0, 3], torch.tensor([0.25] * 4 + [0], dtype=torch.double))

    def test_the_rule_joins_the_sites_and_the_specs(self) -> None:
        loose = Site("encoder.blocks.0.mix", 8, 16)
        assert Full(2).build(SITE).rule == Causal()
        assert Full(2).build(loose).rule == Everything()
        assert Full(2, mask=Window(3)).build(SITE).rule == Causal() & Window(3)
        assert Full(2, mask=Window(3)).build(loose).rule == Window(3)
        assert Full(2).build(CROSS).rule == Everything()


class TestRefusals:
    def test_groups_that_do_not_divide_the_heads(self) -> None:
        with pytest.raises(SpecError, match=r"^kv_heads should divide heads=4, got 3$"):
            Full(4, kv_heads=3)

    def test_heads_that_do_not_divide_the_width(self) -> None:
        with pytest.raises(SpecError, match=r"^heads=3 should divide the width 8, or head_width be set$"):
            Full(3).build(SITE)
        assert Full(3, head_width=5).build(SITE).head_width == 5

    def test_a_position_across(self) -> None:
        said = r"^position 'rotary' has no meaning in cross-attention \(decoder.blocks.0.cross\); leave it out$"
        with pytest.raises(SpecError, match=said):
            Full(2, position=Rotary()).build(CROSS)

    def test_a_mask_across(self) -> None:
        said = r"^a mask rule reads the positions of one sequence; decoder.blocks.0.cross spans two: leave it out$"
        with pytest.raises(SpecError, match=said):
            Full(2, mask=Window(2)).build(CROSS)

    def test_a_missing_memory(self) -> None:
        said = r"^decoder.blocks.0.cross attends to a memory, and none was given; give the model a source$"
        with pytest.raises(SpecError, match=said):
            Full(2).build(CROSS)(torch.zeros(1, 5, 8), Context(AT))

    def test_a_stream_of_another_width(self) -> None:
        with pytest.raises(ShapeError, match=r"^tensor should be \(b, n, d=8\), got \(1, 5, 7\): d is 7$"):
            Full(2).build(SITE)(torch.zeros(1, 5, 7), Context(AT))

    def test_rows_that_are_no_multiple_of_the_memorys(self) -> None:
        memory = Memory(*[torch.zeros(2, 4, 8)] * 2, Coords.span(4))
        said = r"^3 rows of queries cannot be divided among the 2 sentences of a memory; when sentences leave, select"
        with pytest.raises(StateError, match=said):
            Full(2).build(CROSS)(torch.zeros(3, 5, 8), Context(AT, memory=memory))

    def test_a_memory_of_other_sentences_than_the_state_remembers(self) -> None:
        mixer, memory = Full(2).build(CROSS), Memory(*[torch.zeros(2, 4, 8)] * 2, Coords.span(4))
        state = mixer.start(2, 8)
        mixer(torch.zeros(2, 5, 8), Context(AT, memory=memory), state)
        assert state is not None
        left = state.select(torch.tensor([1]), torch.tensor([1]))
        said = r"^decoder.blocks.0.cross remembers 1 sentences and was given a memory of 2; select the memory together"
        with pytest.raises(StateError, match=said):
            mixer(torch.zeros(1, 5, 8), Context(AT, memory=memory), left)
        mixer(torch.zeros(1, 5, 8), Context(AT, memory=memory.select(torch.tensor([1]))), left)


class TestAcross:
    def memory(self, rows: int = 2) -> Memory:
        x = torch.randn(rows, 4, 8, dtype=torch.double)
        return Memory(x, torch.randn_like(x), Coords.lengths([4, 2]))

    @pytest.mark.parametrize("spec", [Full(4), Full(4, kv_heads=2), Full(2, qk_norm=RMSNorm())])
    @pytest.mark.parametrize("tape", [Tape(), Tape("*")], ids=["fused", "plain"])
    def test_hypotheses_of_a_sentence_share_its_keys(self, spec: Full, tape: Tape) -> None:
        mixer, memory = spec.build(CROSS).double(), self.memory()
        x = torch.randn(6, 3, 8, dtype=torch.double)
        each = torch.tensor([0, 0, 0, 1, 1, 1])
        repeated = Memory(memory.keys[each], memory.values[each], memory.at.select(each))
        shared, _ = mixer(x, Context(Coords.span(3), memory=memory, tape=tape))
        alone, _ = mixer(x, Context(Coords.span(3), memory=repeated))
        torch.testing.assert_close(shared, alone, rtol=0, atol=1e-12)

    def test_keys_and_values_may_differ(self) -> None:
        mixer, memory = Full(1).build(CROSS).double(), self.memory()
        x = torch.randn(2, 3, 8, dtype=torch.double)
        out, _ = mixer(x, Context(Coords.span(3), memory=memory))
        scores = mixer.q(x) @ mixer.k(memory.keys).transpose(1, 2) * 8**-0.5
        weights = scores.masked_fill(~memory.at.kept.unsqueeze(1), -torch.inf).softmax(-1)
        torch.testing.assert_close(out, mixer.out(weights @ mixer.v(memory.values)), rtol=0, atol=1e-12)

    def test_a_sentence_is_projected_once(self) -> None:
        mixer, memory = Full(2).build(CROSS).double(), self.memory()
        x = torch.randn(2, 3, 8, dtype=torch.double)
        state = mixer.start(2, 8)
        first, state = mixer(x, Context(Coords.span(3), memory=memory), state)
        broken = Memory(memory.keys * torch.nan, memory.values * torch.nan, memory.at)
        second, _ = mixer(x, Context(Coords.span(3, 3), memory=broken), state)
        torch.testing.assert_close(first, second)


def test_a_position_of_the_mixer_comes_before_the_stacks() -> None:
    mixer = Full(2, position=ALiBi()).build(SITE).double()
    x, other = stream(), Rotary().build(Site("", 8, 16, heads=2, head_width=4))
    assert torch.equal(mixer(x, Context(AT))[0], mixer(x, Context(AT, position=other))[0])


def test_costs_count_projections_and_attention() -> None:
    """Scores and mixing take 2·e multiply-adds a key and head; a causal query sees half of the keys on average."""
    spec = Full(4, kv_heads=2, head_width=3)
    causal, across, loose = (spec.build(s) for s in (SITE, CROSS, Site("encoder.blocks.0.mix", 8, 16)))
    q_out, k_v = 2 * 2 * (8 * 12), 2 * 2 * (8 * 6)
    assert causal.flops(10, 6) == q_out + k_v + 4 * 5 * 12
    assert loose.flops(10, 6) == q_out + k_v + 4 * 10 * 12
    assert across.flops(10, 5) == q_out + k_v / 2 + 4 * 5 * 12  # half a memory token for each of ours
    assert [m.state_numbers(10) for m in (causal, across)] == [2 * 2 * 3 * 10, 0]
    state = causal.start(3, 7)
    assert isinstance(state, KeyValues)
    assert state.k.shape == (3, 2, 7, 3)


def test_a_mixer_that_says_nothing_costs_its_linear_maps() -> None:
    mixer = Mixer(SITE)
    assert (mixer.flops(3, 3), mixer.state_numbers(3)) == (0, 0)
    mixer.inner = torch.nn.Sequential(torch.nn.Linear(8, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 8))
    assert (mixer.flops(3, 3), mixer.state_numbers(3)) == (2 * 2 * 24, 0)
