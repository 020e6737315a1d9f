"""What mixers, positions, wirings and bodies may ask of one another, each clause leaned on by a small part of `odd.py`."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from regard.errors import ShapeError, SpecError, StateError
from regard.laws.case import slice_coords
from regard.model.build import refusals
from regard.model.cost import cost
from regard.model.model_spec import ModelSpec
from regard.model.tree import tree
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.wiring import Bare
from regard.nn.core.context import Context, Scratch, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Mixer, Site
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers import Full
from regard.nn.positions.position import Relative, Rotary, Sinusoidal
from tests.nn.odd import (
    LENGTH,
    Added,
    Blur,
    Drift,
    DriftMixer,
    Echo,
    EchoBody,
    Far,
    Gaze,
    Headless,
    Squeeze,
    Twofold,
    Widen,
    both,
    in_tables,
    reader,
    writer,
)

__all__ = ["in_tables"]
pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("in_tables")]
AT = Coords.span(6)


def ids(rows: int = 2, n: int = 6) -> Tensor:
    return torch.randint(11, (rows, n))


def drifts(net: torch.nn.Module) -> list[DriftMixer]:
    return [part for part in net.modules() if isinstance(part, DriftMixer)]


class TestBeginning:
    @pytest.mark.parametrize("init", ["xavier", "normal", "gpt2"])
    def test_a_mixer_begins_as_it_likes_after_the_scheme(self, init: str) -> None:
        for mixer in drifts(writer(Drift()).replace("init", init).build()):
            assert (mixer.scale == 1).all()
            assert (mixer.out.bias == 0.5).all()
            assert mixer.out.weight.std() > 0

    @pytest.mark.parametrize(("init", "std"), [("xavier", 400**-0.5), ("normal", 0.02), ("gpt2", 0.02)])
    def test_a_lone_vector_starts_like_a_row_of_a_table(
        self, init: str, std: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its module leaves it unset (`torch.empty`); the scheme never leaves it as the memory was."""
        monkeypatch.setattr(DriftMixer, "initialize", Mixer.initialize)
        for mixer in drifts(writer(Drift()).replace("width", 400).replace("init", init).build()):
            assert mixer.scale.std().item() == pytest.approx(std, rel=0.15)

    def test_what_is_drawn_travels_with_the_weights(self) -> None:
        a, b = (writer(Drift()).build(seed).eval() for seed in (0, 1))
        tokens = ids()
        assert not torch.equal(a(tokens, AT), b(tokens, AT))
        b.load_state_dict(a.state_dict())
        assert torch.equal(a(tokens, AT), b(tokens, AT))

    def test_mixers_hear_every_step(self) -> None:
        net = writer(Drift()).build()
        before = [m.way.clone() for m in drifts(net)]
        net.before_step(1)
        assert all(torch.equal(m.way, w) for m, w in zip(drifts(net), before, strict=True))
        net.before_step(2)
        assert not any(torch.equal(m.way, w) for m, w in zip(drifts(net), before, strict=True))


class TestShares:
    def test_a_shared_part_is_registered_once(self) -> None:
        net = reader(Squeeze(rank=3)).build()
        assert [n for n, _ in net.named_parameters() if "squeeze" in n] == ["encoder.shared.squeeze_3.weight"]
        assert net.encoder.shared["squeeze_3"].weight.shape == (3, LENGTH)  # type: ignore[union-attr, index]
        own = [n for n, _ in reader(Squeeze(rank=3, own=True)).build().named_parameters() if n.endswith("rows.weight")]
        assert own == [f"encoder.blocks.{i}.mix.rows.weight" for i in range(3)]

    def test_every_layer_that_names_it_trains_it(self) -> None:
        net = reader(Squeeze()).build().double()
        separate = reader(Squeeze(own=True)).build().double()
        weights = dict(net.state_dict())
        shared = weights.pop("encoder.shared.squeeze_3.weight")
        separate.load_state_dict(weights | {f"encoder.blocks.{i}.mix.rows.weight": shared for i in range(3)})
        tokens = ids()
        for model in (net, separate):
            model(tokens, AT).square().sum().backward()
        grads = [block.mix.rows.weight.grad for block in separate.encoder.blocks]  # type: ignore[union-attr]
        found = net.encoder.shared["squeeze_3"].weight.grad  # type: ignore[union-attr, index]
        torch.testing.assert_close(found, sum(grads))

    def test_layers_that_ask_for_different_parts_get_them(self) -> None:
        blocks = (Block(mix=Squeeze(rank=3)), Block(mix=Squeeze(rank=2)), Block(mix=Squeeze(rank=3)))
        net = reader(Squeeze()).replace("encoder", Stack(blocks=blocks)).build()
        assert sorted(net.encoder.shared) == ["squeeze_2", "squeeze_3"]  # type: ignore[union-attr, arg-type]
        net(ids(), AT)


class TestPositions:
    def test_each_layer_has_a_map_of_its_own_for_a_position_that_projects(self) -> None:
        net = writer(Full(2), position=Far()).build()
        names = [n for n, _ in net.named_parameters() if ".r." in n or "position" in n]
        assert names == ["decoder.position.v", *(f"decoder.blocks.{i}.mix.r.weight" for i in range(3))]
        assert not [n for n, _ in writer(Full(2), position=Rotary()).build().named_parameters() if ".r." in n]
        alone = writer(Full(2, position=Far())).build()
        assert len([n for n, _ in alone.named_parameters() if ".r." in n or "position" in n]) == 6

    def test_the_map_is_applied_to_the_codes(self) -> None:
        mixer = Full(2).build(Site("mix", 8, LENGTH, causal=True, position=Far())).double()
        position = Far().build(Site("position", 8, LENGTH, heads=2, head_width=4)).double()
        torch.nn.init.normal_(position.v)  # type: ignore[arg-type]
        x = torch.randn(1, 5, 8, dtype=torch.double)
        tape = Tape("*")
        mixer(x, Context(Coords.span(5), position=position, tape=tape))
        codes, _ = position.prepare(Coords.span(5), Coords.span(5))
        q, k, r = (t.view(5, 2, 4) for t in (mixer.q(x), mixer.k(x), mixer.r(codes)))  # type: ignore[misc]
        for h in range(2):
            for i in range(5):
                far = torch.stack([(q[i, h] + position.v[h]) @ r[i - j, h] for j in range(i + 1)])  # type: ignore[index]
                wanted = ((k[: i + 1, h] @ q[i, h] + far) / 2).softmax(0)
                torch.testing.assert_close(tape.kept["mix.weights"][0, h, i, : i + 1], wanted)

    def test_it_streams(self) -> None:
        net, tokens = writer(Full(2), position=Far()).build().double().eval(), ids()
        state, out = net.start(2, 6), []
        for i in range(6):
            y, state = net.decode(tokens[:, i : i + 1], Coords.span(1, i), state=state)  # type: ignore[assignment]
            out.append(y)
        torch.testing.assert_close(torch.cat(out, 1), net(tokens, AT))

    def test_a_mixer_without_heads(self) -> None:
        said = r"^position 'rotary' in decoder needs heads, and decoder.blocks.0.mix has none$"
        with pytest.raises(SpecError, match=said):
            writer(Headless(), position=Rotary()).build()

    def test_a_body_without_mixers(self) -> None:
        feed = writer(Full(2)).decoder.layers()[0].feed  # type: ignore[union-attr]
        stack = Stack(Block(feed=feed), depth=1, causal=True, position=Relative(2))
        with pytest.raises(SpecError, match=r"^position 'relative' in decoder needs a mixer, and no block has one$"):
            writer(Full(2)).replace("decoder", stack).build()


class TestWhatABatchMayBe:
    def test_packed_documents_that_cannot_be_kept_apart(self) -> None:
        net = reader(Squeeze()).build()
        said = r"^mixer 'squeeze' in the encoder cannot keep packed documents apart; give it one document per row$"
        with pytest.raises(ShapeError, match=said):
            net(ids(1, 5), Coords.documents([[2, 3]]))

    def test_longer_than_a_mixer_of_fixed_length(self) -> None:
        net = reader(Squeeze()).build()
        net(ids(1, LENGTH), Coords.span(LENGTH))
        said = r"^mixer 'squeeze' in the encoder is built for 12 tokens, got 13; shorten them or raise the length$"
        with pytest.raises(ShapeError, match=said):
            net(ids(1, 13), Coords.span(13))
        with pytest.raises(ShapeError, match=r"got 13"):
            net(ids(1, 3), Coords.span(3, 10))
        reader(Blur()).build()(ids(1, 13), Coords.span(13))


class TestMemory:
    def test_a_mixer_may_look_at_the_encoder_from_the_mix_place(self) -> None:
        """Hypotheses of a sentence share its memory; nothing is remembered, so its state is None."""
        net = both(Block(mix=Gaze())).build().double().eval()
        memory = net.encode(ids(2, 5), Coords.lengths([5, 3]))
        tokens = ids(4, 6)
        state = net.start(4, 6)
        assert state.blocks[0] == {"mix": None}  # type: ignore[attr-defined]
        first, state = net.decode(tokens[:, :4], Coords.span(4), memory, state)  # type: ignore[assignment]
        second, _ = net.decode(tokens[:, 4:], Coords.span(2, 4), memory, state.select(torch.arange(4)))
        each = memory.select(torch.tensor([0, 0, 1, 1]))
        torch.testing.assert_close(torch.cat([first, second], 1), net.decode(tokens, AT, each)[0])

    def test_without_an_encoder_it_is_refused(self) -> None:
        said = [f"decoder.blocks.{i}.mix attends to an encoder, and there is none before it" for i in range(3)]
        assert refusals(writer(Gaze())) == said

    def test_a_body_says_what_is_read_as_values(self) -> None:
        spec = both(Block(mix=Full(2), cross=Full(2)))
        net = spec.replace("encoder", Added(Block(mix=Full(2)), depth=2)).build().eval()
        tokens = ids()
        memory, first = net.encode(tokens, AT), net.embed(tokens, AT)
        assert torch.equal(memory.values, memory.keys + first)

    def test_the_final_states_of_layers_are_part_of_it(self) -> None:
        """Of those layers that have some: they are selected with the sentences, and each hypothesis gets its own copy."""
        blocks = (Block(mix=Drift()), Block(mix=Full(2)), Block(mix=Drift()))
        spec = both(Block(mix=Full(2), cross=Full(2)))
        net = spec.replace("encoder", Stack(blocks=blocks)).build().eval()
        memory = net.encode(ids(3), AT)
        assert memory.final is not None
        kept = memory.final.flat()
        assert sorted({name.split(".")[1] for name in kept}) == ["0", "2"]
        assert net.encode(ids(3), AT).final is not None
        for name, t in memory.select(torch.tensor([2, 0])).final.flat().items():  # type: ignore[union-attr]
            assert torch.equal(t, kept[name][[2, 0]] if t.dim() else kept[name])
        for name, t in memory.final_of(6).flat().items():  # type: ignore[union-attr]
            assert torch.equal(t, kept[name].repeat_interleave(2, 0) if t.dim() else kept[name])
        with pytest.raises(StateError, match=r"^4 hypotheses cannot be divided among the 3 sentences of a memory$"):
            memory.final_of(4)
        assert both(Block(mix=Full(2), cross=Full(2))).build().encode(ids(), AT).final is None

    def test_the_final_states_are_inputs_of_a_function_of_the_context(self) -> None:
        spec = both(Block(mix=Full(2), cross=Full(2)))
        net = spec.replace("encoder", Stack(Block(mix=Drift()), depth=1)).build().eval()
        memory = net.encode(ids(), AT)
        ctx = Context(AT, memory=memory)
        again = ctx.for_rerun(Scratch(), [2 * t for t in ctx.tensors()]).memory
        assert again is not None
        before, after = memory.tensors(), again.tensors()
        assert len(before) > 2
        assert all(torch.equal(2 * a, b) for a, b in zip(before, after, strict=True))

    def test_a_memory_may_be_wider_than_the_stream(self) -> None:
        net = both(Block(mix=Full(2), cross=Full(2)), wiring=Twofold()).build()
        cross = net.decoder.blocks[0].cross  # type: ignore[union-attr, index]
        assert [getattr(cross, name).weight.shape[1] for name in "qkv"] == [8, 16, 16]
        assert net(ids(), AT, (ids(), AT)).shape == (2, 6, 8)


class TestWiring:
    def test_a_stream_may_leave_wider(self) -> None:
        net = writer(Full(2), wiring=Twofold(), tied=False).build()
        assert net.logits(net(ids(), AT)).shape == (2, 6, 11)
        assert net.head.weight.shape == (11, 16)

    def test_which_a_tied_head_cannot_read(self) -> None:
        said = "a tied head needs a stream as wide as the embedding (8), and this one is 16 wide; set head.tied: false"
        assert refusals(writer(Full(2), wiring=Twofold())) == [said]

    def test_a_wiring_refuses_what_it_cannot_carry(self) -> None:
        said = "decoder.blocks.{}.mix has losses of its own, which a twofold stream cannot carry"
        assert refusals(writer(Drift(), wiring=Twofold(), tied=False)) == [said.format(i) for i in range(3)]
        assert refusals(writer(Drift())) == []


class TestWidths:
    def test_embeddings_and_mixers_say_what_they_leave(self) -> None:
        """5 -> 6 -> 7 in the encoder, 4 -> 9 in the decoder, whose cross-attention reads 7."""
        encoder = Stack(blocks=(Block(mix=Widen(6), feed=FeedForward(3)), Block(mix=Widen(7))), wiring=Bare())
        decoder = Stack(Block(mix=Widen(9), cross=Full(3), feed=FeedForward(3)), depth=2, causal=True, wiring=Bare())
        spec = ModelSpec(
            8, LENGTH, Tokens(11, Sinusoidal(), width=4), encoder, decoder, Tokens(13, width=5), Vocab(tied=False)
        )
        assert (spec.memory_width, spec.out_width) == (7, 9)
        net = spec.build()
        shapes = {name: tuple(p.shape) for name, p in net.named_parameters() if name.endswith("weight")}
        wanted = {
            "embed": (11, 4), "source": (13, 5), "encoder.blocks.0.feed.up": (3, 6), "encoder.blocks.1.mix.out": (7, 6),
            "decoder.blocks.0.mix.out": (9, 4), "decoder.blocks.1.mix.out": (9, 9), "decoder.blocks.0.cross.k": (9, 7),
            "decoder.blocks.0.cross.q": (9, 9), "decoder.blocks.1.feed.down": (9, 3), "head": (11, 9),
        }  # fmt: skip
        assert {name: shapes[f"{name}.weight"] for name in wanted} == wanted
        assert net.logits(net(ids(), AT, (ids(), AT))).shape == (2, 6, 11)

    @pytest.mark.parametrize(("width", "std"), [(None, 0.05), (100, 0.1)])
    def test_a_table_starts_by_its_own_width(self, width: int | None, std: float) -> None:
        spec = ModelSpec(
            400, LENGTH, Tokens(50, width=width), encoder=Stack(Block(mix=Widen(400)), depth=1, wiring=Bare())
        )
        weight = spec.replace("head", Vocab(tied=False)).build().embed.weight
        assert weight is not None
        assert weight.std().item() == pytest.approx(std, rel=0.1)

    def test_what_is_added_to_its_input_must_be_as_wide(self) -> None:
        assert refusals(reader(Widen(8))) == []
        said = (
            "encoder.blocks.0.mix turns a stream of width 8 into one of 9, and wiring 'pre_norm' adds the two; "
            "set its width to 8, or use wiring 'bare'"
        )
        assert refusals(reader(Widen(9)))[0] == said

    def test_a_tied_table_has_one_width(self) -> None:
        spec = both(Block(mix=Full(2), cross=Full(2))).replace("source", Tokens(11, tied=True, width=6))
        said = "source shares a table of width 8 and asks for 6; set source.width or leave out tied"
        assert refusals(spec) == [said]


def echoing(width: int = 6) -> ModelSpec:
    spec = both(Block(mix=Full(2), cross=Full(2)))
    return dataclasses.replace(spec, decoder=Echo(width), head=Vocab(tied=False))


class TestBodiesOfTheirOwn:
    def test_one_steps_all_its_layers(self) -> None:
        net = echoing().build().double().eval()
        source, tokens, at = ids(2, 5), ids(4), Coords.lengths([6, 3, 5, 1])
        memory = net.encode(source, Coords.lengths([5, 2]))
        whole, _ = net.decode(tokens, at, memory)
        state, out = net.start(4, 6), []
        for i in range(6):
            y, state = net.decode(tokens[:, i : i + 1], slice_coords(at, i, i + 1), memory, state)  # type: ignore[assignment]
            out.append(y)
        torch.testing.assert_close(torch.cat(out, 1), whole)
        assert net.logits(whole).shape == (4, 6, 11)

    def test_it_is_initialized_and_hears_every_step(self) -> None:
        net = echoing().build()
        assert isinstance(net.decoder, EchoBody)
        assert (net.decoder.inner.bias == 0.5).all()
        net.before_step(7)
        assert net.decoder.steps == [7]

    def test_what_it_cannot_is_refused(self) -> None:
        alone = dataclasses.replace(echoing(), encoder=None)
        assert refusals(alone) == ["decoder attends to an encoder, and there is none before it"]
        said = r"^body 'echo' in the decoder cannot keep packed documents apart; give it one document per row$"
        packed = Coords.documents([[2, 3]])
        with pytest.raises(ShapeError, match=said):
            echoing().build()(ids(1, 5), packed, (ids(1, 5), packed))

    def test_it_says_what_it_costs(self) -> None:
        net = echoing().build()
        assert net.decoder is not None
        found = cost(net.decoder, 4, 8)
        assert (found.flops, found.state) == (2 * 6 * (8 + 6 + 8) + 2, 6 / 4)
        assert "decoder" in tree(net, 8)

    def test_the_encoder_knows_how_many_layers_read_it(self) -> None:
        assert echoing().encoder_site.readers == 1
        assert both(Block(mix=Full(2), cross=Full(2))).encoder_site.readers == 2
        assert reader(Full(2)).encoder_site.readers == 0


class TestLosses:
    @pytest.mark.parametrize("states", [False, True], ids=["", "state"])
    def test_each_counts_once_also_where_blocks_are_computed_twice(self, states: bool) -> None:
        tokens, found = ids(), []
        for recompute in (False, True):
            net, tape = writer(Drift(), recompute=recompute).build(0).train(), Tape("*")
            state, total = net.start(2, 6) if states else None, torch.zeros(())
            for i in (0, 3):
                y, state = net.decode(tokens[:, i : i + 3], Coords.span(3, i), state=state, tape=tape)
                total = total + y.sin().sum()
            assert sorted(tape.losses) == [f"decoder.blocks.{i}.mix.size" for i in range(3)]
            before = dict(tape.losses)
            torch.autograd.backward(total + sum(tape.losses.values()))
            assert all(tape.losses[name] is loss for name, loss in before.items())
            remembered = [] if state is None else list(state.flat().values())
            found.append([*tape.losses.values(), *remembered, *(p.grad for p in net.parameters())])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b)


def test_a_state_may_stop_growing() -> None:
    """What is remembered a token falls with the number of tokens."""
    net = writer(Drift()).build()
    assert [cost(net, n).state for n in (1, 4, 8)] == [3 * 16, 3 * 4, 3 * 2]
    assert Mixer(Site("", 8, 8, causal=True)).state_numbers(5) == 0
