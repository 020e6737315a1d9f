from __future__ import annotations

import torch

from regard.nn.context import Context, Scratch, Tape
from regard.nn.coords import Coords


def test_a_tape_keeps_what_was_asked_for() -> None:
    tape = Tape("decoder.*.cross.weights", "encoder.blocks.0.mix.*")
    for name in ("decoder.blocks.3.cross.weights", "decoder.blocks.3.mix.weights", "encoder.blocks.0.mix.weights"):
        tape.keep(name, torch.ones(1))
    assert list(tape.kept) == ["decoder.blocks.3.cross.weights", "encoder.blocks.0.mix.weights"]


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


def test_scratch_computes_once() -> None:
    scratch, calls = Scratch(), []
    for _ in range(3):
        assert scratch.once("key", lambda: calls.append(1) or 5) == 5
    assert scratch.once("other", lambda: 6) == 6
    assert calls == [1]


def test_layers_that_remember_the_same_share_coordinates() -> None:
    ctx, before = Context(Coords.span(1, 3)), Coords.span(3)
    both = ctx.remembered(before)
    assert both is ctx.remembered(before)
    assert both.pos.tolist() == [[0, 1, 2, 3]]
