"""Memory across segments: what is remembered, for how long, where it stands, and which gradients reach what."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from regard.errors import SpecError, StateError
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.wiring import PostNorm
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Window
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import Full, XLMemory
from regard.nn.mixers.compress import CompressionSpec, MostUsed, Pooling
from regard.nn.positions.position import ALiBi, PositionSpec, Rotary
from regard.nn.positions.relative import Distance
from tests.nn.mixers.remembering import CLOSE, COMPRESSIONS, DEPTH, built, compressions, ids, model, segments, xl_states
from tests.nn.odd import both

pytestmark = pytest.mark.numeric


class TestTransformerXL:
    @pytest.mark.parametrize("position", [Distance(), Distance(clamp=5), Rotary(), ALiBi()], ids=repr)
    @pytest.mark.parametrize("memory_length", [8, 9, 40])
    def test_two_segments_with_memory_are_one_pass(self, position: PositionSpec, memory_length: int) -> None:
        """And memory that is longer than needed changes nothing."""
        net, tokens = built(model(XLMemory(2, memory_length), position)), ids(2, 16)
        with torch.no_grad():
            whole = net(tokens, Coords.span(16))
            torch.testing.assert_close(segments(net, tokens, 8)[0], whole, **CLOSE)

    def test_without_memory_enough_they_are_not(self) -> None:
        net, tokens = built(model(XLMemory(2, 7))), ids(2, 16)
        with torch.no_grad():
            out, whole = segments(net, tokens, 8)[0], net(tokens, Coords.span(16))
        assert (out[:, 8:] - whole[:, 8:]).abs().amax() > 1e-3

    def test_a_query_sees_its_segment_and_the_past_before_it(self) -> None:
        """One layer: token i of the third segment sees `memory_length` tokens before the segment, and the segment up to i."""
        spec = model(XLMemory(2, memory_length=3)).replace("decoder.depth", 1)
        net, tokens, tape = built(spec), ids(1, 12), Tape("*.weights")
        segments(net, tokens, 4, tape=tape)
        weights = tape.kept["decoder.blocks.0.mix.weights"]
        assert weights.shape == (1, 2, 4, 7)
        assert ((weights[0, 0] > 0) == torch.ones(4, 7).tril(3).bool()).all()

    def test_the_same_length_for_every_query(self) -> None:
        """A window beside the memory: segments of any size then agree, as in the authors' evaluation."""
        net, tokens = built(model(XLMemory(2, 40, mask=Window(5)))), ids(2, 24)
        with torch.no_grad():
            torch.testing.assert_close(segments(net, tokens, 3)[0], segments(net, tokens, 8)[0], **CLOSE)

    @pytest.mark.parametrize(
        "at", [Coords.lengths([16, 5, 11], left=True), Coords.lengths([16, 5, 11])], ids=["left", "right"]
    )
    def test_padding(self, at: Coords) -> None:
        net, tokens = built(model(XLMemory(2, 8))), ids(3, 16)
        with torch.no_grad():
            out, whole = segments(net, tokens, 8, at)[0], net(tokens, at)
        torch.testing.assert_close(out[at.kept], whole[at.kept], **CLOSE)

    def test_documents(self) -> None:
        at = Coords.documents([[5, 7, 4], [9, 2]])
        net, tokens = built(model(XLMemory(2, 8))), ids(2, 16)
        with torch.no_grad():
            out, whole = segments(net, tokens, 8, at)[0], net(tokens, at)
        torch.testing.assert_close(out[at.kept], whole[at.kept], **CLOSE)

    def test_the_oldest_leave_first(self) -> None:
        net, tokens = built(model(XLMemory(2, 5))), ids(2, 12)
        _, state = segments(net, tokens, 4)
        first = xl_states(state)[0]
        assert (first.at.pos.tolist(), first.at.first) == ([[7, 8, 9, 10, 11]], 7)
        norm = net.decoder.blocks[0].mix_norm  # type: ignore[union-attr, index]
        torch.testing.assert_close(first.x, norm(net.embed(tokens, Coords.span(12)))[:, 7:])
        assert len({id(p.at) for p in xl_states(state)}) == 1

    def test_memory_is_cut_from_the_graph(self) -> None:
        """The second segment's gradients are those it would have if the memory were given numbers."""
        net, tokens = built(model(XLMemory(2, 8))), ids(2, 8)
        _, state = net.decode(tokens[:, :4], Coords.span(4), state=net.start(2, 0))
        assert state is not None
        assert not any(p.x.requires_grad for p in xl_states(state))
        out, _ = net.decode(tokens[:, 4:], Coords.span(4, 4), state=state)
        found = torch.autograd.grad(out.sum(), list(net.parameters()))
        with torch.no_grad():
            _, known = net.decode(tokens[:, :4], Coords.span(4), state=net.start(2, 0))
        out, _ = net.decode(tokens[:, 4:], Coords.span(4, 4), state=known)
        for a, b in zip(found, torch.autograd.grad(out.sum(), list(net.parameters())), strict=True):
            torch.testing.assert_close(a, b)

    def test_longer_memory_in_evaluation(self) -> None:
        """No weight depends on how much is remembered, so a trained model is built again with more."""
        short, tokens = built(model(XLMemory(2, 4))), ids(2, 24)
        long = built(short.spec.replace("decoder.block.mix.memory_length", 20), like=short)
        with torch.no_grad():
            out = segments(long, tokens, 4)[0]
            torch.testing.assert_close(out, short(tokens, Coords.span(24)), **CLOSE)
            assert (segments(short, tokens, 4)[0] - out).abs().amax() > 1e-3

    def test_rows_may_stand_at_different_places(self) -> None:
        """A stream whose rows began at different times: distances are all that counts."""
        net, tokens = built(model(XLMemory(2, 6))), ids(2, 12)
        at = Coords(torch.tensor([[0], [70]]) + torch.arange(12))
        with torch.no_grad():
            torch.testing.assert_close(segments(net, tokens, 4, at)[0], segments(net, tokens, 4)[0], **CLOSE)

    def test_it_is_xlnet_read_from_left_to_right(self) -> None:
        """XLNet has the same four terms, u and v of each layer, and the same memory."""
        from transformers import XLNetConfig, XLNetModel

        config = XLNetConfig(
            vocab_size=11, d_model=16, n_layer=DEPTH, n_head=4, d_inner=24, ff_activation="relu", attn_type="uni",
            mem_len=7, dropout=0.0, layer_norm_eps=1e-5, clamp_len=9,
        )  # fmt: skip
        theirs = XLNetModel(config).eval()
        for name, parameter in theirs.named_parameters():
            torch.nn.init.normal_(parameter, mean=1.0 if "norm.weight" in name else 0.0, std=0.3)
        mix = XLMemory(4, 7, bias=False, position=Distance(9))
        stack = Stack(Block(mix=mix, feed=FeedForward(24)), depth=DEPTH, causal=True, wiring=PostNorm(LayerNorm()))
        net = ModelSpec(16, 64, Tokens(11), decoder=stack).build().eval()
        net.load_state_dict(from_xlnet(theirs.state_dict()))
        state, mems, tokens = net.start(2, 0), None, ids(2, 20)
        with torch.no_grad():
            for a in range(0, 20, 5):
                wanted = theirs(tokens[:, a : a + 5], mems=mems, use_mems=True)
                mems = wanted.mems
                out, state = net.decode(tokens[:, a : a + 5], Coords.span(5, a), state=state)  # type: ignore[assignment]
                torch.testing.assert_close(out, wanted.last_hidden_state, rtol=0, atol=1e-5)


def from_xlnet(values: dict[str, Tensor]) -> dict[str, Tensor]:
    out = {"embed.weight": values["word_embedding.weight"]}
    for i in range(DEPTH):
        ours, theirs = f"decoder.blocks.{i}", f"layer.{i}"
        for name, part in (("q", "q"), ("k", "k"), ("v", "v"), ("r", "r"), ("out", "o")):
            value = values[f"{theirs}.rel_attn.{part}"].flatten(1)
            out[f"{ours}.mix.{name}.weight"] = value if name == "out" else value.t()
        out[f"{ours}.mix.position.u"] = values[f"{theirs}.rel_attn.r_w_bias"]
        out[f"{ours}.mix.position.v"] = values[f"{theirs}.rel_attn.r_r_bias"]
        for kind in ("weight", "bias"):
            out[f"{ours}.mix_norm.{kind}"] = values[f"{theirs}.rel_attn.layer_norm.{kind}"]
            out[f"{ours}.feed_norm.{kind}"] = values[f"{theirs}.ff.layer_norm.{kind}"]
            out[f"{ours}.feed.up.{kind}"] = values[f"{theirs}.ff.layer_1.{kind}"]
            out[f"{ours}.feed.down.{kind}"] = values[f"{theirs}.ff.layer_2.{kind}"]
    return out


class TestStates:
    @pytest.mark.parametrize("compress", [None, *COMPRESSIONS], ids=repr)
    @pytest.mark.parametrize("at", [None, Coords.lengths([24, 13, 18], left=True)], ids=["", "padded"])
    def test_through_tensors_and_back(self, compress: CompressionSpec | None, at: Coords | None) -> None:
        """A run that carries state goes on from its checkpoint as if nothing had happened."""
        net, tokens, at = built(model(XLMemory(2, 4, compress))), ids(3, 24), at or Coords.span(24)
        _, state = segments(net, tokens[:, :16], 4, at.part(slice(0, 16)))
        flat = {name: tensor.clone() for name, tensor in state.flat().items()}
        back = net.start(3, 0).load_flat(flat)
        assert list(back.flat()) == list(flat)
        assert all(torch.equal(t, flat[name]) for name, t in back.flat().items())
        for mine, other in zip(xl_states(back), xl_states(state), strict=True):
            assert (mine.slots, mine.at.first, mine.at.padded) == (other.slots, other.at.first, other.at.padded)
        with torch.no_grad():
            outs = [net.decode(tokens[:, 16:], at.part(slice(16, 24)), state=s)[0] for s in (state, back)]
        assert torch.equal(*outs)

    @compressions
    def test_rows_are_chosen(self, compress: CompressionSpec) -> None:
        net, tokens, rows = built(model(XLMemory(2, 4, compress))), ids(3, 20), torch.tensor([2, 0, 0, 1])
        with torch.no_grad():
            _, state = segments(net, tokens[:, :16], 4)
            out, _ = net.decode(tokens[rows, 16:], Coords.span(4, 16), state=state.select(rows))
            torch.testing.assert_close(out, segments(net, tokens[rows], 4)[0][:, 16:], **CLOSE)

    def test_what_is_remembered_stops_growing(self) -> None:
        mixer = built(model(XLMemory(2, 4, Pooling(3, 2)))).decoder.blocks[0].mix  # type: ignore[union-attr, index]
        assert [mixer.state_numbers(n) / 8 for n in (1, 4, 6, 10, 11, 100)] == [1, 4, 5, 7, 7, 7]
        plain = built(model(XLMemory(2, 4))).decoder.blocks[0].mix  # type: ignore[union-attr, index]
        assert [plain.state_numbers(n) / 8 for n in (3, 4, 50)] == [3, 4, 4]

    def test_it_cannot_go_back(self) -> None:
        _, state = segments(built(model(XLMemory(2, 4))), ids(1, 8), 4)
        with pytest.raises(StateError, match=r"^XLState cannot go back to 3 tokens; run them again from the start$"):
            state.cut(3)

    def test_the_given_state_is_left_as_it_was(self) -> None:
        net, tokens = built(model(XLMemory(2, 4, MostUsed(3, 2)))), ids(1, 12)
        _, state = segments(net, tokens[:, :8], 4)
        before = {name: t.clone() for name, t in state.flat().items()}
        net.decode(tokens[:, 8:], Coords.span(4, 8), state=state)
        assert all(torch.equal(t, before[name]) for name, t in state.flat().items())


@compressions
def test_low_and_mixed_precision(compress: CompressionSpec) -> None:
    tokens, exact = ids(2, 16), built(model(XLMemory(2, 4, compress))).float().train()
    wanted = segments(exact, tokens, 4)[0]
    with torch.autocast("cpu", torch.bfloat16):
        tape = Tape()
        mixed, _ = segments(exact, tokens, 4, tape=tape)
    torch.autograd.backward([mixed.float().sum(), *tape.losses.values()])
    assert all(p.grad is None or p.grad.isfinite().all() for p in exact.parameters())
    low, state = segments(built(exact.spec, like=exact).bfloat16(), tokens, 4)
    assert {low.dtype, *(past.x.dtype for past in xl_states(state))} == {torch.bfloat16}
    if not isinstance(compress, MostUsed):  # which may choose otherwise
        for out in (mixed, low):
            assert (out.float() - wanted).abs().mean() < 0.05 * wanted.abs().mean()


def test_without_a_state_it_is_full_attention() -> None:
    xl_memory = XLMemory(4, 8, kv_heads=2, head_width=3, scale=0.3, bias=False, mask=Window(4))
    assert xl_memory.twin() == Full(4, kv_heads=2, head_width=3, scale=0.3, bias=False, mask=Window(4))
    assert dataclasses.replace(xl_memory, compress=Pooling(3)).twin() is None


def test_refusals() -> None:
    with pytest.raises(
        SpecError, match=r"^mixer 'xl_memory' cannot attend across \(decoder.blocks.0.cross\); use 'full' or"
    ):
        both(Block(mix=Full(2), cross=XLMemory(2, 4))).build()
    with pytest.raises(SpecError, match=r"^kv_heads should divide heads=4, got 3$"):
        XLMemory(4, 4, kv_heads=3)
    with pytest.raises(SpecError, match=r"compress: no compression 'poolingg'; did you mean 'pooling'\?"):
        Block.parse(
            {"mix": {"kind": "xl_memory", "heads": 2, "memory_length": 4, "compress": {"kind": "poolingg", "slots": 2}}}
        )
