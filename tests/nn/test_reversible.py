"""Reversible wiring: what it computes, that its gradients are those of plain autograd, and what it keeps for them."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from regard.model.build import refusals
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.block import Block, BlockLayer
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.reversible import Pair, Reversible
from regard.nn.blocks.wiring import PreNorm, States, WiringSpec
from regard.nn.core.context import Context, Memory, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MixerSpec, Site
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers import Full, Linformer, Lsh, Performer
from regard.nn.mixers.lsh import LshMixer
from regard.nn.positions.position import Bucketed, PositionSpec, Relative, Rotary
from tests.nn.odd import Drift, in_tables

pytestmark = pytest.mark.numeric

__all__ = ["in_tables"]
N = 12
AT = Coords.lengths([N, 7])


def ids(seed: int = 0) -> Tensor:
    return torch.randint(11, (2, N), generator=torch.Generator().manual_seed(seed))


def writer(
    mix: MixerSpec,
    depth: int = 3,
    wiring: WiringSpec | None = None,
    position: PositionSpec | None = None,
    causal: bool = True,
) -> Net:
    block = Block(mix=mix, feed=FeedForward(10, dropout=0.2))
    stack = Stack(block, depth=depth, causal=causal, wiring=wiring or Reversible(dropout=0.3), position=position)
    side = {"decoder": stack} if causal else {"encoder": stack}
    return ModelSpec(8, N, Tokens(11), **side).build(0).double().train()  # type: ignore[arg-type]


def both(mix: MixerSpec, cross: MixerSpec) -> Net:
    """An encoder and a decoder, both reversible; three sublayers a block."""
    wiring, feed = Reversible(dropout=0.3), FeedForward(10, dropout=0.2)
    encoder = Stack(Block(mix=mix, feed=feed), depth=2, wiring=wiring, position=Bucketed(8, 6))
    decoder = Stack(
        Block(mix=mix, cross=cross, feed=feed), depth=3, causal=True, wiring=wiring, position=Bucketed(8, 6)
    )
    return ModelSpec(8, N, Tokens(11), encoder=encoder, decoder=decoder).build(0).double().train()


@pytest.fixture
def plainly() -> Iterator[pytest.MonkeyPatch]:
    """Under it, blocks run with plain autograd."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def plain(self: Reversible, block: BlockLayer, stream: Pair, ctx: Context, states: States) -> tuple[Pair, States]:
    a, b, new = stream.a, stream.b, {}
    for name, part in block.parts():
        y, new[name] = part(block.norm(name)(b), ctx, states.get(name))
        a, b = b, a + block.dropout(y)
    return Pair(a, b, stream.trail), new


def passed(net: Net) -> list[Tensor]:
    """The output, the gradient of every parameter, and what chance is left with."""
    torch.manual_seed(5)
    source = (ids(1), AT) if net.encoder is not None and net.decoder is not None else None
    out = net(ids(), AT, source)
    grads = torch.autograd.grad(out.sin().sum(), list(net.parameters()), materialize_grads=True)
    return [out, *grads, torch.rand(1)]


class TestWhatItComputes:
    def block(self, **parts: MixerSpec | FeedForward) -> BlockLayer:
        site = Site("decoder.blocks.0", 8, N, causal=True, memory=8)
        block = Block(**parts).build(site, Reversible())  # type: ignore[arg-type]
        for p in block.parameters():
            torch.nn.init.normal_(p, std=0.4)
        return block.double()

    def test_mix_and_feed_are_the_papers(self) -> None:
        block = self.block(mix=Full(2), feed=FeedForward(10))
        x1, x2 = torch.randn(2, 2, N, 8, dtype=torch.double)
        entered = Reversible().enter(x1)
        out, _ = block(dataclasses.replace(entered, b=x2), Context(AT), {})
        y1 = x1 + block.mix(block.mix_norm(x2), Context(AT))[0]  # type: ignore[operator]
        y2 = x2 + block.feed(block.feed_norm(y1), Context(AT))[0]  # type: ignore[operator]
        torch.testing.assert_close((out.a, out.b), (y1, y2))

    def test_one_part_and_three_take_turns(self) -> None:
        x1, x2 = torch.randn(2, 2, N, 8, dtype=torch.double)
        one = self.block(mix=Full(2))
        out, _ = one(dataclasses.replace(Reversible().enter(x1), b=x2), Context(AT), {})
        torch.testing.assert_close((out.a, out.b), (x2, x1 + one.mix(one.mix_norm(x2), Context(AT))[0]))  # type: ignore[operator]
        ctx = Context(AT, memory=Memory(x1, x2, AT))
        three = self.block(mix=Full(2), cross=Full(2), feed=FeedForward(10))
        out, _ = three(dataclasses.replace(Reversible().enter(x1), b=x2), ctx, {})
        y1 = x1 + three.mix(three.mix_norm(x2), ctx)[0]  # type: ignore[operator]
        y2 = x2 + three.cross(three.cross_norm(y1), ctx)[0]  # type: ignore[operator]
        torch.testing.assert_close((out.a, out.b), (y2, y1 + three.feed(three.feed_norm(y2), ctx)[0]))  # type: ignore[operator]

    def test_the_pair_leaves_as_its_mean_or_side_by_side(self) -> None:
        a, b = torch.randn(2, 1, 3, 4)
        pair = dataclasses.replace(Reversible().enter(a), b=b)
        assert torch.equal(Reversible().leave(pair), (a + b) / 2)
        assert torch.equal(Reversible(leaving="both").leave(pair), torch.cat([a, b], -1))
        assert [Reversible(leaving=how).leaves(4) for how in ("mean", "both")] == [4, 8]  # type: ignore[arg-type]

    def test_a_wider_stream_has_a_wider_norm_and_head(self) -> None:
        stack = Stack(Block(mix=Full(2)), depth=2, causal=True, wiring=Reversible(leaving="both"))
        tied = ModelSpec(8, N, Tokens(11), decoder=stack)
        said = "a tied head needs a stream as wide as the embedding (8), and this one is 16 wide; set head.tied: false"
        assert refusals(tied) == [said]
        net = tied.replace("head", Vocab(tied=False)).build()
        assert net.decoder.norm.weight.shape == (16,)  # type: ignore[union-attr]
        assert net.logits(net(ids(), AT)).shape == (2, N, 11)


class TestGradients:
    @pytest.mark.parametrize(
        ("mix", "position"),
        [
            (Full(2, dropout=0.2), None),
            (Full(2, dropout=0.2), Bucketed(8, 6)),
            (Full(2), Relative(3)),
            (Full(2, position=Bucketed(8, 6)), None),
            (Performer(2), Rotary()),
            (Lsh(2, chunk=4, buckets=4, rounds=3, dropout=0.2), None),
        ],
        ids=["full", "a bias of the stack", "vectors of the stack", "a bias of the layer", "performer", "lsh"],
    )
    def test_are_those_of_plain_autograd(
        self, mix: MixerSpec, position: PositionSpec | None, plainly: pytest.MonkeyPatch
    ) -> None:
        net = writer(mix, depth=4, position=position)
        found = passed(net)
        plainly.setattr(Reversible, "run", plain)
        for mine, wanted in zip(found, passed(net), strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-9)

    def test_with_a_part_that_the_stack_owns(self, plainly: pytest.MonkeyPatch) -> None:
        net = writer(Linformer(2, rank=4, sharing="layer"), causal=False)
        found = passed(net)
        assert any(".shared." in name for name, _ in net.named_parameters())
        plainly.setattr(Reversible, "run", plain)
        for mine, wanted in zip(found, passed(net), strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("cross", [Full(2, dropout=0.2), Linformer(2, rank=4, sharing="layer"), Performer(2)])
    def test_with_cross_attention(self, cross: MixerSpec, plainly: pytest.MonkeyPatch) -> None:
        net = both(Full(2, dropout=0.2), cross)
        found = passed(net)
        plainly.setattr(Reversible, "run", plain)
        for mine, wanted in zip(found, passed(net), strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-9)

    def test_of_what_enters(self, plainly: pytest.MonkeyPatch) -> None:
        """Blocks of one part too, where an input of the block is one of its outputs."""
        blocks = (Block(mix=Full(2)), Block(feed=FeedForward(9)), Block(mix=Full(2), feed=FeedForward(9)))
        stack = Stack(blocks=blocks, causal=True, wiring=Reversible())
        net = ModelSpec(8, N, Tokens(11), decoder=stack).build(0).double()
        found = []
        for run in (Reversible.run, plain):
            plainly.setattr(Reversible, "run", run)
            x = torch.randn(2, N, 8, dtype=torch.double, generator=torch.Generator().manual_seed(1)).requires_grad_()
            out, _ = net.decoder(x, Context(AT))  # type: ignore[misc]
            found.append(torch.autograd.grad(out.sin().sum(), x)[0])
        torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)

    def test_some_parameters_may_be_frozen(self, plainly: pytest.MonkeyPatch) -> None:
        found = []
        for run in (Reversible.run, plain):
            plainly.setattr(Reversible, "run", run)
            net = writer(Full(2), position=Bucketed(8, 6))
            for name, p in net.named_parameters():
                p.requires_grad_(".q." in name or "position" in name)
            torch.manual_seed(5)
            net(ids(), AT).sin().sum().backward()
            found.append({name: p.grad for name, p in net.named_parameters() if p.grad is not None})
        assert found[0].keys() == found[1].keys() != set()
        for name, grad in found[0].items():
            torch.testing.assert_close(grad, found[1][name], rtol=1e-9, atol=1e-9)

    def test_a_graph_that_is_kept_may_be_walked_twice(self) -> None:
        net = writer(Lsh(2, chunk=4, buckets=4))
        out = net(ids(), AT).sin().sum()
        first, second = (torch.autograd.grad(out, list(net.parameters()), retain_graph=True) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))

    def test_of_gradients_there_are_none(self) -> None:
        net = writer(Full(2))
        weight = net.decoder.blocks[0].mix.q.weight  # type: ignore[union-attr, index]
        (grad,) = torch.autograd.grad(net(ids(), AT).sin().sum(), weight, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            grad.sum().backward()

    @pytest.mark.parametrize("inside", [False, True], ids=["", "backward inside"])
    def test_in_lower_precision(self, inside: bool, plainly: pytest.MonkeyPatch) -> None:
        found = []
        for run in (Reversible.run, plain):
            plainly.setattr(Reversible, "run", run)
            net = writer(Full(2), depth=2).float()
            torch.manual_seed(5)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = net(ids(), AT).float().sin().sum()
                if inside:
                    loss.backward()
            if not inside:
                loss.backward()
            found.append([p.grad for p in net.parameters()])
        for mine, wanted in zip(*found, strict=True):
            assert mine is not None and wanted is not None
            assert (mine - wanted).norm() <= 0.03 * wanted.norm() + 1e-3


def kept(net: Net) -> int:
    """How many numbers the graph of a pass keeps, whoever holds them."""
    seen: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes() // t.element_size()
        return t

    own = {p.untyped_storage().data_ptr() for p in net.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out, _ = net.decoder(torch.randn(2, N, 8, dtype=torch.double), Context(Coords.span(N)))  # type: ignore[misc]
        assert out.requires_grad
    return sum(size for place, size in seen.items() if place not in own)


def alive(net: Net) -> int:
    """How many numbers live in tensors between the passes, parameters aside; also those that the hooks do not see."""
    gc.collect()
    before = {id(t) for t in gc.get_objects() if issubclass(type(t), Tensor)}
    out, _ = net.decoder(torch.randn(2, N, 8, dtype=torch.double), Context(Coords.span(N)))  # type: ignore[misc]
    gc.collect()
    new = [t for t in gc.get_objects() if issubclass(type(t), Tensor) and id(t) not in before and t.is_floating_point()]
    assert out.requires_grad
    return sum({t.untyped_storage().data_ptr(): t.numel() for t in new}.values())


class TestMemory:
    @pytest.mark.parametrize(
        "mix", [Full(2), Performer(2), Lsh(2, chunk=4, buckets=4)], ids=["full", "performer", "lsh"]
    )
    def test_is_flat_in_depth(self, mix: MixerSpec) -> None:
        shallow, deep = (kept(writer(mix, depth)) for depth in (2, 16))
        assert shallow == deep
        shallow, deep = (alive(writer(mix, depth)) for depth in (2, 16))
        assert shallow == deep

    def test_which_it_is_not_otherwise(self) -> None:
        shallow, deep = (kept(writer(Full(2), depth, PreNorm(dropout=0.3))) for depth in (2, 16))
        assert deep > 7 * shallow

    def test_a_hash_is_taken_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is found again on the way back differs in the last bit, which may be enough for another bucket."""
        hashed: list[Tensor] = []
        taken = LshMixer._hash
        monkeypatch.setattr(LshMixer, "_hash", lambda self, q: (hashed.append(q), taken(self, q))[1])
        net = writer(Lsh(2, chunk=4, buckets=4), depth=3)
        net(ids(), AT).sum().backward()
        assert len(hashed) == 3


class TestTape:
    def test_everything_is_kept_once_and_as_ever(self, plainly: pytest.MonkeyPatch) -> None:
        tapes = []
        for run in (Reversible.run, plain):
            plainly.setattr(Reversible, "run", run)
            net, tape = writer(Full(2)).eval(), Tape("*.weights")
            out = net(ids(), AT, tape=tape)
            before = dict(tape.kept)
            out.sum().backward()
            assert all(tape.kept[name] is w for name, w in before.items())
            tapes.append(before)
        assert tapes[0].keys() == tapes[1].keys() == {f"decoder.blocks.{i}.mix.weights" for i in range(3)}
        for name, w in tapes[0].items():
            torch.testing.assert_close(w, tapes[1][name])

    @pytest.mark.usefixtures("in_tables")
    def test_losses_are_refused(self) -> None:
        stack = Stack(Block(mix=Drift()), depth=2, causal=True, wiring=Reversible())
        said = "decoder.blocks.{}.mix has losses of its own, which reversible wiring cannot carry back; use 'pre_norm'"
        assert refusals(ModelSpec(8, N, Tokens(11), decoder=stack)) == [said.format(i) for i in range(2)]
