"""What leaves memory is compressed into slots: in which groups, where they stand, and who learns how."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.nn.mixers import XLMemory
from regard.nn.mixers.compress import CompressionSpec, Convolution, MostUsed, Pooling
from tests.nn.mixers.remembering import (
    CLOSE,
    COMPRESSIONS,
    DEPTH,
    LEARNED,
    built,
    compressions,
    ids,
    model,
    segments,
    xl_states,
)

pytestmark = pytest.mark.numeric


class TestCompressive:
    @pytest.mark.parametrize(
        "compress", [Pooling(6, 1), Pooling(6, 1, "max"), Convolution(6, 1), MostUsed(6, 1)], ids=repr
    )
    @pytest.mark.parametrize("at", [None, Coords.lengths([20, 7, 13], left=True)], ids=["", "padded"])
    def test_one_into_one_as_it_is_gives_a_longer_memory(self, compress: CompressionSpec, at: Coords | None) -> None:
        net, tokens = built(model(XLMemory(2, 4, compress))), ids(3, 20)
        for block in net.decoder.blocks:  # type: ignore[union-attr]
            for name, weight in block.mix.compressor.named_parameters():
                assert name == "maps.0.weight"
                torch.nn.init.eye_(weight)
        long = built(model(XLMemory(2, 10)))
        long.load_state_dict({n: w for n, w in net.state_dict().items() if "compressor" not in n})
        with torch.no_grad():
            (out, state), (wanted, xl) = (segments(m, tokens, 4, at) for m in (net, long))
        kept = slice(None) if at is None else at.kept
        torch.testing.assert_close(out[kept], wanted[kept], **CLOSE)
        for mine, other in zip(xl_states(state), xl_states(xl), strict=True):
            assert mine.slots == 6
            assert torch.equal(mine.at.pos.expand(3, -1), other.at.pos.expand(3, -1))

    @compressions
    def test_recent_and_compressed_have_their_places(self, compress: CompressionSpec) -> None:
        """What leaves in whole groups is compressed; slots stand right before what is recent."""
        net, tokens = built(model(XLMemory(2, 4, compress))), ids(2, 24)
        _, state = segments(net, tokens, 4)
        for past in xl_states(state):
            assert (past.slots, past.x.shape[1], past.at.n) == (3, 7, 7)
            assert (past.at.first, past.at.padded, past.at.pos.tolist()) == (17, False, [list(range(17, 24))])
            assert not past.x.requires_grad
        assert len({id(p.at) for p in xl_states(state)}) == 1

    @compressions
    def test_token_by_token(self, compress: CompressionSpec) -> None:
        """Up to rate − 1 more stay recent until a whole group can leave; then one slot appears."""
        net, tokens, rate = built(model(XLMemory(2, 4, compress))), ids(2, 16), compress.rate
        state, sizes = net.start(2, 0), []
        for i in range(16):
            _, state = net.decode(tokens[:, i : i + 1], Coords.span(1, i), state=state)  # type: ignore[assignment]
            sizes.append((xl_states(state)[0].slots, xl_states(state)[0].at.n - xl_states(state)[0].slots))
        wanted = [(min(max(i - 4, 0) // rate, 3), i if i <= 4 else 4 + (i - 4) % rate) for i in range(1, 17)]
        assert sizes == wanted

    def test_compressed_in_groups_from_the_start_whatever_the_segments(self) -> None:
        """In the first layer inputs do not depend on memory, so neither do slots on how the text was cut."""
        net, tokens = built(model(XLMemory(2, 4, Convolution(5, 3)))), ids(2, 19)
        a, b = (xl_states(segments(net, tokens, size)[1])[0] for size in (1, 5))
        torch.testing.assert_close(a.x, b.x)
        assert torch.equal(a.at.pos, b.at.pos)

    def test_the_most_used_is_what_drew_most_attention(self) -> None:
        net, tokens, tape = (
            built(model(XLMemory(2, 4, MostUsed(2, 2))).replace("decoder.depth", 1)),
            ids(1, 8),
            Tape("*"),
        )
        state, total = net.start(1, 0), torch.zeros(8).double()
        for a in (0, 4):
            _, state = net.decode(tokens[:, a : a + 4], Coords.span(4, a), state=state, tape=tape)  # type: ignore[assignment]
            total[: a + 4] += tape.kept["decoder.blocks.0.mix.weights"][0].sum((0, 1))
        past = xl_states(state)[0]
        best = total[:4].topk(2).indices.sort().values
        inputs = net.decoder.blocks[0].mix_norm(net.embed(tokens, Coords.span(8)))  # type: ignore[union-attr, index]
        torch.testing.assert_close(past.x[:, :2], inputs[:, best])
        assert past.used is not None
        torch.testing.assert_close(past.used[0], total[4:])

    @compressions
    @pytest.mark.parametrize("start", [4, 8, 12])
    def test_padding_inside_what_leaves_is_not_seen(self, compress: CompressionSpec, start: int) -> None:
        """A row that begins later, in a batch and alone; what stands in its padding makes no difference."""
        net, tokens = built(model(XLMemory(2, 4, compress))), ids(2, 28)
        at = Coords(torch.stack([torch.arange(28), torch.arange(28) - start]).clamp(min=-1), padded=True)
        other = tokens.clone()
        other[1, :start] = (other[1, :start] + 1) % 11
        with torch.no_grad():
            out, same = segments(net, tokens, 4, at)[0], segments(net, other, 4, at)[0]
            alone = [segments(net, tokens[:1], 4)[0], segments(net, tokens[1:, start:], 4)[0]]
        torch.testing.assert_close(same[at.kept], out[at.kept], **CLOSE)
        torch.testing.assert_close(out[0], alone[0][0], **CLOSE)
        torch.testing.assert_close(out[1, start:], alone[1][0], **CLOSE)

    @pytest.mark.parametrize("compress", [None, *COMPRESSIONS], ids=repr)
    @pytest.mark.parametrize("lengths", [[(20, 5), (1, 1)], [(3, 9), (0, 2), (7, 1)], [(1, 2), (6, 6), (2, 11)]])
    def test_chunks_of_different_lengths(
        self, compress: CompressionSpec | None, lengths: list[tuple[int, int]]
    ) -> None:
        """Rows of which one reads more at a time than the other remember what each would remember alone."""
        net, chunks = built(model(XLMemory(2, 4, compress))), [*lengths, *[(1, 1)] * 9]
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

    @compressions
    def test_another_document_is_not_seen(self, compress: CompressionSpec) -> None:
        """The second document, begun inside a group, reads as if the first had been other words."""
        net, tokens, at = built(model(XLMemory(2, 4, compress))), ids(1, 24), Coords.documents([[7, 17]])
        other = tokens.clone()
        other[:, :7] = (other[:, :7] + 1) % 11
        with torch.no_grad():
            a, b = (segments(net, t, 4, at)[0] for t in (tokens, other))
        torch.testing.assert_close(a[:, 7:], b[:, 7:], **CLOSE)
        assert (a[:, :7] - b[:, :7]).abs().amin(-1).amax() > 1e-6


class TestGradients:
    def run(self, compress: CompressionSpec, **stack: Any) -> tuple[Net, Tensor, dict[str, Tensor]]:
        net, tokens, tape = built(model(XLMemory(2, 4, compress), **stack)).train(), ids(2, 24), Tape()
        stream, _ = segments(net, tokens, 4, tape=tape)
        return net, net.loss(stream, ids(2, 24, seed=1))[0], tape.losses

    @pytest.mark.parametrize("compress", LEARNED, ids=repr)
    def test_the_models_loss_does_not_reach_the_compressor(self, compress: CompressionSpec) -> None:
        net, loss, _ = self.run(compress)
        loss.backward()
        for name, parameter in net.named_parameters():
            assert (parameter.grad is None or not parameter.grad.any()) == ("compressor" in name), name

    @pytest.mark.parametrize("compress", LEARNED, ids=repr)
    def test_the_compressors_loss_reaches_nothing_else(self, compress: CompressionSpec) -> None:
        net, _, losses = self.run(compress)
        assert sorted(losses) == [f"decoder.blocks.{i}.mix.compress" for i in range(DEPTH)]
        torch.autograd.backward(list(losses.values()))
        for name, parameter in net.named_parameters():
            assert (parameter.grad is not None and bool(parameter.grad.any())) == ("compressor" in name), name

    def test_each_layer_trains_its_own(self) -> None:
        net, _, losses = self.run(Convolution(3, 2))
        losses["decoder.blocks.1.mix.compress"].backward()
        assert [n for n, p in net.named_parameters() if p.grad is not None] == [
            "decoder.blocks.1.mix.compressor.maps.0.weight"
        ]

    def test_the_loss_is_the_attention_that_is_missed(self) -> None:
        """Content alone, mean square over tokens, heads and widths, by hand for the only time anything leaves."""
        spec = model(XLMemory(2, 4, Convolution(9, 2))).replace("decoder.depth", 1)
        net, tokens, tape = built(spec).train(), ids(2, 8), Tape()
        segments(net, tokens, 4, tape=tape)
        block = net.decoder.blocks[0]  # type: ignore[union-attr, index]
        x = block.mix_norm(net.embed(tokens, Coords.span(8)))
        old, h = x[:, :4], x[:, 4:]
        small = block.mix.compressor.maps[0](old.reshape(2, 2, 16))

        def attention(memory: Tensor) -> Tensor:
            q, k, v = (part(t).view(2, -1, 2, 4).transpose(1, 2) for part, t in
                       ((block.mix.q, h), (block.mix.k, memory), (block.mix.v, memory)))  # fmt: skip
            return (q @ k.mT / 2).softmax(-1) @ v

        wanted = (attention(old) - attention(small)).square().mean()
        torch.testing.assert_close(tape.losses["decoder.blocks.0.mix.compress"], wanted)

    def test_nothing_to_learn_no_loss(self) -> None:
        for compress in (Pooling(3, 2), MostUsed(3, 2)):
            assert self.run(compress)[2] == {}
        net, tape = built(model(XLMemory(2, 4, Convolution(3, 2)))), Tape()
        segments(net, ids(2, 16), 4, tape=tape)
        with torch.no_grad():
            segments(net.train(), ids(2, 16), 4, tape=tape)
        assert tape.losses == {}

    @pytest.mark.parametrize("compress", LEARNED, ids=repr)
    def test_blocks_computed_twice(self, compress: CompressionSpec) -> None:
        found = []
        for recompute in (False, True):
            net, loss, losses = self.run(compress, recompute=recompute)
            torch.autograd.backward([loss, *losses.values()])
            found.append([loss, *losses.values(), *(p.grad for p in net.parameters())])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)

    def test_the_compressor_learns(self) -> None:
        """Descending its own loss, with everything else at rest, on one text."""
        net, tokens = built(model(XLMemory(2, 4, Convolution(8, 2)))).train(), ids(4, 32)
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
