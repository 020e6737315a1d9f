"""Window attention: its dense twin, with tags, dilation, documents and padding; its state; Longformer of transformers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import SpecError, StateError
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.wiring import PostNorm
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Tagged, Window, visible
from regard.nn.core.mixer import Mixer, Site
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import Full, Local
from regard.nn.positions.position import ALiBi, Relative, Rotary

pytestmark = pytest.mark.numeric

N, WIDTH = 23, 8
PLACES = {
    "span": Coords.span(N),
    "right": Coords.lengths([N, 9, 1]),
    "left": Coords.lengths([N, 9, 1], left=True),
    "documents": Coords.documents([[N], [4, 12, 3], [1, 1, 20]]),
}
TAG = torch.zeros(3, N, dtype=torch.long)
TAG[0, 0] = TAG[1, 3] = TAG[1, 7] = TAG[2, 21] = TAG[2, 22] = 1


def site(causal: bool) -> Site:
    return Site("decoder.blocks.0.mix" if causal else "encoder.blocks.0.mix", WIDTH, N, causal=causal)


def built(spec: Any, causal: bool) -> Mixer:
    mixer: Mixer = spec.build(site(causal)).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return mixer


def same(mine: Mixer, other: Mixer, at: Coords) -> None:
    """Outputs and gradients of the stream and of every weight they share."""
    mine.load_state_dict(other.state_dict(), strict=False)
    x = torch.randn(3, at.n, WIDTH, dtype=torch.double)
    kept, found = at.kept.expand(3, -1), []
    for mixer in (mine, other):
        given = x.clone().requires_grad_()
        out = mixer(given, Context(at))[0][kept]
        weights = [p for name, p in mixer.named_parameters() if "own" not in name]
        found.append([out, *torch.autograd.grad(out.sin().sum(), [given, *weights], materialize_grads=True)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


class TestTwin:
    @pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
    @pytest.mark.parametrize("place", PLACES)
    @pytest.mark.parametrize("tagged", [False, True], ids=["", "tagged"])
    @pytest.mark.parametrize("dilation", [1, 3])
    def test_the_same_attention_under_a_mask(self, causal: bool, place: str, tagged: bool, dilation: int) -> None:
        at = dataclasses.replace(PLACES[place], tag=TAG) if tagged else PLACES[place]
        spec = Local(2, reach=2, dilation=dilation, tile=4)
        assert spec.twin() == Full(2, mask=Window(2, dilation) | Tagged())
        same(built(spec, causal), built(spec.twin(), causal), at)

    @pytest.mark.parametrize("position", [Rotary(), ALiBi(), Relative(3)], ids=["rotate", "bias", "content"])
    @pytest.mark.parametrize("tagged", [False, True], ids=["", "tagged"])
    @pytest.mark.parametrize("dilation", [1, 2])
    def test_with_positions(self, position: Any, tagged: bool, dilation: int) -> None:
        at = dataclasses.replace(PLACES["right"], tag=TAG) if tagged else PLACES["right"]
        spec = Local(4, reach=3, dilation=dilation, kv_heads=2, position=position, tile=5)
        same(built(spec, False), built(spec.twin(), False), at)

    @pytest.mark.parametrize("tile", [1, 2, 7, N - 1, N, 4 * N])
    @pytest.mark.parametrize("reach", [1, 6, 2 * N])
    def test_tiles_of_any_size(self, tile: int, reach: int) -> None:
        spec = Local(2, reach=reach, tile=tile)
        same(built(spec, True), built(spec.twin(), True), Coords.span(N))


class TestOwnMaps:
    def test_they_start_as_copies(self) -> None:
        spec = ModelSpec(WIDTH, N, Tokens(7), encoder=Stack(Block(mix=Local(2, reach=2, own=True)), depth=1))
        net = spec.build(seed=0)
        mixer: Any = net.encoder.blocks[0].mix  # type: ignore[union-attr, index]
        for name in "qkv":
            assert torch.equal(getattr(mixer, f"own_{name}").weight, getattr(mixer, name).weight)
        with torch.no_grad():
            mixer.own_q.weight.add_(1.0)
        assert not torch.equal(mixer.own_q.weight, mixer.q.weight)

    @pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
    @pytest.mark.parametrize("place", PLACES)
    @pytest.mark.parametrize("tile", [4, 99])
    def test_tagged_tokens_look_with_them_and_are_looked_at_without(self, causal: bool, place: str, tile: int) -> None:
        """By hand: every row with the usual maps, and the rows of tagged tokens with theirs."""
        at = dataclasses.replace(PLACES[place], tag=TAG)
        mixer: Any = built(Local(2, reach=2, own=True, tile=tile), causal)
        assert Local(2, reach=2, own=True).twin() is None
        x = torch.randn(3, N, WIDTH, dtype=torch.double, requires_grad=True)
        keep = visible(mixer.rule, at, at)
        assert keep is not None

        def heads(layer: Any) -> Tensor:
            return layer(x).view(3, N, 2, 4).transpose(1, 2)

        def look(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = (q @ k.mT / 2).masked_fill(~keep.unsqueeze(1), -torch.inf)
            return scores.softmax(-1).nan_to_num() @ v

        usual, own = (
            look(*(heads(getattr(mixer, n)) for n in "qkv")),
            look(*(heads(getattr(mixer, f"own_{n}")) for n in "qkv")),
        )
        both = torch.where((TAG > 0)[:, None, :, None], own, usual).transpose(1, 2).flatten(2)
        kept = at.kept.expand(3, -1)
        wanted, out = mixer.out(both)[kept], mixer(x, Context(at))[0][kept]
        torch.testing.assert_close(out, wanted, rtol=0, atol=1e-10)
        parts = [x, *mixer.parameters()]
        for a, b in zip(*(torch.autograd.grad(y.sin().sum(), parts) for y in (out, wanted)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)

    def test_their_weights_are_shown(self) -> None:
        at = dataclasses.replace(PLACES["span"], tag=TAG)
        mixer = built(Local(2, reach=1, own=True, tile=4), False)
        tape = Tape("*.weights")
        x = torch.randn(3, N, WIDTH, dtype=torch.double)
        out, _ = mixer(x, Context(at, tape=tape))
        torch.testing.assert_close(out, mixer(x, Context(at))[0], rtol=0, atol=1e-12)
        weights = tape.kept["encoder.blocks.0.mix.weights"]
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, N, dtype=torch.double))
        seen = (weights > 0).any(1)
        assert (seen == visible(Window(1) | Tagged(), at, at)).all()


class TestState:
    def test_it_remembers_the_window_and_no_more(self) -> None:
        mixer = built(Local(2, reach=3, dilation=2, tile=4), True).requires_grad_(False)
        state: Any = mixer.start(1, 1000)
        for t in range(50):
            _, state = mixer(torch.randn(1, 1, WIDTH, dtype=torch.double), Context(Coords.span(1, t)), state)
            assert state.recent.at.n <= 12
        assert state.recent.k.shape[2] == 12
        _, state = mixer(torch.randn(1, 40, WIDTH, dtype=torch.double), Context(Coords.span(40, 50)), state)
        assert state.recent.at.n == 6
        assert state.recent.at.pos.tolist() == [list(range(84, 90))]
        assert mixer.state_numbers(50) == 2 * WIDTH * 6

    @pytest.mark.parametrize("own", [False, True])
    @pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
    def test_tagged_tokens_are_never_forgotten(self, own: bool, left: bool) -> None:
        mixer = built(Local(2, reach=2, own=own, tile=4), True).requires_grad_(False)
        at = dataclasses.replace(Coords.lengths([N, 12, 7], left=True) if left else Coords.span(N), tag=TAG.clone())
        at.tag[:, 18:] = 0  # type: ignore[index]
        at.tag[2, 16:18] = 1  # type: ignore[index]
        x = torch.randn(3, N, WIDTH, dtype=torch.double)
        whole, _ = mixer(x, Context(at))
        for cuts in ([18, 19, 20, 21, 22], [18], [19, 21]):
            state, out = mixer.start(3, N), []
            for a, b in zip([0, *cuts], [*cuts, N], strict=True):
                y, state = mixer(x[:, a:b], Context(at.part(slice(a, b))), state)
                out.append(y)
            torch.testing.assert_close(torch.cat(out, 1)[at.kept.expand(3, -1)], whole[at.kept.expand(3, -1)])

    def test_a_tagged_token_comes_first_or_not_at_all(self) -> None:
        mixer = built(Local(2, reach=2), True)
        _, state = mixer(torch.randn(1, 2, WIDTH, dtype=torch.double), Context(Coords.span(2)), mixer.start(1, 4))
        late = dataclasses.replace(Coords.span(1, 2), tag=torch.ones(1, 1))
        said = r"^decoder.blocks.0.mix remembers 2 tokens, and a tagged token attends to all before it; give the tagged tokens"
        with pytest.raises(StateError, match=said):
            mixer(torch.randn(1, 1, WIDTH, dtype=torch.double), Context(late), state)

    def test_it_cannot_go_back(self) -> None:
        state = built(Local(2, reach=2), True).start(1, 4)
        with pytest.raises(StateError, match=r"^Nearby cannot go back to 3 tokens; run them again from the start$"):
            state.cut(3)  # type: ignore[union-attr]


class TestWork:
    def test_keys_beyond_the_window_are_not_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import regard.nn.mixers.full as full

        pairs, attend = [], full.attend
        monkeypatch.setattr(
            full, "attend", lambda q, k, *a, **kw: pairs.append(q.shape[2] * k.shape[2]) or attend(q, k, *a, **kw)
        )
        for causal, wide in ((False, 4 + 2 * 3), (True, 4 + 3)):
            pairs.clear()
            built(Local(2, reach=3, tile=4), causal)(torch.randn(1, 200, WIDTH).double(), Context(Coords.span(200)))
            assert len(pairs) == 50
            assert max(pairs) == 4 * wide

    def test_what_is_stored_for_the_backward_pass_grows_with_the_length(self) -> None:
        def stored(n: int) -> int:
            places: dict[int, int] = {}

            def note(t: Tensor) -> Tensor:
                places[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
                return t

            mixer = built(Local(2, reach=8, tile=8), False)
            with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
                mixer(torch.randn(1, n, WIDTH, dtype=torch.double), Context(Coords.span(n)))
            return sum(places.values())

        assert stored(512) < 2.1 * stored(256)

    def test_flops(self) -> None:
        mixer = Local(2, reach=3).build(Site("encoder.blocks.0.mix", WIDTH, N))
        maps = 4 * 2 * WIDTH * WIDTH
        assert mixer.flops(1000, 0) == maps + 4 * 7 * WIDTH
        assert mixer.flops(5, 0) == maps + 4 * 5 * WIDTH

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_in_lower_precision(self, dtype: torch.dtype) -> None:
        at = dataclasses.replace(PLACES["left"], tag=TAG)
        mixer = built(Local(2, reach=2, own=True, tile=4), False)
        x = torch.randn(3, N, WIDTH, dtype=torch.double)
        wanted = mixer(x, Context(at))[0]
        out = mixer.to(dtype)(x.to(dtype), Context(at))[0]
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), wanted, rtol=0, atol=20 * torch.finfo(dtype).eps)

    def test_the_plan_says_how(self) -> None:
        tape = Tape("nothing")
        mixer = built(Local(2, reach=2, tile=4), True)
        mixer(torch.randn(1, 9, WIDTH, dtype=torch.double), Context(Coords.span(9), tape=tape))
        said = "tiles of 4 and their neighbors; fused; mask of coordinates"
        assert tape.plans == {"decoder.blocks.0.mix": said}

    def test_dropout_is_right_on_average(self) -> None:
        mixer = built(Local(2, reach=3, dropout=0.5, tile=4), False)
        x = torch.randn(1, 12, WIDTH, dtype=torch.double).expand(2000, -1, -1)
        with torch.no_grad():
            wanted = mixer.eval()(x[:1], Context(Coords.span(12)))[0]
            many = mixer.train()(x, Context(Coords.span(12)))[0]
        off = (many.mean(0) - wanted).abs() / (many.std(0) / 2000**0.5)
        assert off.max() < 5
        assert many.std(0).min() > 0.01


def test_refusals() -> None:
    both = Stack(Block(mix=Full(2), cross=Local(2, reach=2)), depth=1, causal=True)
    spec = ModelSpec(WIDTH, N, Tokens(7), encoder=Stack(Block(mix=Full(2)), depth=1), decoder=both)
    with pytest.raises(SpecError, match=r"^mixer 'local' cannot attend across \(decoder.blocks.0.cross\); use 'full'"):
        spec.build()
    with pytest.raises(SpecError, match=r"^kv_heads should divide heads=2, got 3$"):
        Local(2, reach=2, kv_heads=3)


class TestGlobalTokens:
    """One word in the stack tags them."""

    def spec(self, causal: bool = False, **dials: Any) -> ModelSpec:
        stack = Stack(Block(mix=Local(2, reach=2, tile=4, **dials), feed=FeedForward(9)), depth=2, causal=causal)
        side = {"decoder": stack} if causal else {"encoder": stack}
        return ModelSpec(WIDTH, N, Tokens(7, segments=2), **side)  # type: ignore[arg-type]

    @pytest.mark.parametrize("own", [False, True], ids=["", "own"])
    @pytest.mark.parametrize("place", PLACES)
    def test_the_first_of_each_text(self, place: str, own: bool) -> None:
        spec, at, ids = self.spec(own=own), PLACES[place], torch.randint(7, (3, N))
        net, word = (s.build(0).double().eval() for s in (spec, spec.replace("encoder.tags", "first")))
        by_hand = dataclasses.replace(at, tag=(at.pos == 0).long())
        kept = at.kept.expand(3, -1)
        assert torch.equal(word(ids, at)[kept], net(ids, by_hand)[kept])
        assert not torch.allclose(word(ids, at)[kept], net(ids, at)[kept])

    def test_every_token_of_a_question(self) -> None:
        spec, ids = self.spec(), torch.randint(7, (1, N))
        at = dataclasses.replace(Coords.span(N), segment=(torch.arange(N) >= 5).long().unsqueeze(0))
        net, word = (s.build(0).double().eval() for s in (spec, spec.replace("encoder.tags", "segment")))
        by_hand = dataclasses.replace(at, tag=(torch.arange(N) < 5).long().unsqueeze(0))
        assert torch.equal(word(ids, at), net(ids, by_hand))

    def test_token_by_token(self) -> None:
        net, ids = (
            self.spec(causal=True).replace("decoder.tags", "first").build(0).double().eval(),
            torch.randint(7, (2, N)),
        )
        state, out = net.start(2, N), []
        for i in range(N):
            y, state = net.decode(ids[:, i : i + 1], Coords.span(1, i), state=state)  # type: ignore[assignment]
            out.append(y)
        torch.testing.assert_close(torch.cat(out, 1), net(ids, Coords.span(N)), rtol=0, atol=1e-12)

    def test_where_nobody_heeds_them(self) -> None:
        said = r"^encoder.tags is 'first', and no mixer uses tags; use 'local' or a 'tagged' mask$"
        asked = self.spec().replace("encoder.tags", "first")
        with pytest.raises(SpecError, match=said):
            asked.replace("encoder.block.mix", Full(2)).build()
        asked.replace("encoder.block.mix", Full(2, mask=Window(2) | Tagged())).build()


LAYER = {
    "attention.self.query": "mix.q", "attention.self.key": "mix.k", "attention.self.value": "mix.v",
    "attention.self.query_global": "mix.own_q", "attention.self.key_global": "mix.own_k",
    "attention.self.value_global": "mix.own_v", "attention.output.dense": "mix.out",
    "attention.output.LayerNorm": "mix_norm", "intermediate.dense": "feed.up", "output.dense": "feed.down",
    "output.LayerNorm": "feed_norm",
}  # fmt: skip
"""Names of an encoder layer in transformers, and ours."""


def converted(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of `encoder.layer.{i}` under our names."""
    out = {}
    for name, weight in theirs.items():
        layer, _, rest = name.removeprefix("encoder.layer.").partition(".")
        if layer.isdigit():
            part, _, kind = rest.rpartition(".")
            out[f"blocks.{layer}.{LAYER[part]}.{kind}"] = weight
    return out


@pytest.mark.parametrize("lengths", [[27, 27], [27, 11]])
def test_longformer_of_transformers(lengths: list[int]) -> None:
    from transformers import LongformerConfig, LongformerModel

    config = LongformerConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, pad_token_id=1,
        attention_window=[4, 8], max_position_embeddings=40, initializer_range=0.5,
    )  # fmt: skip
    theirs = LongformerModel(config, add_pooling_layer=False).eval()
    n = max(lengths)
    ids, at = torch.randint(2, 30, (2, n)), Coords.lengths(lengths)
    tag = torch.zeros(2, n, dtype=torch.long)
    tag[:, 0] = tag[1, 5] = 1
    mask = at.kept.expand(2, -1).long()
    with torch.no_grad():
        wanted = theirs(ids.masked_fill(mask == 0, 1), mask, tag, output_hidden_states=True)
    blocks = tuple(Block(mix=Local(2, w // 2, own=True, tile=5), feed=FeedForward(24, "gelu")) for w in (4, 8))
    stack = Stack(blocks=blocks, wiring=PostNorm(LayerNorm(config.layer_norm_eps)))
    mine = stack.build(Site("encoder", 16, 40)).eval()
    mine.load_state_dict(converted(theirs.state_dict()))
    with torch.no_grad():
        out, _ = mine(wanted.hidden_states[0][:, :n], Context(dataclasses.replace(at, tag=tag)))
    kept = mask.bool()
    assert (out - wanted.last_hidden_state)[kept].abs().max() <= 1e-5
    assert wanted.last_hidden_state[kept].std() > 0.5
