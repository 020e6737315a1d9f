from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.nn.core.context import Context, Memory, Scratch, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.positions.position import ALiBi

pytestmark = pytest.mark.numeric


def test_a_tape_keeps_what_was_asked_for() -> None:
    tape = Tape("decoder.*.cross.weights", "encoder.blocks.0.mix.*")
    for name in ("decoder.blocks.3.cross.weights", "decoder.blocks.3.mix.weights", "encoder.blocks.0.mix.weights"):
        tape.keep(name, torch.ones(1))
    assert list(tape.kept) == ["decoder.blocks.3.cross.weights", "encoder.blocks.0.mix.weights"]


def test_of_weights_a_tape_keeps_the_rows_and_heads_it_chose() -> None:
    tape, weights = Tape("*", rows=[2, 0], heads=[1]), torch.rand(2, 3, 4, 5)
    tape.keep("mix.weights", weights)
    tape.keep("mix.keys", weights)
    assert torch.equal(tape.kept["mix.weights"], weights[:, [1]][:, :, [2, 0]])
    assert tape.kept["mix.keys"].shape == (2, 3, 4, 5)
    tape.for_iteration(0).keep("mix.weights", weights[:, [1]][:, :, [2, 0]], chosen=True)
    assert torch.equal(tape.kept["mix.weights@0"], tape.kept["mix.weights"])


def test_a_tape_nobody_reads_keeps_losses_alone() -> None:
    tape = Tape()
    tape.keep("a", torch.ones(1))
    tape.plan("a", "fused")
    tape.loss("a", torch.ones(1))
    assert (tape.kept, tape.plans, list(tape.losses)) == ({}, {}, ["a"])


def test_what_is_kept_holds_no_graph() -> None:
    tape = Tape("*")
    x = torch.ones(1, requires_grad=True)
    tape.keep("a", x * 2)
    tape.loss("a", x * 2)
    assert not tape.kept["a"].requires_grad
    assert tape.losses["a"].requires_grad


def test_losses_of_one_name_add_up() -> None:
    tape = Tape()
    for value in (1.0, 2.0, 4.0):
        tape.loss("a", torch.tensor(value, requires_grad=True))
    assert tape.losses["a"].item() == 7
    assert tape.losses["a"].requires_grad


def test_turns_of_a_loop_are_kept_apart_and_their_losses_together() -> None:
    tape = Tape("block.mix.weights@[02]", "*.plan*")
    for i in range(3):
        turn = tape.for_iteration(i)
        turn.keep("block.mix.weights", torch.tensor(i))
        turn.plan("block.mix", f"turn {i}")
        turn.loss("block.mix", torch.tensor(1))
    assert tape.kept == {"block.mix.weights@0": torch.tensor(0), "block.mix.weights@2": torch.tensor(2)}
    assert tape.plans == {f"block.mix@{i}": f"turn {i}" for i in range(3)}
    assert tape.losses == {"block.mix": torch.tensor(3)}
    assert tape.for_iteration(1).for_iteration(2).wants("a.plan")  # loops inside loops
    tape.keep("block.mix.weights@0", torch.tensor(5))
    assert tape.kept["block.mix.weights@0"] == 5


def test_a_muted_tape_wants_the_same_and_passes_nothing_on() -> None:
    tape = Tape("*.weights")
    tape.loss("a", torch.ones(1))
    mute = tape.mute()
    assert mute.wants("mix.weights")
    mute.keep("mix.weights", torch.ones(1))
    mute.plan("mix", "plain")
    mute.loss("a", torch.ones(1))
    assert (tape.kept, tape.plans, tape.losses) == ({}, {}, {"a": torch.ones(1)})


def test_scratch_computes_once() -> None:
    scratch, calls = Scratch(), []
    for _ in range(3):
        assert scratch.once("key", lambda: calls.append(1) or 5) == 5
    assert scratch.once("other", lambda: 6) == 6
    assert calls == [1]


def test_layers_that_remember_the_same_share_coordinates() -> None:
    ctx, before = Context(Coords.span(1, 3)), Coords.span(3)
    both = ctx.extend_coords(before)
    assert both is ctx.extend_coords(before)
    assert both.pos.tolist() == [[0, 1, 2, 3]]


def test_a_copied_scratch_knows_what_was_known() -> None:
    scratch = Scratch()
    scratch.once("before", lambda: 1)
    copied = scratch.copy()
    scratch.once("after", lambda: 2)
    assert copied.once("before", lambda: 3) == 1
    assert copied.once("after", lambda: 3) == 3
    assert scratch.once("after", lambda: 4) == 2


def test_a_memory_of_fewer_sentences() -> None:
    keys = torch.arange(6.0).view(3, 2, 1)
    memory = Memory(keys, keys, Coords.lengths([2, 1, 2])).select(torch.tensor([1, 2]))
    assert memory.keys is memory.values
    assert memory.keys.flatten().tolist() == [2, 3, 4, 5]
    assert memory.at.pos.tolist() == [[0, -1], [0, 1]]
    apart = Memory(keys, -keys, Coords.span(2)).select(torch.tensor([0]))
    assert (apart.keys.flatten().tolist(), apart.values.flatten().tolist()) == ([0, 1], [0, -1])


def test_running_again_with_other_tensors_says_nothing_and_finds_nothing() -> None:
    position = ALiBi().build(Site("", 4, 4, heads=2))
    part, tape = torch.nn.Linear(1, 1), Tape("*")
    first, keys, values = (torch.full((1, 1, 4), float(i)) for i in range(3))
    ctx = Context(Coords.span(1), Memory(keys, values, Coords.span(1)), position, first, {"part": part}, tape)
    ctx.once("a", lambda: 1)
    assert ctx.tensors() == (first, keys, values)
    assert ctx.parts() == (position, part)
    same = ctx.for_rerun(ctx.scratch.copy())
    assert same.tensors() == ctx.tensors()
    assert same.once("a", lambda: 2) == 1
    others = [t + 10 for t in ctx.tensors()]
    again = ctx.for_rerun(Scratch(), others)
    assert list(again.tensors()) == others
    assert again.once("a", lambda: 2) == 2
    again.tape.loss("a", torch.ones(1))
    again.tape.keep("a", torch.ones(1))
    assert (tape.losses, tape.kept) == ({}, {})
    assert (again.at, again.position, again.shared) == (ctx.at, ctx.position, ctx.shared)


def test_a_context_of_little_has_few_tensors() -> None:
    ctx = Context(Coords.span(1))
    assert (ctx.tensors(), ctx.parts()) == ((), ())
    again = ctx.for_rerun(Scratch())
    assert (again.first, again.memory) == (None, None)


def test_a_second_run_repeats_the_choices_of_the_first() -> None:
    """Where nobody will run again, nothing is written down."""
    made: list[int] = []

    def choose(ctx: Context) -> float:
        made.append(len(made))
        return ctx.choose("mix.buckets", lambda: torch.tensor(float(made[-1]))).item()

    ctx = Context(Coords.span(2))
    assert [choose(ctx), choose(ctx)] == [0, 1]
    first = dataclasses.replace(ctx, choices={})
    assert [choose(first), choose(first.for_rerun(Scratch())), choose(ctx)] == [2, 2, 4]
