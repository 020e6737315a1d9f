from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from regard.errors import StateError
from regard.nn.blocks.body import Layers
from regard.nn.core.coords import Coords
from regard.nn.core.state import NOWHERE, KeyValues, State, fixed, moving
from regard.nn.mixers.full import CrossKeyValues
from tests.nn.odd import Drifting, Sum

pytestmark = pytest.mark.numeric


@dataclasses.dataclass
class Beam(State):
    """Two sentences of three hypotheses each."""

    hypotheses: Tensor = moving()
    sentences: Tensor = fixed()
    at: Coords = moving()
    count: int = 0


def beam() -> Beam:
    return Beam(torch.arange(6), torch.tensor([10, 11]), Coords(torch.arange(6).unsqueeze(1)), 7)


class TestSelect:
    def test_gathers_what_belongs_to_hypotheses_only(self) -> None:
        state = beam().select(torch.tensor([0, 0, 2, 4, 3, 3]))
        assert state.hypotheses.tolist() == [0, 0, 2, 4, 3, 3]
        assert state.at.pos.flatten().tolist() == [0, 0, 2, 4, 3, 3]
        assert state.sentences.tolist() == [10, 11]
        assert state.count == 7

    def test_lets_a_sentence_leave(self) -> None:
        state = beam().select(torch.tensor([3, 4, 5]), torch.tensor([1]))
        assert (state.hypotheses.tolist(), state.sentences.tolist()) == ([3, 4, 5], [11])

    def test_reaches_states_inside_states(self) -> None:
        state = Layers(({"mix": beam(), "feed": None}, {"mix": beam()}))
        picked = state.select(torch.tensor([5]), torch.tensor([1]))
        for block in picked.blocks:
            inner = block["mix"]
            assert isinstance(inner, Beam)
            assert (inner.hypotheses.tolist(), inner.sentences.tolist()) == ([5], [11])
        assert picked.blocks[0]["feed"] is None

    def test_does_not_copy_the_sentence(self) -> None:
        looked = CrossKeyValues(torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 4))
        assert looked.select(torch.tensor([1, 0, 0])).k is looked.k
        left = looked.select(torch.tensor([1]), torch.tensor([1])).k
        assert left is not None
        assert left.shape == (1, 1, 3, 4)

    def test_before_the_memory_was_looked_at(self) -> None:
        assert CrossKeyValues().select(torch.tensor([0]), torch.tensor([0])) == CrossKeyValues()


def test_detach_cuts_the_graph_everywhere() -> None:
    leaf = torch.ones(2, requires_grad=True)
    state = dataclasses.replace(beam(), hypotheses=leaf * 2).detach()
    assert not state.hypotheses.requires_grad
    assert state.hypotheses.tolist() == [2, 2]


def test_to_moves_tensors_and_coordinates() -> None:
    state = beam().to("meta")
    assert {state.hypotheses.device.type, state.sentences.device.type, state.at.pos.device.type} == {"meta"}


class TestCut:
    def test_passes_by_what_belongs_to_the_sentence(self) -> None:
        looked = CrossKeyValues(torch.ones(1), torch.ones(1))
        assert looked.cut(3).k is looked.k
        assert Layers(({"cross": looked},)).cut(3).blocks[0]["cross"] == looked

    def test_is_refused_by_a_state_that_cannot_rewind(self) -> None:
        with pytest.raises(StateError, match=r"^Beam cannot go back to 2 tokens; run them again from the start$"):
            Layers(({"mix": beam()},)).cut(2)


class TestTensorsAndBack:
    def start(self) -> Layers:
        return Layers(
            ({"mix": Drifting(Sum(torch.zeros(2, 3))), "cross": CrossKeyValues(), "feed": None}, {"mix": filled(0, 4)})
        )

    def full(self) -> Layers:
        """As after a few tokens."""
        drifting = Drifting(Sum(torch.randn(2, 3)), 5, torch.randn(2))
        looked = CrossKeyValues(torch.randn(1), torch.randn(1))
        return Layers(({"mix": drifting, "cross": looked, "feed": None}, {"mix": filled(2, 4)}))

    def test_every_tensor_and_number_has_a_dotted_name(self) -> None:
        assert list(self.full().flat()) == [
            "blocks.0.mix.inner.total",
            "blocks.0.mix.count",
            "blocks.0.mix.last",
            "blocks.0.cross.k",
            "blocks.0.cross.v",
            "blocks.1.mix.k",
            "blocks.1.mix.v",
            "blocks.1.mix.at.pos",
            "blocks.1.mix.at.facts",
        ]

    def test_room_to_grow_is_not_written(self) -> None:
        assert self.full().flat()["blocks.1.mix.k"].shape == (2, 1, 2, 1)
        assert filled(2, 9).flat("here")["here.v"].shape == (2, 1, 2, 1)

    @pytest.mark.parametrize("begun", [False, True], ids=["at the start", "after some tokens"])
    def test_a_fresh_state_is_filled(self, begun: bool) -> None:
        tensors = (self.full() if begun else self.start()).flat()
        back = self.start().load_flat(tensors)
        assert back.flat().keys() == tensors.keys()
        assert all(torch.equal(tensors[name], value) for name, value in back.flat().items())
        drifting, caches = back.blocks[0]["mix"], back.blocks[1]["mix"]
        assert isinstance(drifting, Drifting)
        assert drifting.count == (5 if begun else 0)
        assert (drifting.last is None) != begun
        assert isinstance(caches, KeyValues)
        caches.add(numbers(7, 1), -numbers(7, 1), caches.at.extend(Coords.span(1, caches.at.n)))
        assert keys(caches) == ([[0, 1, 7], [10, 11, 17]] if begun else [[7], [17]])

    def test_other_tensors_are_refused(self) -> None:
        tensors = self.full().flat()
        del tensors["blocks.1.mix.at.pos"], tensors["blocks.0.mix.inner.total"]
        tensors["blocks.2.mix.k"] = torch.ones(1)
        said = (
            r"^these are the tensors of another Layers: missing blocks.0.mix.inner.total, blocks.1.mix.at.pos; "
            r"unknown blocks.2.mix.k$"
        )
        with pytest.raises(StateError, match=said):
            self.start().load_flat(tensors)
        with pytest.raises(
            StateError, match=r"missing blocks.0.mix.count, blocks.0.mix.inner.total, .*; unknown nothing$"
        ):
            self.start().load_flat({})

    def test_what_is_no_tensor_is_refused(self) -> None:
        with pytest.raises(StateError, match=r"^blocks.0.mix.count is a str, which cannot be written as tensors$"):
            Layers(({"mix": dataclasses.replace(beam(), count="seven")},)).flat()  # type: ignore[arg-type]


def test_a_copy_is_not_consumed_with_the_original() -> None:
    state = Layers(({"mix": Drifting(Sum(torch.zeros(2)))}, {"mix": filled(2, 4)}))
    copied = state.copy()
    drifting, caches = (block["mix"] for block in state.blocks)
    assert isinstance(drifting, Drifting)
    assert isinstance(caches, KeyValues)
    drifting.inner.total, drifting.count = torch.ones(2), 4
    caches.cut(1).push(*(torch.full((2, 1, 1), -1.0, dtype=torch.double) for _ in "kv"), Coords.span(2))
    kept, room = (block["mix"] for block in copied.blocks)
    assert isinstance(kept, Drifting)
    assert isinstance(room, KeyValues)
    assert (kept.inner.total.tolist(), kept.count, room.at.n) == ([0, 0], 0, 2)
    assert torch.equal(room.k[:, :, :2], numbers(0, 2))
    assert room.k.stride() == caches.k.stride()  # time still comes first


def numbers(first: int, n: int, rows: int = 2) -> Tensor:
    """(rows, 1, n, 1): row r holds 10·r + position."""
    return (10 * torch.arange(rows).view(-1, 1) + torch.arange(first, first + n)).view(rows, 1, n, 1).double()


def filled(n: int, capacity: int, rows: int = 2) -> KeyValues:
    state = KeyValues.empty(torch.empty(0, dtype=torch.double), rows, 1, 1, capacity)
    state.add(numbers(0, n, rows), -numbers(0, n, rows), NOWHERE.extend(Coords.span(n)))
    return state


def keys(state: KeyValues) -> list[list[int]]:
    used = state.at.n
    assert torch.equal(state.k[:, :, :used], -state.v[:, :, :used])
    return state.k[:, 0, :used, 0].int().tolist()


class TestKeyValues:
    def test_start_empty_with_room(self) -> None:
        state = KeyValues.empty(torch.empty(0), 2, 3, 4, 5)
        assert state.k.shape == state.v.shape == (2, 3, 5, 4)
        assert state.at.n == 0

    @pytest.mark.parametrize("capacity", [0, 1, 2, 5, 9])
    def test_append_and_grow(self, capacity: int) -> None:
        state = filled(2, capacity)
        k, v = state.add(numbers(2, 3), -numbers(2, 3), state.at.extend(Coords.span(3, 2)))
        assert keys(state) == [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
        assert k.shape == v.shape == (2, 1, 5, 1)

    def test_append_in_place_while_there_is_room(self) -> None:
        state = filled(2, 8)
        before = state.k.data_ptr()
        state.add(numbers(2, 1), -numbers(2, 1), state.at.extend(Coords.span(1, 2)))
        assert state.k.data_ptr() == before

    def test_select_keeps_the_room(self) -> None:
        state = filled(2, 8)
        assert keys(state.select(torch.tensor([1, 1]))) == [[10, 11], [10, 11]]
        assert state.k.shape[2] == 8

    def test_two_buffers_take_turns(self) -> None:
        state, seen = filled(2, 8, rows=3), []
        for rows in ([2, 0, 1], [1, 1, 0], [0, 2], [1, 0], [0]):
            before = keys(state)
            assert keys(state.select(torch.tensor(rows))) == [before[r] for r in rows]
            seen.append((state.k.data_ptr(), state.v.data_ptr()))
        assert len(set(seen)) == 2
        assert seen[0] == seen[2] == seen[4]

    def test_one_token_a_row_is_pushed_as_it_is_added(self) -> None:
        for capacity in (2, 8):
            pushed, added = filled(2, capacity), filled(2, capacity)
            at = added.at.extend(Coords.span(1, 2))
            k, v = pushed.push(numbers(2, 1).squeeze(2), -numbers(2, 1).squeeze(2), at)
            wanted = added.add(numbers(2, 1), -numbers(2, 1), at)
            assert torch.equal(k, wanted[0])
            assert torch.equal(v, wanted[1])
            assert keys(pushed) == keys(added)

    def test_select_grows_shrinks_and_grows_again(self) -> None:
        state = filled(2, 3).select(torch.tensor([1, 0, 1]))
        assert keys(state) == [[10, 11], [0, 1], [10, 11]]
        assert keys(state.select(torch.tensor([1]))) == [[0, 1]]
        assert keys(state.select(torch.tensor([0, 0]))) == [[0, 1], [0, 1]]

    def test_select_follows_coordinates_of_its_own_rows(self) -> None:
        state = filled(3, 3)
        state.at = Coords.lengths([3, 1])
        assert state.select(torch.tensor([1, 0])).at.pos.tolist() == [[0, -1, -1], [0, 1, 2]]

    def test_cut_forgets_the_end_and_goes_on(self) -> None:
        state = filled(4, 8).cut(2)
        assert keys(state) == [[0, 1], [10, 11]]
        state.add(numbers(7, 1), -numbers(7, 1), state.at.extend(Coords.span(1, 2)))
        assert keys(state) == [[0, 1, 7], [10, 11, 17]]

    def test_cut_cannot_remember_more(self) -> None:
        with pytest.raises(StateError, match=r"^cannot keep 5 of 4 remembered tokens$"):
            filled(4, 8).cut(5)

    @pytest.mark.parametrize("grows", ["k", "v", "both"])
    def test_a_graph_keeps_its_tensors(self, grows: str) -> None:
        """Adding, choosing and cutting never write into what a backward pass still needs."""
        leaf = torch.ones((), dtype=torch.double, requires_grad=True)
        k, v = (numbers(0, 2) * leaf if grows in (name, "both") else numbers(0, 2) for name in "kv")
        state = KeyValues.empty(torch.empty(0, dtype=torch.double), 2, 1, 1, 8)
        total = torch.zeros((), dtype=torch.double)
        for step in range(3):
            a, b = state.add(k, v, state.at.extend(Coords.span(2, 2 * step)))
            total = total + (a.square() + b.square()).sum()  # squares need their input again
            state = state.select(torch.tensor([1, 1])).cut(2 * step + 1)
            with torch.no_grad():
                state.add(numbers(0, 1), numbers(0, 1), state.at.extend(Coords.span(1, 2 * step + 1)))
        total.backward()
        assert leaf.grad is not None
        assert leaf.grad > 0
