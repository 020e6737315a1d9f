"""Memory across segments: what is remembered, for how long, where it stands, and which gradients reach what."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import SpecError, StateError
from regard.model.model import Net
from regard.model.spec import ModelSpec
from regard.nn.block import Block
from regard.nn.body import Stack
from regard.nn.context import Tape
from regard.nn.coords import Coords
from regard.nn.distance import Distance
from regard.nn.embed import Tokens
from regard.nn.feedforward import FeedForward
from regard.nn.mask import Window
from regard.nn.mixers import Full, Recall
from regard.nn.mixers.recall import Past
from regard.nn.norm import LayerNorm
from regard.nn.position import ALiBi, PositionSpec, Rotary
from regard.nn.squeeze import Convolved, MostUsed, Pooled, SqueezeSpec
from regard.nn.wiring import PostNorm
from tests.nn.odd import both

CLOSE = {"rtol": 0.0, "atol": 1e-10}
DEPTH = 3


def model(mix: Any, position: PositionSpec | None = None, **stack: Any) -> ModelSpec:
    block = Block(mix=mix, feed=FeedForward(10))
    body = Stack(block, depth=DEPTH, causal=True, position=position or Distance(), **stack)
    return ModelSpec(8, 64, Tokens(11), decoder=body)


def built(spec: ModelSpec, like: Net | None = None) -> Net:
    """In double precision, with every parameter far from its start; `like` lends its weights."""
    net = spec.build(0).double().eval()
    torch.manual_seed(1)
    for name, parameter in net.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm.weight" in name else 0.0, std=0.4)
    if like is not None:
        net.load_state_dict(like.state_dict())
    return net


def ids(rows: int, n: int, seed: int = 0) -> Tensor:
    return torch.randint(11, (rows, n), generator=torch.Generator().manual_seed(seed))


def segments(
    net: Net, tokens: Tensor, size: int, at: Coords | None = None, tape: Tape | None = None
) -> tuple[Tensor, Any]:
    """Run a text in segments that hand on their state."""
    state, out, at = net.start(tokens.shape[0], 0), [], at or Coords.span(tokens.shape[1])
    for a in range(0, tokens.shape[1], size):
        y, state = net.decode(tokens[:, a : a + size], at.part(slice(a, a + size)), state=state, tape=tape)  # type: ignore[assignment]
        out.append(y)
    return torch.cat(out, 1), state


def pasts(state: Any) -> list[Past]:
    return [block["mix"] for block in state.blocks]


class TestTransformerXL:
    @pytest.mark.parametrize("position", [Distance(), Distance(clamp=5), Rotary(), ALiBi()], ids=repr)
    @pytest.mark.parametrize("past", [8, 9, 40])
    def test_two_segments_with_memory_are_one_pass(self, position: PositionSpec, past: int) -> None:
        """And memory that is longer than needed changes nothing."""
        net, tokens = built(model(Recall(2, past), position)), ids(2, 16)
        with torch.no_grad():
            whole = net(tokens, Coords.span(16))
            torch.testing.assert_close(segments(net, tokens, 8)[0], whole, **CLOSE)

    def test_without_memory_enough_they_are_not(self) -> None:
        net, tokens = built(model(Recall(2, 7))), ids(2, 16)
        with torch.no_grad():
            out, whole = segments(net, tokens, 8)[0], net(tokens, Coords.span(16))
        assert (out[:, 8:] - whole[:, 8:]).abs().amax() > 1e-3

    def test_a_query_sees_its_segment_and_the_past_before_it(self) -> None:
        """One layer: token i of the third segment sees `past` tokens before the segment, and those in it up to itself."""
        spec = model(Recall(2, past=3)).replace("decoder.depth", 1)
        net, tokens, tape = built(spec), ids(1, 12), Tape("*.weights")
        segments(net, tokens, 4, tape=tape)
        weights = tape.kept["decoder.blocks.0.mix.weights"]
        assert weights.shape == (1, 2, 4, 7)
        assert ((weights[0, 0] > 0) == torch.ones(4, 7).tril(3).bool()).all()

    def test_the_same_length_for_every_query(self) -> None:
        """A window beside the memory: segments of any size then agree, as in the authors' evaluation."""
        net, tokens = built(model(Recall(2, 40, mask=Window(5)))), ids(2, 24)
        with torch.no_grad():
            torch.testing.assert_close(segments(net, tokens, 3)[0], segments(net, tokens, 8)[0], **CLOSE)

    @pytest.mark.parametrize(
        "at", [Coords.lengths([16, 5, 11], left=True), Coords.lengths([16, 5, 11])], ids=["left", "right"]
    )
    def test_padding(self, at: Coords) -> None:
        net, tokens = built(model(Recall(2, 8))), ids(3, 16)
        with torch.no_grad():
            out, whole = segments(net, tokens, 8, at)[0], net(tokens, at)
        torch.testing.assert_close(out[at.kept], whole[at.kept], **CLOSE)

    def test_documents(self) -> None:
        at = Coords.documents([[5, 7, 4], [9, 2]])
        net, tokens = built(model(Recall(2, 8))), ids(2, 16)
        with torch.no_grad():
            out, whole = segments(net, tokens, 8, at)[0], net(tokens, at)
        torch.testing.assert_close(out[at.kept], whole[at.kept], **CLOSE)

    def test_the_oldest_leave_first(self) -> None:
        net, tokens = built(model(Recall(2, 5))), ids(2, 12)
        _, state = segments(net, tokens, 4)
        first = pasts(state)[0]
        assert (first.at.pos.tolist(), first.at.first) == ([[7, 8, 9, 10, 11]], 7)
        norm = net.decoder.blocks[0].mix_norm  # type: ignore[union-attr, index]
        torch.testing.assert_close(first.x, norm(net.embed(tokens, Coords.span(12)))[:, 7:])
        assert len({id(p.at) for p in pasts(state)}) == 1

    def test_memory_is_cut_from_the_graph(self) -> None:
        """The second segment's gradients are those it would have if the memory were given numbers."""
        net, tokens = built(model(Recall(2, 8))), ids(2, 8)
        _, state = net.decode(tokens[:, :4], Coords.span(4), state=net.start(2, 0))
        assert state is not None
        assert not any(p.x.requires_grad for p in pasts(state))
        out, _ = net.decode(tokens[:, 4:], Coords.span(4, 4), state=state)
        found = torch.autograd.grad(out.sum(), list(net.parameters()))
        with torch.no_grad():
            _, known = net.decode(tokens[:, :4], Coords.span(4), state=net.start(2, 0))
        out, _ = net.decode(tokens[:, 4:], Coords.span(4, 4), state=known)
        for a, b in zip(found, torch.autograd.grad(out.sum(), list(net.parameters())), strict=True):
            torch.testing.assert_close(a, b)

    def test_longer_memory_in_evaluation(self) -> None:
        """No weight depends on how much is remembered, so a trained model is built again with more."""
        short, tokens = built(model(Recall(2, 4))), ids(2, 24)
        long = built(short.spec.replace("decoder.block.mix.past", 20), like=short)
        with torch.no_grad():
            out = segments(long, tokens, 4)[0]
            torch.testing.assert_close(out, short(tokens, Coords.span(24)), **CLOSE)
            assert (segments(short, tokens, 4)[0] - out).abs().amax() > 1e-3

    def test_rows_may_stand_at_different_places(self) -> None:
        """A stream whose rows began at different times: distances are all that counts."""
        net, tokens = built(model(Recall(2, 6))), ids(2, 12)
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
        mix = Recall(4, 7, bias=False, position=Distance(9))
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


SQUEEZES: list[SqueezeSpec] = [
    Pooled(3, 2),
    Pooled(3, 2, "max"),
    Convolved(3, 2),
    Convolved(3, 2, loss="autoencode"),
    Convolved(3, 4, dilated=True),
    MostUsed(3, 2),
]
squeezes = pytest.mark.parametrize("squeeze", SQUEEZES, ids=repr)
LEARNED = [s for s in SQUEEZES if isinstance(s, Convolved)]


class TestCompressive:
    @pytest.mark.parametrize("squeeze", [Pooled(6, 1), Pooled(6, 1, "max"), Convolved(6, 1), MostUsed(6, 1)], ids=repr)
    @pytest.mark.parametrize("at", [None, Coords.lengths([20, 7, 13], left=True)], ids=["", "padded"])
    def test_one_into_one_as_it_is_gives_a_longer_memory(self, squeeze: SqueezeSpec, at: Coords | None) -> None:
        net, tokens = built(model(Recall(2, 4, squeeze))), ids(3, 20)
        for block in net.decoder.blocks:  # type: ignore[union-attr]
            for name, weight in block.mix.squeezer.named_parameters():
                assert name == "maps.0.weight"
                torch.nn.init.eye_(weight)
        long = built(model(Recall(2, 10)))
        long.load_state_dict({n: w for n, w in net.state_dict().items() if "squeezer" not in n})
        with torch.no_grad():
            (out, state), (wanted, xl) = (segments(m, tokens, 4, at) for m in (net, long))
        kept = slice(None) if at is None else at.kept
        torch.testing.assert_close(out[kept], wanted[kept], **CLOSE)
        for mine, other in zip(pasts(state), pasts(xl), strict=True):
            assert mine.slots == 6
            assert torch.equal(mine.at.pos.expand(3, -1), other.at.pos.expand(3, -1))

    @squeezes
    def test_recent_and_squeezed_have_their_places(self, squeeze: SqueezeSpec) -> None:
        """What leaves in whole groups is squeezed; slots stand right before what is recent."""
        net, tokens = built(model(Recall(2, 4, squeeze))), ids(2, 24)
        _, state = segments(net, tokens, 4)
        for past in pasts(state):
            assert (past.slots, past.x.shape[1], past.at.n) == (3, 7, 7)
            assert (past.at.first, past.at.padded, past.at.pos.tolist()) == (17, False, [list(range(17, 24))])
            assert not past.x.requires_grad
        assert len({id(p.at) for p in pasts(state)}) == 1

    @squeezes
    def test_token_by_token(self, squeeze: SqueezeSpec) -> None:
        """Up to rate − 1 more stay recent until a whole group can leave; then one slot appears."""
        net, tokens, rate = built(model(Recall(2, 4, squeeze))), ids(2, 16), squeeze.rate
        state, sizes = net.start(2, 0), []
        for i in range(16):
            _, state = net.decode(tokens[:, i : i + 1], Coords.span(1, i), state=state)  # type: ignore[assignment]
            sizes.append((pasts(state)[0].slots, pasts(state)[0].at.n - pasts(state)[0].slots))
        wanted = [(min(max(i - 4, 0) // rate, 3), i if i <= 4 else 4 + (i - 4) % rate) for i in range(1, 17)]
        assert sizes == wanted

    def test_squeezed_in_groups_from_the_start_whatever_the_segments(self) -> None:
        """In the first layer inputs do not depend on memory, so neither do slots on how the text was cut."""
        net, tokens = built(model(Recall(2, 4, Convolved(5, 3)))), ids(2, 19)
        a, b = (pasts(segments(net, tokens, size)[1])[0] for size in (1, 5))
        torch.testing.assert_close(a.x, b.x)
        assert torch.equal(a.at.pos, b.at.pos)

    def test_the_most_used_is_what_drew_most_attention(self) -> None:
        net, tokens, tape = built(model(Recall(2, 4, MostUsed(2, 2))).replace("decoder.depth", 1)), ids(1, 8), Tape("*")
        state, total = net.start(1, 0), torch.zeros(8).double()
        for a in (0, 4):
            _, state = net.decode(tokens[:, a : a + 4], Coords.span(4, a), state=state, tape=tape)  # type: ignore[assignment]
            total[: a + 4] += tape.kept["decoder.blocks.0.mix.weights"][0].sum((0, 1))
        past = pasts(state)[0]
        best = total[:4].topk(2).indices.sort().values
        inputs = net.decoder.blocks[0].mix_norm(net.embed(tokens, Coords.span(8)))  # type: ignore[union-attr, index]
        torch.testing.assert_close(past.x[:, :2], inputs[:, best])
        assert past.used is not None
        torch.testing.assert_close(past.used[0], total[4:])

    @squeezes
    @pytest.mark.parametrize("start", [4, 8, 12])
    def test_padding_inside_what_leaves_is_not_seen(self, squeeze: SqueezeSpec, start: int) -> None:
        """A row that begins later, in a batch and alone; what stands in its padding makes no difference."""
        net, tokens = built(model(Recall(2, 4, squeeze))), ids(2, 28)
        at = Coords(torch.stack([torch.arange(28), torch.arange(28) - start]).clamp(min=-1), padded=True)
        other = tokens.clone()
        other[1, :start] = (other[1, :start] + 1) % 11
        with torch.no_grad():
            out, same = segments(net, tokens, 4, at)[0], segments(net, other, 4, at)[0]
            alone = [segments(net, tokens[:1], 4)[0], segments(net, tokens[1:, start:], 4)[0]]
        torch.testing.assert_close(same[at.kept], out[at.kept], **CLOSE)
        torch.testing.assert_close(out[0], alone[0][0], **CLOSE)
        torch.testing.assert_close(out[1, start:], alone[1][0], **CLOSE)

    @pytest.mark.parametrize("squeeze", [None, *SQUEEZES], ids=repr)
    @pytest.mark.parametrize("lengths", [[(20, 5), (1, 1)], [(3, 9), (0, 2), (7, 1)], [(1, 2), (6, 6), (2, 11)]])
    def test_chunks_of_different_lengths(self, squeeze: SqueezeSpec | None, lengths: list[tuple[int, int]]) -> None:
        """Rows of which one reads more at a time than the other remember what each would remember alone."""
        net, chunks = built(model(Recall(2, 4, squeeze))), [*lengths, *[(1, 1)] * 9]
        tokens, done, state, out = ids(2, 40), [0, 0], net.start(2, 0), [list[Tensor](), list[Tensor]()]
        with torch.no_grad():
            for sizes in chunks:
                at = torch.full((2, max(sizes)), -1)
                for row, size in enumerate(sizes):
                    at[row, :size] = torch.arange(done[row], done[row] + size)
                read = tokens.gather(1, at.clamp(min=0))
                y, state = net.decode(read, Coords(at, padded=min(sizes) < max(sizes)), state=state)  # type: ignore[assignment]
                for row, size in enumerate(sizes):
                    out[row].append(y[row, :size])
                    done[row] += size
            for row in range(2):
                alone, begun, wanted = net.start(1, 0), 0, []
                for size in (sizes[row] for sizes in chunks if sizes[row]):
                    span = Coords.span(size, begun)
                    y, alone = net.decode(tokens[row : row + 1, begun : begun + size], span, state=alone)  # type: ignore[assignment]
                    wanted.append(y[0])
                    begun += size
                torch.testing.assert_close(torch.cat(out[row]), torch.cat(wanted), **CLOSE)

    @squeezes
    def test_another_document_is_not_seen(self, squeeze: SqueezeSpec) -> None:
        """The second document, begun inside a group, reads as if the first had been other words."""
        net, tokens, at = built(model(Recall(2, 4, squeeze))), ids(1, 24), Coords.documents([[7, 17]])
        other = tokens.clone()
        other[:, :7] = (other[:, :7] + 1) % 11
        with torch.no_grad():
            a, b = (segments(net, t, 4, at)[0] for t in (tokens, other))
        torch.testing.assert_close(a[:, 7:], b[:, 7:], **CLOSE)
        assert (a[:, :7] - b[:, :7]).abs().amin(-1).amax() > 1e-6


class TestGradients:
    def run(self, squeeze: SqueezeSpec, **stack: Any) -> tuple[Net, Tensor, dict[str, Tensor]]:
        net, tokens, tape = built(model(Recall(2, 4, squeeze), **stack)).train(), ids(2, 24), Tape()
        stream, _ = segments(net, tokens, 4, tape=tape)
        return net, net.loss(stream, ids(2, 24, seed=1))[0], tape.losses

    @pytest.mark.parametrize("squeeze", LEARNED, ids=repr)
    def test_the_models_loss_does_not_reach_the_compressor(self, squeeze: SqueezeSpec) -> None:
        net, loss, _ = self.run(squeeze)
        loss.backward()
        for name, parameter in net.named_parameters():
            assert (parameter.grad is None or not parameter.grad.any()) == ("squeezer" in name), name

    @pytest.mark.parametrize("squeeze", LEARNED, ids=repr)
    def test_the_compressors_loss_reaches_nothing_else(self, squeeze: SqueezeSpec) -> None:
        net, _, losses = self.run(squeeze)
        assert sorted(losses) == [f"decoder.blocks.{i}.mix.squeeze" for i in range(DEPTH)]
        torch.autograd.backward(list(losses.values()))
        for name, parameter in net.named_parameters():
            assert (parameter.grad is not None and bool(parameter.grad.any())) == ("squeezer" in name), name

    def test_each_layer_trains_its_own(self) -> None:
        net, _, losses = self.run(Convolved(3, 2))
        losses["decoder.blocks.1.mix.squeeze"].backward()
        assert [n for n, p in net.named_parameters() if p.grad is not None] == [
            "decoder.blocks.1.mix.squeezer.maps.0.weight"
        ]

    def test_the_loss_is_the_attention_that_is_missed(self) -> None:
        """Content alone, mean square over tokens, heads and widths, by hand for the only time anything leaves."""
        spec = model(Recall(2, 4, Convolved(9, 2))).replace("decoder.depth", 1)
        net, tokens, tape = built(spec).train(), ids(2, 8), Tape()
        segments(net, tokens, 4, tape=tape)
        block = net.decoder.blocks[0]  # type: ignore[union-attr, index]
        x = block.mix_norm(net.embed(tokens, Coords.span(8)))
        old, h = x[:, :4], x[:, 4:]
        small = block.mix.squeezer.maps[0](old.reshape(2, 2, 16))

        def attention(memory: Tensor) -> Tensor:
            q, k, v = (part(t).view(2, -1, 2, 4).transpose(1, 2) for part, t in
                       ((block.mix.q, h), (block.mix.k, memory), (block.mix.v, memory)))  # fmt: skip
            return (q @ k.mT / 2).softmax(-1) @ v

        wanted = (attention(old) - attention(small)).square().mean()
        torch.testing.assert_close(tape.losses["decoder.blocks.0.mix.squeeze"], wanted)

    def test_nothing_to_learn_no_loss(self) -> None:
        for squeeze in (Pooled(3, 2), MostUsed(3, 2)):
            assert self.run(squeeze)[2] == {}
        net, tape = built(model(Recall(2, 4, Convolved(3, 2)))), Tape()
        segments(net, ids(2, 16), 4, tape=tape)
        with torch.no_grad():
            segments(net.train(), ids(2, 16), 4, tape=tape)
        assert tape.losses == {}

    @pytest.mark.parametrize("squeeze", LEARNED, ids=repr)
    def test_blocks_computed_twice(self, squeeze: SqueezeSpec) -> None:
        found = []
        for recompute in (False, True):
            net, loss, losses = self.run(squeeze, recompute=recompute)
            torch.autograd.backward([loss, *losses.values()])
            found.append([loss, *losses.values(), *(p.grad for p in net.parameters())])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)

    def test_the_compressor_learns(self) -> None:
        """Descending its own loss, with everything else at rest, on one text."""
        net, tokens = built(model(Recall(2, 4, Convolved(8, 2)))).train(), ids(4, 32)
        optimiser = torch.optim.Adam(net.parameters(), 0.01)
        losses = []
        for _ in range(40):
            tape = Tape()
            segments(net, tokens, 8, tape=tape)
            loss = torch.stack(list(tape.losses.values())).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert losses[-1] < 0.7 * losses[0]


class TestStates:
    @pytest.mark.parametrize("squeeze", [None, *SQUEEZES], ids=repr)
    @pytest.mark.parametrize("at", [None, Coords.lengths([24, 13, 18], left=True)], ids=["", "padded"])
    def test_through_tensors_and_back(self, squeeze: SqueezeSpec | None, at: Coords | None) -> None:
        """A run that carries state goes on from its checkpoint as if nothing had happened."""
        net, tokens, at = built(model(Recall(2, 4, squeeze))), ids(3, 24), at or Coords.span(24)
        _, state = segments(net, tokens[:, :16], 4, at.part(slice(0, 16)))
        flat = {name: tensor.clone() for name, tensor in state.flat().items()}
        back = net.start(3, 0).filled(flat)
        assert list(back.flat()) == list(flat)
        assert all(torch.equal(t, flat[name]) for name, t in back.flat().items())
        for mine, other in zip(pasts(back), pasts(state), strict=True):
            assert (mine.slots, mine.at.first, mine.at.padded) == (other.slots, other.at.first, other.at.padded)
        with torch.no_grad():
            outs = [net.decode(tokens[:, 16:], at.part(slice(16, 24)), state=s)[0] for s in (state, back)]
        assert torch.equal(*outs)

    @squeezes
    def test_rows_are_chosen(self, squeeze: SqueezeSpec) -> None:
        net, tokens, rows = built(model(Recall(2, 4, squeeze))), ids(3, 20), torch.tensor([2, 0, 0, 1])
        with torch.no_grad():
            _, state = segments(net, tokens[:, :16], 4)
            out, _ = net.decode(tokens[rows, 16:], Coords.span(4, 16), state=state.select(rows))
            torch.testing.assert_close(out, segments(net, tokens[rows], 4)[0][:, 16:], **CLOSE)

    def test_what_is_remembered_stops_growing(self) -> None:
        mixer = built(model(Recall(2, 4, Pooled(3, 2)))).decoder.blocks[0].mix  # type: ignore[union-attr, index]
        assert [mixer.state_numbers(n) / 8 for n in (1, 4, 6, 10, 11, 100)] == [1, 4, 5, 7, 7, 7]
        plain = built(model(Recall(2, 4))).decoder.blocks[0].mix  # type: ignore[union-attr, index]
        assert [plain.state_numbers(n) / 8 for n in (3, 4, 50)] == [3, 4, 4]

    def test_it_cannot_go_back(self) -> None:
        _, state = segments(built(model(Recall(2, 4))), ids(1, 8), 4)
        with pytest.raises(StateError, match=r"^Past cannot go back to 3 tokens; run them again from the start$"):
            state.cut(3)

    def test_the_given_state_is_left_as_it_was(self) -> None:
        net, tokens = built(model(Recall(2, 4, MostUsed(3, 2)))), ids(1, 12)
        _, state = segments(net, tokens[:, :8], 4)
        before = {name: t.clone() for name, t in state.flat().items()}
        net.decode(tokens[:, 8:], Coords.span(4, 8), state=state)
        assert all(torch.equal(t, before[name]) for name, t in state.flat().items())


@squeezes
def test_low_and_mixed_precision(squeeze: SqueezeSpec) -> None:
    tokens, exact = ids(2, 16), built(model(Recall(2, 4, squeeze))).float().train()
    wanted = segments(exact, tokens, 4)[0]
    with torch.autocast("cpu", torch.bfloat16):
        tape = Tape()
        mixed, _ = segments(exact, tokens, 4, tape=tape)
    torch.autograd.backward([mixed.float().sum(), *tape.losses.values()])
    assert all(p.grad is None or p.grad.isfinite().all() for p in exact.parameters())
    low, state = segments(built(exact.spec, like=exact).bfloat16(), tokens, 4)
    assert {low.dtype, *(past.x.dtype for past in pasts(state))} == {torch.bfloat16}
    if not isinstance(squeeze, MostUsed):  # which may choose otherwise
        for out in (mixed, low):
            assert (out.float() - wanted).abs().mean() < 0.05 * wanted.abs().mean()


def test_without_a_state_it_is_full_attention() -> None:
    recall = Recall(4, 8, kv_heads=2, head_width=3, scale=0.3, bias=False, mask=Window(4))
    assert recall.twin() == Full(4, kv_heads=2, head_width=3, scale=0.3, bias=False, mask=Window(4))
    assert dataclasses.replace(recall, squeeze=Pooled(3)).twin() is None


def test_refusals() -> None:
    with pytest.raises(
        SpecError, match=r"^mixer 'recall' cannot attend across \(decoder.blocks.0.cross\); use 'full' or"
    ):
        both(Block(mix=Full(2), cross=Recall(2, 4))).build()
    with pytest.raises(SpecError, match=r"^kv_heads should divide heads=4, got 3$"):
        Recall(4, 4, kv_heads=3)
    with pytest.raises(SpecError, match=r"squeeze: no compression 'pooledd'; did you mean 'pooled'\?"):
        Block.parse({"mix": {"kind": "recall", "heads": 2, "past": 4, "squeeze": {"kind": "pooledd", "slots": 2}}})
