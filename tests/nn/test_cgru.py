"""CGRUs, the loop that stops each row at its length, relaxed sharing, dropout by length, and the output tape."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.decode import Request, Search, SpecialTokens, generate
from regard.errors import ShapeError, SpecError
from regard.families import extended_neural_gpu, neural_gpu
from regard.model.build import refusals
from regard.model.cost import cost
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import BodySpec, Stack
from regard.nn.blocks.cgru_loop import CgruLoop, CgruLoopBody, Relaxation, dropout_of
from regard.nn.blocks.columns import Columns
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.output_tape import OutputTape
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.nn.layers.cgru import drop_cells, open_gate
from regard.nn.mixers import Full
from tests.twins.active_memory import neural_gpu as flat_neural_gpu

pytestmark = pytest.mark.numeric

SPECIAL = SpecialTokens(bos=1, eos=2, pad=0)
SMALL: dict[str, Any] = dict(width=5, rows=3, vocab=11, dropout=0.0, length=20)
BOTH = {"neural_gpu": neural_gpu.spec(copies=2, **SMALL), "extended": extended_neural_gpu.spec(**SMALL)}
each = pytest.mark.parametrize("spec", BOTH.values(), ids=BOTH)


def body_of(net: Net) -> CgruLoopBody:
    assert isinstance(net.encoder, CgruLoopBody)
    return net.encoder


def test_gates_open_and_close_fully() -> None:
    x = torch.tensor([-9.0, 0.0, 9.0], requires_grad=True)
    assert open_gate(x).tolist() == [0.0, 0.5, 1.0]
    assert torch.autograd.grad(open_gate(x).sum(), x)[0][[0, 2]].tolist() == [0.0, 0.0]


def test_gates_start_open() -> None:
    net = BOTH["extended"].build(1)
    for side in (net.encoder, net.decoder):
        for cell in side.cells:  # type: ignore[union-attr]
            assert (cell.gates.bias == 1).all()
            assert (cell.candidate.bias == 0).all()


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_each_row_stops_at_its_own_length(left: bool) -> None:
    """Its grid does not change afterwards, whatever longer rows still do."""
    net = neural_gpu.spec(copies=1, **SMALL).build(1).double().eval()
    ids, lengths, tape = torch.randint(11, (3, 6)), [6, 2, 4], Tape("encoder.grid@*")
    net.encode(ids, Coords.lengths(lengths, left=left), tape)
    grids = [tape.kept[f"encoder.grid@{i}"] for i in range(6)]
    for row, n in enumerate(lengths):
        assert not torch.equal(grids[n - 1][row], grids[max(n - 2, 0)][row]) or n == 1
        for later in grids[n:]:
            assert torch.equal(later[row], grids[n - 1][row])
        assert not grids[-1][row, n:].any(), "there is nothing behind the last token"


def test_relaxed_sharing_uses_a_copy_for_each_step() -> None:
    """In training; the penalty is the spread of the copies. What runs is their mean, and so is what trains in the end."""
    spec = neural_gpu.spec(copies=3, pull_every=10, **SMALL)
    net, twin = spec.build(1).double().train(), partial(flat_neural_gpu, rows=3, depth=2)
    w, source, target = dict(net.named_parameters()), torch.randint(11, (7,)), torch.randint(11, (5,))

    def said(tape: Tape | None = None) -> Tensor:
        at = Coords.span(5), Coords.span(7)
        return net.logits(net(target[None], at[0], (source[None], at[1]), tape))[0]

    tape = Tape()
    net.before_step(1)
    torch.testing.assert_close(said(tape), twin(w, source, target, copies=3), rtol=0, atol=1e-10)
    kernels = [p for name, p in w.items() if name.startswith("encoder")]
    spread = sum(((p - p.mean(0)) ** 2).sum() for p in kernels)
    torch.testing.assert_close(tape.losses["relaxation"], 5e-4 * spread, rtol=1e-10, atol=0)
    mean = twin(w, source, target)
    net.before_step(100_000)
    tape = Tape()
    torch.testing.assert_close(said(tape), mean, rtol=0, atol=1e-10)
    assert not tape.losses
    net.before_step(1)
    net.eval()
    torch.testing.assert_close(said(), mean, rtol=0, atol=1e-10)


def test_the_penalty_grows_with_the_step() -> None:
    relaxation = Relaxation(6, pull=5e-4, growth=1.2, every=200)
    assert relaxation.pull_at(1) == relaxation.pull_at(200) == pytest.approx(5e-4)
    assert relaxation.pull_at(201) == pytest.approx(6e-4)
    turns = next(t for t in range(100) if 5e-4 * 1.2**t >= 0.1)
    assert relaxation.pull_at(200 * turns) == pytest.approx(5e-4 * 1.2 ** (turns - 1))
    assert relaxation.pull_at(200 * turns + 1) is None
    assert Relaxation(growth=1e6).pull_at(10**12) is None


def test_dropout_falls_with_the_length() -> None:
    lengths = torch.tensor([0, 1, 8, 16, 80])
    assert dropout_of(0.2, "length", lengths).tolist() == pytest.approx([0.2, 0.2, 0.2, 0.1, 0.02])  # type: ignore[union-attr]
    for n in (1, 8, 9, 36, 900):
        for rule in ("length", "sqrt_length"):
            both = dropout_of(0.2, rule, torch.tensor([n])), dropout_of(0.2, rule, n)  # type: ignore[arg-type]
            assert both[0].item() == pytest.approx(both[1])  # type: ignore[union-attr]
    assert dropout_of(0.2, "sqrt_length", 36) == pytest.approx(0.1)
    torch.manual_seed(0)
    dropped = drop_cells(torch.ones(3, 10, 40, 25), torch.tensor([0.0, 0.1, 0.5]))
    shares = (dropped == 0).flatten(1).double().mean(1)
    torch.testing.assert_close(shares, torch.tensor([0.0, 0.1, 0.5], dtype=torch.double), rtol=0, atol=0.02)
    torch.testing.assert_close(dropped.flatten(1).mean(1), torch.ones(3), rtol=0, atol=0.04)


@each
def test_dropout_acts_in_training_alone(spec: ModelSpec) -> None:
    net = spec.replace("encoder.dropout", 0.5).build(1)
    ids, at = torch.randint(11, (2, 9)), Coords.lengths([9, 4])
    with torch.no_grad():
        quiet = [net.eval().encode(ids, at).keys for _ in range(2)]
        torch.manual_seed(1)
        drawn = [net.train().encode(ids, at).keys for _ in range(2)]
        torch.manual_seed(1)
        again = net.encode(ids, at).keys
    assert torch.equal(*quiet)
    assert not torch.equal(*drawn)
    assert torch.equal(drawn[0], again)


def test_the_tape_goes_on_past_the_source() -> None:
    """Token by token it writes what it writes at once, with the symbols before written on the tape."""
    net = BOTH["extended"].build(1).double().eval()
    source, target, at = torch.randint(11, (2, 4)), torch.randint(11, (2, 7)), Coords.lengths([4, 2])
    with torch.no_grad():
        memory = net.encode(source, at)
        whole, _ = net.decode(target, Coords.span(7), memory)
        state, parts = net.start(2, 1), []
        for a, b in ((0, 1), (1, 2), (2, 6), (6, 7)):
            part, following = net.decode(target[:, a:b], Coords.span(b - a, a), memory, state)
            assert following is not None
            parts, state = [*parts, part], following
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
        other = target.clone()
        other[:, 5] = (other[:, 5] + 1) % 11
        after, _ = net.decode(other, Coords.span(7), memory)
    moved = (after - whole).abs().amax((0, 2)) > 1e-9
    assert moved.tolist() == [False] * 5 + [True] * 2


@each
def test_searches(spec: ModelSpec) -> None:
    """A beam of one sentence is that of a batch, and an ensemble of two equal models is the one."""
    net, sources = spec.build(1).double().eval(), [[4, 5, 6, 2], [7, 2], [3, 9, 8, 8, 5, 2]]
    for beam in (1, 3):
        search = Search(beam=beam, max_length=8)
        together = generate([net], Request(sources, search, SPECIAL))
        alone = [generate([net], Request([source], search, SPECIAL))[0] for source in sources]
        twice = generate([net, net], Request(sources, search, SPECIAL))
        for a, b, c in zip(together, alone, twice, strict=True):
            assert a[0].tokens == b[0].tokens == c[0].tokens
            assert a[0].log_prob == pytest.approx(b[0].log_prob, abs=1e-9)


@each
def test_costs(spec: ModelSpec) -> None:
    """n steps over n columns and all rows, per token."""
    net = spec.build()
    body = body_of(net)
    kernels = sum(cell.gates.weight[0].numel() + cell.candidate.weight[0].numel() for cell in body.cells)  # type: ignore[union-attr, index, operator]
    assert cost(body, 6).flops == 2 * 6 * 3 * kernels
    assert net.decoder is not None
    assert cost(net.decoder, 6).flops == (0 if isinstance(spec.decoder, Columns) else 2 * 2 * 6 * 3 * kernels)


@pytest.mark.parametrize(
    ("encoder", "decoder", "said"),
    [
        (
            CgruLoop(3), OutputTape(causal=True),
            None,
        ),
        (
            Stack(Block(mix=Full(1)), depth=1), Columns(),
            None,
        ),
        (None, Columns(), "decoder attends to an encoder, and there is none before it"),
        (None, OutputTape(), "decoder attends to an encoder, and there is none before it"),
        (CgruLoop(3, causal=True), Columns(), "body 'cgru_loop' cannot be causal (encoder)"),
    ],
)  # fmt: skip
def test_what_fits(encoder: BodySpec | None, decoder: BodySpec, said: str | None) -> None:
    found = refusals(ModelSpec(7, 12, Tokens(11), encoder, decoder, head=Vocab(False)))
    assert found == [] if said is None else said in found


def test_a_grid_of_other_cells_is_refused() -> None:
    spec = ModelSpec(6, 12, Tokens(11), CgruLoop(3), Columns(), source=Tokens(11, width=5), head=Vocab(False))
    for decoder in (Columns(), OutputTape()):
        said = "decoder reads a grid whose cells are 6 wide, and the encoder leaves 15; make it a multiple"
        assert said in refusals(spec.replace("decoder", decoder))


def test_too_many_cells() -> None:
    for make in (CgruLoop, OutputTape):
        with pytest.raises(SpecError, match=r"^depth is 501; a step may have at most 500 CGRUs$"):
            make(depth=501)


def test_packed_documents_are_refused() -> None:
    net = BOTH["neural_gpu"].build()
    with pytest.raises(ShapeError, match="body 'cgru_loop' in the encoder cannot keep packed documents apart"):
        net.encode(torch.zeros(1, 5, dtype=torch.long), Coords.documents([[3, 2]]))
