"""Attention by hashing: against its direct formula, its dense twin, and the Reformer of `transformers`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import ShapeError, SpecError
from regard.model.build import refusals
from regard.model.model_spec import ModelSpec
from regard.model.replay import Replay
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.reversible import Reversible
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Causal, Everything, visible
from regard.nn.core.mixer import Site
from regard.nn.core.shape import merge_heads, split_heads
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import Full, Lsh
from regard.nn.mixers.lsh import ITSELF, LshMixer
from regard.nn.positions.position import Bucketed, Learned, Rotary
from tests.nn.mixers.work import written

pytestmark = pytest.mark.numeric

N = 22
PLACES = {"": Coords.span(N), "right": Coords.lengths([N, 9]), "left": Coords.lengths([N, 9], left=True)}
places = pytest.mark.parametrize("at", PLACES.values(), ids=PLACES)
causals = pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])


def site(causal: bool, length: int = N) -> Site:
    return Site("encoder.blocks.0.mix", width=8, length=length, causal=causal)


def build(spec: Lsh, causal: bool) -> LshMixer:
    mixer = spec.build(site(causal)).double()
    for p in mixer.parameters():
        torch.nn.init.normal_(p, std=0.6)
    return mixer


def stream(n: int = N) -> Tensor:
    return torch.randn(2, n, 8, dtype=torch.double)


def meetings(bucket: Tensor, there: Tensor, chunk: int) -> Tensor:
    """Who meets whom in one round of one row, found by walking: sorted by bucket, cut, itself and the chunk before."""
    n = len(bucket)
    order = sorted((i for i in range(n) if there[i]), key=lambda i: (int(bucket[i]), i))
    met = torch.zeros(n, n, dtype=torch.bool)
    for a, i in enumerate(order):
        for c, j in enumerate(order):
            met[i, j] = bucket[i] == bucket[j] and 0 <= a // chunk - c // chunk <= 1
    return met


def one_softmax(mixer: LshMixer, x: Tensor, at: Coords) -> Tensor:
    """One softmax over all whom a token ever met (eq. 2 with the union of §2.1's rounds): every pair once."""
    q, v = split_heads(mixer.q(x), mixer.heads), split_heads(mixer.v(x), mixer.heads)
    bucket = mixer._hash(q.detach())
    b, h, rounds, n = bucket.shape
    there = at.kept.expand(b, n)
    met = torch.zeros(b, h, n, n, dtype=torch.bool)
    for row in range(b):
        for head in range(h):
            for r in range(rounds):
                met[row, head] |= meetings(bucket[row, head, r], there[row], min(mixer.chunk, n))
    return mixer.out(merge_heads(softmaxed(mixer, q, v, at, met)))


def softmaxed(mixer: LshMixer, q: Tensor, v: Tensor, at: Coords, met: Tensor) -> Tensor:
    """Shared queries and keys, keys at unit length (but for a millionth); oneself only if there is nobody else."""
    n, e = q.shape[2:]
    scores = q @ (q / (q.square().sum(-1, keepdim=True) + 1e-6 * e).sqrt()).mT
    scores = scores.masked_fill(torch.eye(n, dtype=torch.bool), ITSELF)
    keep = visible(Causal() if mixer.site.causal else Everything(), at, at)
    met = met if keep is None else met & keep.unsqueeze(1)
    return scores.masked_fill(~met, -torch.inf).masked_fill(~met.any(-1, keepdim=True), 0.0).softmax(-1) @ v


def same(mixer: LshMixer, x: Tensor, at: Coords, wanted: Tensor) -> None:
    found, kept = mixer(x, Context(at))[0], at.kept.expand(x.shape[:2])
    inputs = [x, *mixer.parameters()]
    grads = [torch.autograd.grad(out[kept].sin().sum(), inputs) for out in (found, wanted)]
    torch.testing.assert_close(found[kept], wanted[kept], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-9, atol=1e-9)


class TestFormula:
    @causals
    @places
    def test_one_bucket_in_one_chunk_is_dense(self, causal: bool, at: Coords) -> None:
        mixer, x = build(Lsh(2, chunk=32, buckets=1, rounds=1), causal), stream().requires_grad_()
        q, v = split_heads(mixer.q(x), 2), split_heads(mixer.v(x), 2)
        met = torch.ones(2, 2, N, N, dtype=torch.bool)
        same(mixer, x, at, mixer.out(merge_heads(softmaxed(mixer, q, v, at, met))))

    @causals
    @places
    @pytest.mark.parametrize(
        "spec",
        [
            Lsh(2, chunk=4, buckets=4, rounds=1),
            Lsh(2, chunk=4, buckets=4, rounds=3),
            Lsh(2, chunk=5, buckets=1, rounds=2),
            Lsh(2, chunk=3, buckets=(2, 4), rounds=4),
            Lsh(4, chunk=11, buckets=2, rounds=2, bias=True),
            Lsh(2, chunk=32, buckets=6, rounds=2),
        ],
    )
    def test_all_rounds_are_one_softmax_over_everybody_met(self, spec: Lsh, causal: bool, at: Coords) -> None:
        mixer, x = build(spec, causal), stream().requires_grad_()
        same(mixer, x, at, one_softmax(mixer, x, at))

    def test_turned_by_a_position_the_buckets_stay(self) -> None:
        mixer, x, at = build(Lsh(2, chunk=4, buckets=4, position=Rotary()), True), stream(), PLACES["left"]
        q, v = split_heads(mixer.q(x), 2), split_heads(mixer.v(x), 2)
        bucket, met = mixer._hash(q), torch.zeros(2, 2, N, N, dtype=torch.bool)
        for row in range(2):
            for head in range(2):
                for r in range(2):
                    met[row, head] |= meetings(bucket[row, head, r], at.kept[row], 4)
        assert mixer.position is not None
        turned = mixer.position.rotate(q, mixer.position.table(at))
        wanted = mixer.out(merge_heads(softmaxed(mixer, turned, v, at, met)))
        torch.testing.assert_close(mixer(x, Context(at))[0][at.kept], wanted[at.kept], rtol=1e-9, atol=1e-9)

    def test_more_rounds_come_nearer_to_dense(self) -> None:
        mixer, x, at = build(Lsh(2, chunk=4, buckets=6, rounds=1), False), stream(), PLACES[""]
        q, v = split_heads(mixer.q(x), 2), split_heads(mixer.v(x), 2)
        dense = mixer.out(merge_heads(softmaxed(mixer, q, v, at, torch.ones(2, 2, N, N, dtype=torch.bool))))
        errors = []
        for rounds in (1, 4, 16):
            found = []
            for _ in range(5):
                mixer.draw(rounds)
                found.append(mixer(x, Context(at))[0] - dense)
            errors.append(torch.stack(found).square().mean().sqrt())
        assert errors[2] < 0.7 * errors[1] < 0.7 * 0.7 * errors[0]

    def test_weights_are_those_of_the_formula(self) -> None:
        mixer, x, at = build(Lsh(2, chunk=4, buckets=4, rounds=3), True), stream(), PLACES["left"]
        tape, some = Tape("*"), Tape("*", rows=[20, 3], heads=[1])
        out, _ = mixer(x, Context(at, tape=tape))
        mixer(x, Context(at, tape=some))
        weights = tape.kept["encoder.blocks.0.mix.weights"]
        again = mixer.out(merge_heads(weights @ split_heads(mixer.v(x), 2)))
        torch.testing.assert_close(again, out, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(weights.sum(-1), at.kept.unsqueeze(1).expand(2, 2, N).double())
        torch.testing.assert_close(some.kept["encoder.blocks.0.mix.weights"], weights[:, [1]][:, :, [20, 3]])


class TestLaws:
    """In chunks shorter than the text, which the laws over all mixers do not reach."""

    def test_given_the_buckets_it_is_causal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mixer, x, at = build(Lsh(2, chunk=3, buckets=4, rounds=2), True), stream(), PLACES[""]
        bucket = mixer._hash(split_heads(mixer.q(x), 2))
        monkeypatch.setattr(mixer, "_hash", lambda q: bucket)
        before, _ = mixer(x, Context(at))
        for t in (1, 10, 21):
            changed = x.clone()
            changed[:, t] = torch.randn(8)
            after, _ = mixer(changed, Context(at))
            torch.testing.assert_close(after[:, :t], before[:, :t], rtol=0, atol=1e-12)
            assert (after[:, t] != before[:, t]).any()

    @causals
    @pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
    def test_a_row_alone_is_the_row_in_a_batch_whatever_stands_in_padded_places(self, causal: bool, left: bool) -> None:
        lengths = [N, 9]
        mixer, x, at = build(Lsh(2, chunk=4, buckets=4), causal), stream(), Coords.lengths(lengths, left=left)
        loud = torch.where(at.kept.unsqueeze(-1), x, 1e3 * torch.randn_like(x))
        out, _ = mixer(loud, Context(at))
        for row, n in enumerate(lengths):
            span = slice(N - n, N) if left else slice(n)
            alone, _ = mixer(x[row : row + 1, span], Context(Coords.span(n)))
            torch.testing.assert_close(out[row, span], alone[0], rtol=1e-10, atol=1e-10)
        assert (out[1][~at.kept[1]] == mixer.out(torch.zeros(8, dtype=torch.double))).all()

    def test_work_grows_with_the_length_and_no_faster(self) -> None:
        """Forward and back; the largest tensor has two chunks a token, head and round."""
        short, long = (written(Lsh(2, chunk=8, buckets=8).build(site(True)), n) for n in (256, 512))
        assert long.total < 2.02 * short.total
        assert long.largest == 512 * 2 * 2 * 16

    def test_it_is_decoded_by_running_everything_again(self) -> None:
        stack = Stack(Block(mix=Lsh(2, chunk=4, buckets=4)), depth=2, causal=True)
        net = ModelSpec(8, 16, Tokens(11), decoder=stack).build(0).eval()
        tokens, state = torch.randint(11, (2, 9)), net.start(2, 9)
        assert isinstance(state, Replay)
        with torch.no_grad():
            for t in range(9):
                y, state = net.decode(tokens[:, t : t + 1], Coords.span(1, t), state=state)  # type: ignore[assignment]
                torch.testing.assert_close(y, net(tokens[:, : t + 1], Coords.span(t + 1))[:, -1:])

    def test_several_kinds_of_numbers(self) -> None:
        mixer, x = build(Lsh(2, chunk=4, buckets=1), True).float(), stream().float()
        wanted, _ = mixer(x, Context(PLACES["left"]))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, _ = mixer(x, Context(PLACES["left"]))
        assert (found - wanted).norm() < 0.03 * wanted.norm()
        found, _ = mixer.bfloat16()(x.bfloat16(), Context(PLACES["left"]))
        assert found.dtype == torch.bfloat16
        assert (found - wanted).norm() < 0.05 * wanted.norm()


class TestDrawing:
    def mixers(self, redraw: bool) -> tuple[Any, list[LshMixer]]:
        stack = Stack(Block(mix=Lsh(2, chunk=4, buckets=4, redraw=redraw)), depth=2, causal=True)
        net = ModelSpec(8, 16, Tokens(11), decoder=stack).build(0)
        return net, [m for m in net.modules() if isinstance(m, LshMixer)]

    @pytest.mark.parametrize("redraw", [False, True])
    def test_anew_at_every_step_if_told(self, redraw: bool) -> None:
        net, mixers = self.mixers(redraw)
        before = [m.rotations.clone() for m in mixers]
        net.before_step(1)
        assert [not torch.equal(m.rotations, r) for m, r in zip(mixers, before, strict=True)] == [redraw] * 2
        assert not torch.equal(mixers[0].rotations, mixers[1].rotations)
        assert "decoder.blocks.1.mix.rotations" in net.state_dict()

    def test_more_rounds_in_use_than_in_training(self) -> None:
        _, (mixer, _) = self.mixers(True)
        mixer.double().draw(rounds=8)
        assert mixer.rounds == 8
        assert mixer.rotations.dtype == torch.double
        assert dict(mixer.named_buffers())["rotations"] is mixer.rotations

    @pytest.mark.parametrize(
        ("spec", "length", "wanted"),
        [
            (Lsh(2, chunk=64), 64, (1,)),
            (Lsh(2, chunk=64), 1024, (32,)),
            (Lsh(2, chunk=64), 1000, (32,)),
            (Lsh(2, chunk=64), 32768, (32, 32)),
            (Lsh(2, chunk=64, buckets=512), 32768, (512,)),
            (Lsh(2, chunk=64, buckets=(4, 8)), 64, (4, 8)),
        ],
    )
    def test_how_many_buckets(self, spec: Lsh, length: int, wanted: tuple[int, ...]) -> None:
        assert spec.hashes(length) == wanted
        if length < 2000:
            assert spec.build(site(True, length)).rotations.shape == (2, 4, 2, sum(wanted) // 2)

    def test_every_bucket_is_used(self) -> None:
        mixer = Lsh(2, buckets=(2, 6), rounds=3).build(site(False))
        bucket = mixer._hash(torch.randn(4, 2, 500, 4))
        assert bucket.shape == (4, 2, 3, 500)
        assert sorted(bucket.unique().tolist()) == list(range(12))


class TestRefusals:
    @pytest.mark.parametrize("buckets", [3, (2, 3), ()])
    def test_odd_buckets(self, buckets: Any) -> None:
        with pytest.raises(SpecError, match=r"buckets should be even numbers, or 1, got "):
            Lsh(2, buckets=buckets)

    def test_across(self) -> None:
        encoder = Stack(Block(mix=Lsh(2)), depth=1)
        decoder = Stack(Block(mix=Full(2), cross=Lsh(2)), depth=1, causal=True)
        (said,) = refusals(ModelSpec(8, 16, Tokens(11), encoder=encoder, decoder=decoder))
        assert said.startswith("mixer 'lsh' cannot attend across (decoder.blocks.0.cross); use 'full' or ")

    def test_packed_documents(self) -> None:
        net = ModelSpec(8, 16, Tokens(11), encoder=Stack(Block(mix=Lsh(2)), depth=1)).build()
        said = r"^mixer 'lsh' in the encoder cannot keep packed documents apart; give it one document per row$"
        with pytest.raises(ShapeError, match=said):
            net(torch.zeros(1, 5, dtype=torch.long), Coords.documents([[2, 3]]))

    def test_positions_that_act_on_scores(self) -> None:
        said = r"^mixer 'lsh' cannot use position 'bucketed' \(encoder.blocks.0.mix\): it needs bias$"
        with pytest.raises(SpecError, match=said):
            Lsh(2, position=Bucketed(8, 6)).build(site(False))

    def test_heads_that_do_not_divide_the_width(self) -> None:
        with pytest.raises(SpecError, match=r"^heads=3 should divide the width 8, or head_width be set$"):
            Lsh(3).build(site(False))


class TestReformer:
    """The Reformer of `transformers`, tiny and random, its weights and hashes in ours."""

    @staticmethod
    def config(causal: bool, buckets: Any, rounds: int) -> Any:
        transformers = pytest.importorskip("transformers")
        return transformers.ReformerConfig(
            attention_head_size=4, num_attention_heads=2, hidden_size=8, feed_forward_size=12, vocab_size=13,
            attn_layers=["lsh", "lsh"], num_hidden_layers=2, lsh_attn_chunk_length=4,
            num_buckets=list(buckets) if isinstance(buckets, tuple) else buckets, num_hashes=rounds, hash_seed=3,
            is_decoder=causal, max_position_embeddings=24, axial_pos_embds=False, hidden_dropout_prob=0.0,
            use_cache=False,
        )  # fmt: skip

    @staticmethod
    def take(mine: LshMixer, theirs: Any) -> None:
        mine.q.weight.data, mine.v.weight.data = theirs.query_key.weight.data, theirs.value.weight.data
        torch.manual_seed(3)
        mine.rotations = torch.randn(mine.rotations.shape, dtype=mine.rotations.dtype)

    @causals
    @pytest.mark.parametrize(("buckets", "rounds"), [(6, 1), ((2, 4), 1), (6, 3)])
    def test_its_attention(self, causal: bool, buckets: Any, rounds: int) -> None:
        from transformers.models.reformer.modeling_reformer import LSHSelfAttention

        n = 24
        theirs = LSHSelfAttention(self.config(causal, buckets, rounds), 0).double().eval()
        mine = build(Lsh(2, chunk=4, buckets=buckets, rounds=rounds, loose=True), causal)
        self.take(mine, theirs)
        mine.out.weight.data = torch.eye(8, dtype=torch.double)
        x = 3 * stream(n)
        for lengths in ([n, n], [n, 17]):
            at = Coords.lengths(lengths)
            kept = at.kept.expand(2, n)
            wanted = theirs(x, attention_mask=kept.long()).hidden_states
            torch.testing.assert_close(mine(x, Context(at))[0][kept], wanted[kept], rtol=1e-9, atol=1e-9)

    @causals
    def test_the_whole_model_with_reversible_layers(self, causal: bool) -> None:
        """One round; hidden states, and the gradients that both find by running their layers backwards."""
        from transformers import ReformerModel

        theirs = ReformerModel(self.config(causal, 6, 1)).train()
        mix = Lsh(2, chunk=4, buckets=6, rounds=1, loose=True, redraw=False)
        stack = Stack(
            Block(mix=mix, feed=FeedForward(12)), depth=2, causal=causal,
            wiring=Reversible(LayerNorm(1e-12), leaving="both"),
        )  # fmt: skip
        side = {"decoder": stack} if causal else {"encoder": stack}
        net = ModelSpec(8, 24, Tokens(13, Learned()), head=Vocab(tied=False), **side).build(0).train()  # type: ignore[arg-type]
        body: Any = net.decoder if causal else net.encoder
        pairs = [(net.embed.weight, theirs.embeddings.word_embeddings.weight)]
        pairs.append((net.embed.position.weight, theirs.embeddings.position_embeddings.embedding.weight))  # type: ignore[union-attr]
        pairs += list(zip(body.norm.parameters(), theirs.encoder.layer_norm.parameters(), strict=True))
        for mine, their in zip(body.blocks, theirs.encoder.layers, strict=True):
            attention, feed = their.attention, their.feed_forward
            self.take(mine.mix, attention.self_attention)
            for a, b in (
                (mine.mix.q, attention.self_attention.query_key),
                (mine.mix.v, attention.self_attention.value),
                (mine.mix.out, attention.output.dense),
                (mine.mix_norm, attention.layer_norm),
                (mine.feed_norm, feed.layer_norm),
                (mine.feed.up, feed.dense.dense),
                (mine.feed.down, feed.output.dense),
            ):
                pairs += list(zip(a.parameters(), b.parameters(), strict=True))
        with torch.no_grad():
            for a, b in pairs:
                b.copy_(torch.randn_like(b) * 0.4)
                a.copy_(b)
        tokens = torch.randint(13, (2, 24))
        found, wanted = net(tokens, Coords.span(24)), theirs(tokens).last_hidden_state
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
        for out in (found, wanted):
            out.sin().sum().backward()
        for a, b in pairs:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)
