"""Linformer: the formula under every way of sharing, full attention at full rank, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import ShapeError, SpecError, StateError
from regard.model.build import refusals
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.context import Context, Memory, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.core.shape import merge_heads, split_heads
from regard.nn.mixers import Full, Linformer
from regard.nn.mixers.linformer import LinformerMixer
from regard.nn.positions.position import Rotary
from tests.nn.mixers.work import written

pytestmark = pytest.mark.numeric

N = 10
SITE = Site("encoder.blocks.0.mix", width=8, length=N)
CROSS = Site("decoder.blocks.0.cross", width=8, length=N, causal=True, role="cross", memory=6)
PLACES = {
    "": Coords.span(N),
    "short": Coords.span(6),
    "right": Coords.lengths([N, 4]),
    "left": Coords.lengths([N, 4], left=True),
}
SHARING: tuple[Any, ...] = ("none", "head", "key_value", "layer")
sharings = pytest.mark.parametrize("sharing", SHARING)
places = pytest.mark.parametrize("at", PLACES.values(), ids=PLACES)


def build(spec: Linformer, site: Site = SITE) -> tuple[LinformerMixer, dict[str, torch.nn.Module]]:
    mixer = spec.build(site).double()
    shared = {name: make().double() for name, make in spec.shares(site).items()}
    for part in (mixer, *shared.values()):
        for p in part.parameters():
            torch.nn.init.normal_(p, std=0.5)
    return mixer, shared


def stream(n: int = N, width: int = 8) -> Tensor:
    return torch.randn(2, n, width, dtype=torch.double)


def projections(mixer: LinformerMixer, shared: dict[str, torch.nn.Module], head: int) -> tuple[Tensor, Tensor]:
    """E and F of a head."""
    e = mixer.squeeze_k or next(iter(shared.values()))
    f = mixer.squeeze_v or e
    chosen = slice(head * mixer.rank, (head + 1) * mixer.rank)
    return tuple(m.weight[chosen if m.heads > 1 else slice(None)] for m in (e, f))  # type: ignore[return-value, union-attr, index]


def one_by_one(
    mixer: LinformerMixer, shared: dict[str, torch.nn.Module], x: Tensor, keys: Tensor, at: Coords
) -> Tensor:
    """softmax(q·(E·K)ᵀ/√e)·(F·V), head by head and row by row, over the tokens that are there, at their positions."""
    q, k, v = (split_heads(t, mixer.heads) for t in (mixer.q(x), mixer.k(keys), mixer.v(keys)))
    rows = []
    for b in range(x.shape[0]):
        pos = at.pos.expand(x.shape[0], -1)[b]
        there, heads = pos >= 0, []
        for h in range(mixer.heads):
            e, f = (t[:, pos[there]] for t in projections(mixer, shared, h))
            weights = (q[b, h] @ (e @ k[b, h, there]).mT / mixer.head_width**0.5).softmax(-1)
            heads.append(weights @ (f @ v[b, h, there]))
        rows.append(torch.stack(heads))
    return mixer.out(merge_heads(torch.stack(rows)))


class TestFormula:
    @sharings
    @places
    def test_with_padding(self, sharing: Any, at: Coords) -> None:
        (mixer, shared), x = build(Linformer(2, rank=3, sharing=sharing)), stream(at.n).requires_grad_()
        kept = at.kept.expand(2, -1)
        outs = mixer(x, Context(at, shared=shared))[0], one_by_one(mixer, shared, x, x, at)
        torch.testing.assert_close(outs[0][kept], outs[1][kept], rtol=1e-9, atol=1e-9)
        inputs = [x, *mixer.parameters(), *(p for m in shared.values() for p in m.parameters())]
        grads = [torch.autograd.grad(out[kept].sin().sum(), inputs) for out in outs]
        torch.testing.assert_close(grads[0], grads[1], rtol=1e-9, atol=1e-9)

    @sharings
    def test_across(self, sharing: Any) -> None:
        (mixer, shared), x = build(Linformer(2, rank=3, sharing=sharing), CROSS), stream(5)
        at = Coords.lengths([7, 2])
        memory = Memory(*[stream(7, 6)] * 2, at)
        out, _ = mixer(x, Context(Coords.span(5), memory=memory, shared=shared))
        torch.testing.assert_close(out, one_by_one(mixer, shared, x, memory.keys, at), rtol=1e-9, atol=1e-9)

    @sharings
    @pytest.mark.parametrize("n", [N, 6])
    def test_at_full_rank_it_is_full_attention(self, sharing: Any, n: int) -> None:
        """k = n and E = F = I."""
        (mixer, shared), x, at = (
            build(Linformer(2, rank=n, sharing=sharing)),
            stream(n).requires_grad_(),
            Coords.span(n),
        )
        for part in (mixer.squeeze_k, mixer.squeeze_v, *shared.values()):
            if part is not None:
                part.weight.data.copy_(torch.eye(n, N).repeat(part.heads, 1))  # type: ignore[union-attr, operator, arg-type]
        full = Full(2).build(SITE).double()
        full.load_state_dict({k: v for k, v in mixer.state_dict().items() if "squeeze" not in k})
        found = []
        for m in (mixer, full):
            out, _ = m(x, Context(at, shared=shared))
            parameters = [getattr(m, name).weight for name in ("q", "k", "v", "out")]
            found.append([out, *torch.autograd.grad(out.sin().sum(), [x, *parameters])])
        torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)


class TestSharing:
    def net(self, sharing: Any) -> torch.nn.Module:
        stack = Stack(Block(mix=Linformer(2, rank=3, sharing=sharing)), depth=2)
        return ModelSpec(8, N, Tokens(11), encoder=stack).build(0)

    @pytest.mark.parametrize(
        ("sharing", "shapes"),
        [
            ("none", {f"blocks.{i}.mix.squeeze_{t}.weight": (6, N) for i in range(2) for t in "kv"}),
            ("head", {f"blocks.{i}.mix.squeeze_{t}.weight": (3, N) for i in range(2) for t in "kv"}),
            ("key_value", {f"blocks.{i}.mix.squeeze_k.weight": (3, N) for i in range(2)}),
            ("layer", {"shared.linformer_3.weight": (3, N)}),
        ],
    )
    def test_who_owns_what(self, sharing: Any, shapes: dict[str, tuple[int, int]]) -> None:
        found = {n: tuple(p.shape) for n, p in self.net(sharing).named_parameters() if p.shape[-1] == N}
        assert found == {f"encoder.{name}": shape for name, shape in shapes.items()}

    @sharings
    def test_all_of_it_learns(self, sharing: Any) -> None:
        net = self.net(sharing)
        net(torch.randint(11, (2, 7)), Coords.lengths([7, 3])).square().sum().backward()
        for name, p in net.named_parameters():
            if p.shape[-1] == N:
                assert p.grad is not None and (p.grad[:, :7] != 0).all(), name
                assert (p.grad[:, 7:] == 0).all()


class TestRefusals:
    def test_causal(self) -> None:
        asked = ModelSpec(8, N, Tokens(11), decoder=Stack(Block(mix=Linformer(2)), depth=1, causal=True))
        (said,) = refusals(asked)
        assert said.startswith("mixer 'linformer' cannot be causal (decoder.blocks.0.mix); use 'full' or ")
        assert "linformer" not in said.split("use")[1]

    def test_positions_on_scores(self) -> None:
        stack = Stack(Block(mix=Linformer(2)), depth=1, position=Rotary())
        said = r"^mixer 'linformer' cannot use position 'rotary' \(encoder.blocks.0.mix\): it needs rotate$"
        with pytest.raises(SpecError, match=said):
            ModelSpec(8, N, Tokens(11), encoder=stack).build()

    def test_more_tokens_than_it_was_built_for(self) -> None:
        net = TestSharing().net("head")
        said = r"^mixer 'linformer' in the encoder is built for 10 tokens, got 11; shorten them or raise the length$"
        with pytest.raises(ShapeError, match=said):
            net(torch.zeros(1, 11, dtype=torch.long), Coords.span(11))

    def test_packed_documents(self) -> None:
        said = r"^mixer 'linformer' in the encoder cannot keep packed documents apart; give it one document per row$"
        with pytest.raises(ShapeError, match=said):
            TestSharing().net("head")(torch.zeros(1, 5, dtype=torch.long), Coords.documents([[2, 3]]))

    def test_token_by_token(self) -> None:
        with pytest.raises(StateError, match=r"^encoder.blocks.0.mix cannot run token by token$"):
            Linformer(2).build(SITE).start(1, 1)

    def test_heads_that_do_not_divide_the_width(self) -> None:
        with pytest.raises(SpecError, match=r"^heads=3 should divide the width 8, or head_width be set$"):
            Linformer(3).build(SITE)

    def test_no_memory(self) -> None:
        said = r"^decoder.blocks.0.cross attends to a memory, and none was given; give the model a source$"
        with pytest.raises(SpecError, match=said):
            Linformer(2).build(CROSS)(stream(3).float(), Context(Coords.span(3)))


def test_a_decoder_that_looks_across_runs_token_by_token() -> None:
    """Its rows are made once a sentence."""
    mixer, _ = build(Linformer(2, rank=3), CROSS)
    x, memory = stream(5), Memory(*[stream(7, 6)] * 2, Coords.span(7))
    whole, _ = mixer(x, Context(Coords.span(5), memory=memory))
    state, broken = mixer.start(2, 5), Memory(memory.keys * torch.nan, memory.values * torch.nan, memory.at)
    for i in range(5):
        ctx = Context(Coords.span(1, i), memory=broken if i else memory)
        y, state = mixer(x[:, i : i + 1], ctx, state)
        torch.testing.assert_close(y, whole[:, i : i + 1])


def test_what_queries_make_of_the_rows_can_be_looked_at() -> None:
    mixer, _ = build(Linformer(2, rank=3))
    tape, x = Tape("*.slots"), stream()
    seen, _ = mixer(x, Context(PLACES["right"], tape=tape))
    unseen, _ = mixer(x, Context(PLACES["right"]))
    torch.testing.assert_close(seen, unseen)
    slots = tape.kept["encoder.blocks.0.mix.slots"]
    assert slots.shape == (2, 2, N, 3)
    torch.testing.assert_close(slots.sum(-1), torch.ones(2, 2, N, dtype=torch.double))


def test_work_grows_with_the_length_and_no_faster() -> None:
    short, long = (written(Linformer(2, rank=4).build(Site("mix", width=8, length=n)), n) for n in (256, 512))
    assert long.total < 2.02 * short.total
    assert long.largest == 512 * 8


def test_costs() -> None:
    """A token costs the same among ten and among a million."""
    loose, across = Linformer(2, rank=3).build(SITE), Linformer(2, rank=3).build(CROSS)
    assert loose.flops(10, 10) == loose.flops(10**6, 10) == 2 * 4 * 64 + 2 * 4 * 3 * 8
    assert across.flops(10, 5) == 2 * 2 * 64 + 2 * 2 * 6 * 8 / 2 + 1.5 * 4 * 3 * 8
