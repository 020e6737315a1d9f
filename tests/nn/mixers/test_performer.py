"""FAVOR+: the estimate and its error, and that sums, prefixes and states are the estimate done pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import SpecError
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.context import Context, Memory, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Causal, Everything, visible
from regard.nn.core.mixer import Site
from regard.nn.core.shape import merge_heads, split_heads
from regard.nn.mixers import Full, Performer
from regard.nn.mixers import linear_attention as module
from regard.nn.mixers.linear_attention import Sums
from regard.nn.mixers.performer import PerformerMixer, directions
from regard.nn.positions.position import ALiBi, Rotary
from tests.nn.mixers.work import written

pytestmark = pytest.mark.numeric

CAUSAL = Site("decoder.blocks.0.mix", width=8, length=64, causal=True)
LOOSE = Site("encoder.blocks.0.mix", width=8, length=64)
CROSS = Site("decoder.blocks.0.cross", width=8, length=64, causal=True, role="cross", memory=8)
N = 23
PLACES = {
    "": Coords.span(N),
    "right": Coords.lengths([N, 9]),
    "left": Coords.lengths([N, 9], left=True),
    "documents": Coords.documents([[4, 11, 8], [7, 1, 9]]),
}
places = pytest.mark.parametrize("at", PLACES.values(), ids=PLACES)


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 5)


def build(spec: Performer, site: Site) -> PerformerMixer:
    mixer = spec.build(site).double()
    for p in mixer.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return mixer


def stream(rows: int = 2, n: int = N) -> Tensor:
    return torch.randn(rows, n, 8, dtype=torch.double)


def phi(mixer: PerformerMixer, x: Tensor) -> Tensor:
    """The features as the paper writes them (lemma 1), up to m^−½."""
    x = x / mixer.head_width**0.25
    z = x @ mixer.omega.mT
    return z.relu() + 1e-3 if mixer.kernel == "relu" else (z - x.square().sum(-1, keepdim=True) / 2).exp()


def pair_by_pair(mixer: PerformerMixer, x: Tensor, at: Coords, keys: Tensor, values: Tensor, at_k: Coords) -> Tensor:
    """Every pair of the same features, a mask over them, and one division."""
    q, k, v = (split_heads(t, mixer.heads) for t in (mixer.q(x), mixer.k(keys), mixer.v(values)))
    weights = phi(mixer, q) @ phi(mixer, k).mT
    keep = visible(Causal() if mixer.causal else Everything(), at, at_k)
    weights = weights if keep is None else weights * keep.unsqueeze(1)
    total = weights.sum(-1, keepdim=True)
    return mixer.out(merge_heads(weights @ v / torch.where(total > 0, total, 1.0)))


def same(mixer: PerformerMixer, x: Tensor, at: Coords, memory: Memory | None = None) -> None:
    """Outputs and gradients of tokens that are there."""
    keys, values, at_k = (x, x, at) if memory is None else (memory.keys, memory.values, memory.at)
    kept = at.kept.expand(x.shape[:2])
    outs = mixer(x, Context(at, memory=memory))[0], pair_by_pair(mixer, x, at, keys, values, at_k)
    inputs = [x, keys, values, *mixer.parameters()]
    grads = [torch.autograd.grad(out[kept].sin().sum(), inputs) for out in outs]
    torch.testing.assert_close(outs[0][kept], outs[1][kept], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-9, atol=1e-9)


class TestEstimate:
    """Of exp(x·y), for short x and y in eight dimensions; of long ones the error has too heavy a tail to be measured here."""

    def estimates(self, r: int, *, orthogonal: bool, draws: int) -> tuple[Tensor, Tensor]:
        gen = torch.Generator().manual_seed(3)
        x, y = (0.7 * F.normalize(torch.randn(6, 8, generator=gen), dim=-1) for _ in range(2))
        found = []
        for _ in range(draws):
            omega = directions(r, 8, orthogonal=orthogonal)
            fx, fy = ((t @ omega.mT - t.square().sum(-1, keepdim=True) / 2).exp() for t in (x, y))
            found.append((fx * fy).mean(-1))
        return torch.stack(found), (x * y).sum(-1).exp()

    def error(self, r: int, *, orthogonal: bool, draws: int = 300) -> float:
        found, true = self.estimates(r, orthogonal=orthogonal, draws=draws)
        return (found / true - 1).square().mean().sqrt().item()

    @pytest.mark.parametrize("orthogonal", [False, True])
    def test_its_error_falls_with_the_root_of_the_features(self, orthogonal: bool) -> None:
        counts = [16, 64, 256, 1024]
        errors = [self.error(r, orthogonal=orthogonal) for r in counts]
        x, y = (torch.tensor(t).log() for t in (counts, errors))
        slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
        assert slope.item() == pytest.approx(-0.5, abs=0.04)

    @pytest.mark.parametrize("r", [8, 64])
    def test_orthogonal_directions_err_less(self, r: int) -> None:
        mine, other = (self.error(r, orthogonal=orthogonal, draws=3000) ** 2 for orthogonal in (True, False))
        assert mine < 0.95 * other

    @pytest.mark.parametrize("orthogonal", [False, True])
    def test_it_is_unbiased_over_draws(self, orthogonal: bool) -> None:
        found, true = self.estimates(8, orthogonal=orthogonal, draws=4000)
        error = found.std(0) / math.sqrt(len(found))
        assert ((found.mean(0) - true).abs() < 4 * error).all()
        assert (error < 0.02 * true).all()

    def test_the_mixers_own_estimate_is_unbiased_over_its_own_redraws(self) -> None:
        """φ(q)·φ(k) as it runs, its size put back, against exp(q·k/√e)."""
        mixer = Performer(1, features=8, redraw=1, head_width=8).build(CAUSAL)
        q, k = (0.7 * F.normalize(torch.randn(1, 1, 1, 8).double(), dim=-1) * 8**0.25 for _ in range(2))
        found = []
        for step in range(1, 4001):
            mixer.before_step(step)
            (fq, size_q), (fk, size_k) = mixer._features(q), mixer._features(k)
            found.append((fq @ fk.mT).squeeze() * (size_q + size_k).exp().squeeze() / 8)
        made, true = torch.stack(found), (q * k).sum() / 8**0.5
        error = made.std() / math.sqrt(len(found))
        assert (made.mean() - true.exp()).abs() < 4 * error < 0.1 * true.exp()

    def test_directions(self) -> None:
        """Each is N(0, I) by itself, wherever it stands in its block; blocks are orthogonal."""
        many = torch.stack([directions(7, 4, orthogonal=True) for _ in range(3000)])
        assert many.shape == (3000, 7, 4)
        assert many.mean(0).abs().max() < 5 / math.sqrt(3000)
        assert (many.square().mean(0) - 1).abs().max() < 5 * math.sqrt(2 / 3000)
        products = many[0] @ many[0].mT
        alike = torch.block_diag(torch.ones(4, 4), torch.ones(3, 3)).bool()
        assert products[alike & ~torch.eye(7).bool()].abs().max() < 1e-5
        assert products[~alike].abs().min() > 1e-5

    def test_it_tends_to_full_attention(self) -> None:
        full = Full(2).build(CAUSAL).double()
        x, errors = stream() / 2, []
        for r in (16, 256, 4096):
            found = []
            for _ in range(4):
                mixer = Performer(2, features=r).build(CAUSAL).double()
                mixer.load_state_dict(full.state_dict() | {"omega": mixer.omega})
                found.append(mixer(x, Context(PLACES[""]))[0] - full(x, Context(PLACES[""]))[0])
            errors.append(torch.stack(found).square().mean().sqrt())
        assert errors[2] < errors[1] / 2 < errors[0] / 4


@pytest.mark.parametrize(
    "spec", [Performer(2), Performer(2, kernel="relu", features=5), Performer(4, head_width=3, bias=False)]
)
class TestPairByPair:
    @places
    def test_causal(self, spec: Performer, at: Coords) -> None:
        same(build(spec, CAUSAL), stream().requires_grad_(), at)

    @places
    def test_both_ways(self, spec: Performer, at: Coords) -> None:
        same(build(spec, LOOSE), stream().requires_grad_(), at)

    @pytest.mark.parametrize("at", [Coords.span(7), Coords.lengths([7, 3]), Coords.lengths([7, 3], left=True)])
    def test_across(self, spec: Performer, at: Coords) -> None:
        memory = Memory(stream(n=7).requires_grad_(), stream(n=7).requires_grad_(), at)
        same(build(spec, CROSS), stream().requires_grad_(), PLACES["right"], memory)

    def test_across_documents(self, spec: Performer) -> None:
        memory = Memory(*(stream(n=7).requires_grad_() for _ in range(2)), Coords.documents([[2, 4, 1], [1, 3, 2]]))
        same(build(spec, CROSS), stream().requires_grad_(), PLACES["documents"], memory)


class TestCausal:
    def test_the_past_does_not_feel_how_large_the_future_is(self) -> None:
        """Not even in the last bit, and also within a chunk. Features of long keys are small, of short ones large."""
        mixer, x = build(Performer(2), CAUSAL), 20 * stream()
        before, _ = mixer(x, Context(PLACES[""]))
        assert (before[:, 0] != before[:, 1]).any()
        for t in (1, 7, 13, 22):
            for factor in (0.05, 50):
                changed = x.clone()
                changed[:, t] *= factor
                after, _ = mixer(changed, Context(PLACES[""]))
                assert torch.equal(after[:, :t], before[:, :t])
                assert after.isfinite().all()

    @pytest.mark.parametrize("size", [0.0, 30.0, 1e4])
    def test_large_and_no_inputs_give_finite_outputs_and_gradients(self, size: float) -> None:
        for site in (CAUSAL, LOOSE):
            mixer, x = build(Performer(2), site).float(), (size * stream()).float().requires_grad_()
            out, _ = mixer(x, Context(PLACES["left"]))
            assert out.isfinite().all()
            for grad in torch.autograd.grad(out.square().mean(), [x, *mixer.parameters()]):
                assert grad.isfinite().all()

    def test_what_is_remembered_does_not_grow(self) -> None:
        mixer, x = build(Performer(2, features=6), CAUSAL), stream(n=70)
        whole, _ = mixer(x, Context(Coords.span(70)))
        state, out, counts = mixer.start(2, 1), [], set()
        for i in range(70):
            y, state = mixer(x[:, i : i + 1], Context(Coords.span(1, i)), state)
            out.append(y)
            assert isinstance(state, Sums)
            counts.add(sum(t.numel() for t in (state.sums, state.top, state.doc)))
        torch.testing.assert_close(torch.cat(out, 1), whole, rtol=1e-10, atol=1e-10)
        assert counts == {2 * 2 * 6 * 5 + 2 * 2 + 2}
        assert mixer.state_numbers(70) == mixer.state_numbers(1) == 2 * 6 * 5

    @pytest.mark.parametrize("site", [CAUSAL, LOOSE], ids=["causal", "both ways"])
    def test_work_grows_with_the_length_and_no_faster(self, site: Site) -> None:
        """Forward and back. No (n, n), and no (n, r, e): the largest tensor holds the features of all tokens."""
        short, long = (written(Performer(2, features=10).build(site), n) for n in (256, 512))
        assert long.total < 2.02 * short.total
        assert long.largest == 512 * 2 * 10


class TestDrawing:
    def model(self, redraw: int) -> ModelSpec:
        stack = Stack(Block(mix=Performer(2, redraw=redraw)), depth=2, causal=True)
        return ModelSpec(8, 16, Tokens(11), decoder=stack)

    def test_anew_every_few_steps(self) -> None:
        net = self.model(3).build(0)
        mixers = [m for m in net.modules() if isinstance(m, PerformerMixer)]
        changed = []
        for step in range(8):
            before = [m.omega.clone() for m in mixers]
            net.before_step(step)
            changed.append([not torch.equal(m.omega, w) for m, w in zip(mixers, before, strict=True)])
        assert changed == [[step in (3, 6)] * 2 for step in range(8)]
        assert not torch.equal(mixers[0].omega, mixers[1].omega)

    def test_or_never(self) -> None:
        net = self.model(0).build(0)
        before = net.state_dict()["decoder.blocks.0.mix.omega"].clone()
        for step in range(5):
            net.before_step(step)
        assert torch.equal(net.state_dict()["decoder.blocks.0.mix.omega"], before)

    def test_it_is_part_of_the_model(self) -> None:
        a, b = (self.model(1000).build(seed).eval() for seed in (0, 1))
        b.load_state_dict(a.state_dict())
        tokens = torch.randint(11, (1, 9))
        assert torch.equal(a(tokens, Coords.span(9)), b(tokens, Coords.span(9)))

    def test_in_double_and_after_a_move_the_kind_of_number_stays(self) -> None:
        mixer = Performer(2, redraw=1).build(CAUSAL).double()
        mixer.before_step(1)
        assert mixer.omega.dtype == torch.double

    def test_there_are_e_ln_e_features_unless_told(self) -> None:
        wide = Site("mix", width=128, length=8)
        assert Performer(2).build(wide).omega.shape == (round(64 * math.log(64)), 64)
        assert Performer(2, features=5).build(wide).omega.shape == (5, 64)
        assert Performer(8).build(CAUSAL).omega.shape == (1, 1)


class TestPrecision:
    @pytest.mark.parametrize("site", [CAUSAL, LOOSE], ids=["causal", "both ways"])
    def test_bfloat16_weights_and_autocast(self, site: Site) -> None:
        mixer, x = build(Performer(2), site).float(), stream().float()
        wanted, _ = mixer(x, Context(PLACES["right"]))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, _ = mixer(x, Context(PLACES["right"]))
        assert (found - wanted).norm() < 0.03 * wanted.norm()
        found, _ = mixer.bfloat16()(x.bfloat16(), Context(PLACES["right"]))
        assert found.dtype == torch.bfloat16
        assert (found - wanted).norm() < 0.05 * wanted.norm()

    def test_sums_are_kept_in_single_precision_at_least(self) -> None:
        mixer = Performer(2).build(CAUSAL).bfloat16()
        state = mixer.start(2, 4)
        _, state = mixer(stream(n=3).bfloat16(), Context(Coords.span(3)), state)
        assert isinstance(state, Sums)
        assert state.sums.dtype == torch.float32


class TestLooking:
    def test_weights_are_the_estimates(self) -> None:
        for site in (CAUSAL, LOOSE):
            mixer, x, tape = build(Performer(2), site), stream(), Tape("*.weights")
            out, _ = mixer(x, Context(PLACES["right"], tape=tape))
            weights = tape.kept[f"{site.path}.weights"]
            again = mixer.out(merge_heads(weights @ split_heads(mixer.v(x), 2)))
            kept = PLACES["right"].kept
            torch.testing.assert_close(again[kept], out[kept], rtol=1e-9, atol=1e-9)

    def test_of_chosen_rows_and_heads(self) -> None:
        mixer, x = build(Performer(4), CAUSAL), stream()
        all_of_them, some = Tape("*"), Tape("*", rows=[2, 9], heads=[3, 1])
        for tape in (all_of_them, some):
            mixer(x, Context(PLACES["documents"], tape=tape))
        name = f"{CAUSAL.path}.weights"
        torch.testing.assert_close(some.kept[name], all_of_them.kept[name][:, [3, 1]][:, :, [2, 9]])

    def test_across_they_can_be_seen_at_any_time(self) -> None:
        mixer, memory = build(Performer(2), CROSS), Memory(stream(n=7), stream(n=7), Coords.lengths([7, 3]))
        x, state = stream(), mixer.start(2, 8)
        first, state = mixer(x, Context(PLACES[""], memory=memory), state)
        tape = Tape("*")
        second, _ = mixer(x, Context(PLACES[""], memory=memory, tape=tape), state)
        torch.testing.assert_close(first, second)
        assert tape.kept[f"{CROSS.path}.weights"].shape == (2, 2, N, 7)

    def test_but_not_what_is_no_longer_remembered(self) -> None:
        mixer, tape = build(Performer(2), CAUSAL), Tape("*.weights")
        mixer(stream(), Context(PLACES[""], tape=tape), mixer.start(2, 8))
        assert not tape.kept
        assert tape.plans[CAUSAL.path].endswith("keys are not remembered, so there are no weights to look at")


class TestRefusals:
    def test_positions_that_act_on_scores(self) -> None:
        said = r"^mixer 'performer' cannot use position 'alibi' \(decoder.blocks.0.mix\): it needs bias$"
        with pytest.raises(SpecError, match=said):
            Performer(2, position=ALiBi()).build(CAUSAL)
        assert Performer(2, position=Rotary()).build(CAUSAL).position is not None

    def test_heads_that_do_not_divide_the_width(self) -> None:
        with pytest.raises(SpecError, match=r"^heads=3 should divide the width 8, or head_width be set$"):
            Performer(3).build(CAUSAL)

    def test_no_memory(self) -> None:
        said = r"^decoder.blocks.0.cross attends to a memory, and none was given; give the model a source$"
        with pytest.raises(SpecError, match=said):
            Performer(2).build(CROSS)(stream().float(), Context(PLACES[""]))


def test_costs() -> None:
    """Linear in the length: a token costs the same among ten and among a million."""
    causal, loose, across = (Performer(2, features=6).build(site) for site in (CAUSAL, LOOSE, CROSS))
    maps, features, sums = 4 * 2 * 64, 2 * 2 * 6 * 4 * 2, 2 * 2 * 6 * 4 * 2
    assert loose.flops(10, 10) == loose.flops(10**6, 10) == maps + features + sums
    assert causal.flops(10**6, 10) == causal.flops(10, 10) > loose.flops(10, 10)
    assert across.flops(10, 5) == maps - 2 * 64 + (features + sums) * 0.75
    assert across.state_numbers(10) == 0


@pytest.mark.parametrize("far", [5.0, 15.0, 25.0])
def test_the_only_key_is_seen_however_far_it_is(far: float) -> None:
    """With one key the answer is its value, even where its weight is tiny: scores down to −78."""
    mixer = Performer(1).build(Site("x", 64, 16, causal=True))
    for seed in range(20):
        q = F.normalize(torch.randn(1, 1, 1, 64, generator=torch.Generator().manual_seed(seed)), dim=-1) * far
        (asked, _), (keys, size) = mixer._features(q), mixer._features(-q)
        value = F.pad(torch.ones(1, 1, 1, 64), (0, 1), value=1.0)
        state = mixer.start(1, 1)
        seen, _ = module.chunk(asked, keys, size, value, torch.zeros(1, 1, dtype=torch.long), state)
        torch.testing.assert_close(seen[..., :-1] / module._safe(seen[..., -1:]), torch.ones(1, 1, 1, 64))
