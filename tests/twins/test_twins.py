"""The composed models against flat ones written by hand: outputs and gradients, with padding and token by token."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.families import (
    bytenet,
    convs2s,
    extended_neural_gpu,
    gpt,
    gru,
    lstm,
    memn2n,
    neural_gpu,
    sasrec,
    transformer,
)
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.core.coords import Coords
from tests.twins import active_memory
from tests.twins import convolutional as flat_convolutional
from tests.twins import gpt as flat_gpt
from tests.twins import memn2n as flat_memn2n
from tests.twins import recurrent as flat_recurrent
from tests.twins import sasrec as flat_sasrec
from tests.twins import transformer as flat_transformer

pytestmark = pytest.mark.numeric

GPT = gpt.spec(width=12, depth=3, heads=3, vocab=17, length=10)
TRANSFORMER = transformer.spec(width=12, depth=2, heads=3, vocab=17, length=10)
CLOSE = {"rtol": 0.0, "atol": 1e-11}


def random_net(spec: ModelSpec) -> tuple[Net, dict[str, Tensor]]:
    net = spec.build(0).double().eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.normal_(std=0.4).add_(1.0 if name.endswith("norm.weight") else 0.0)
    return net, dict(net.named_parameters())


def test_gpt() -> None:
    net, w = random_net(GPT)
    lengths = [9, 4, 1]
    ids = torch.randint(17, (3, 9))
    mine = net.logits(net(ids, Coords.lengths(lengths)))
    flat = [flat_gpt.gpt(w, row[:n], depth=3, heads=3) for row, n in zip(ids, lengths, strict=True)]
    for row, n, wanted in zip(mine, lengths, flat, strict=True):
        torch.testing.assert_close(row[:n], wanted, **CLOSE)
    pull = torch.randn_like(mine)
    ours = sum((row[:n] * p[:n]).sum() for row, n, p in zip(mine, lengths, pull, strict=True))
    theirs = sum((row * p[: len(row)]).sum() for row, p in zip(flat, pull, strict=True))
    same_gradients(w, ours, theirs)  # type: ignore[arg-type]


def test_sasrec() -> None:
    """The scores, eq. 7 and its gradients, of users whose newest items stand at one position. The paper has no W^O."""
    net, w = random_net(sasrec.spec(width=12, depth=2, vocab=17, length=10, dropout=0.0))
    with torch.no_grad():
        for layer in range(2):
            w[f"decoder.blocks.{layer}.mix.out.weight"].copy_(torch.eye(12))
            w[f"decoder.blocks.{layer}.mix.out.bias"].zero_()
    lengths = [9, 4, 1]
    ids, negatives = torch.randint(1, 17, (3, 10)), torch.randint(1, 17, (3, 9))
    stream = net(ids[:, :-1], Coords.ending(lengths, 10))
    mine, ours = net.logits(stream), torch.zeros((), dtype=torch.double)
    scores = net.score(stream, torch.stack([ids[:, 1:], negatives], -1))
    theirs = torch.zeros((), dtype=torch.double)
    for i, n in enumerate(lengths):
        flat = flat_sasrec.sasrec(w, ids[i, :n].tolist(), depth=2, length=10)
        torch.testing.assert_close(mine[i, :n], flat, **CLOSE)
        theirs = theirs + flat_sasrec.loss(flat, ids[i, 1 : n + 1].tolist(), negatives[i, :n].tolist())
        right, wrong = scores[i, :n].unbind(-1)
        ours = ours + torch.nn.functional.softplus(-right).sum() + torch.nn.functional.softplus(wrong).sum()
    torch.testing.assert_close(ours, theirs, **CLOSE)
    same_gradients({name: p for name, p in w.items() if ".mix.out." not in name}, ours, theirs)


def test_gpt_token_by_token() -> None:
    net, w = random_net(GPT)
    ids = torch.randint(17, (1, 9))
    wanted = flat_gpt.gpt(w, ids[0], depth=3, heads=3)
    state = net.start(1, 2)
    with torch.no_grad():
        for t in range(9):
            stream, following = net.decode(ids[:, t : t + 1], Coords.span(1, t), state=state)
            assert following is not None
            state = following
            torch.testing.assert_close(net.logits(stream)[0, 0], wanted[t], **CLOSE)


def test_transformer() -> None:
    net, w = random_net(TRANSFORMER)
    lengths = [(7, 5), (2, 6), (4, 1)]
    source, target = torch.randint(17, (3, 7)), torch.randint(17, (3, 6))
    at = Coords.lengths([m for m, _ in lengths]), Coords.lengths([n for _, n in lengths])
    mine = net.logits(net(target, at[1], (source, at[0])))
    flat = [
        flat_transformer.transformer(w, s[:m], t[:n], depth=2, heads=3)
        for s, t, (m, n) in zip(source, target, lengths, strict=True)
    ]
    for row, (_, n), wanted in zip(mine, lengths, flat, strict=True):
        torch.testing.assert_close(row[:n], wanted, **CLOSE)
    pull = torch.randn_like(mine)
    ours = sum((row[:n] * p[:n]).sum() for row, (_, n), p in zip(mine, lengths, pull, strict=True))
    theirs = sum((row * p[: len(row)]).sum() for row, p in zip(flat, pull, strict=True))
    same_gradients(w, ours, theirs)  # type: ignore[arg-type]


SEQ2SEQ: dict[str, Any] = dict(width=6, embedding=5, vocab=17, length=10, dropout=0.0)


@pytest.mark.parametrize(
    ("spec", "flat"),
    [
        (lstm.spec(**SEQ2SEQ, depth=2), partial(flat_recurrent.sutskever, depth=2, width=6)),
        *(
            (
                lstm.spec(**SEQ2SEQ, depth=2, attention=score, input_feeding=feeding),
                partial(flat_recurrent.luong, depth=2, width=6, score=score, feeding=feeding),
            )
            for score, feeding in (("dot", True), ("general", True), ("concat", True), ("general", False))
        ),
        (
            lstm.spec(**SEQ2SEQ, depth=2, attention="additive", bidirectional=True),
            partial(flat_recurrent.additive_both_ways, depth=2, width=6),
        ),
        (gru.spec("gru-multi30k", **SEQ2SEQ), partial(flat_recurrent.cho, width=6)),
        (gru.spec(**SEQ2SEQ), partial(flat_recurrent.bahdanau, width=6, maxout=False)),
        (gru.spec("rnnsearch", **SEQ2SEQ), partial(flat_recurrent.bahdanau, width=6, maxout=True)),
        (
            convs2s.spec(widths=(6, 6, 4), kernels=(3, 2, 1), embedding=5, out=4, vocab=17, length=10, dropout=0.0),
            partial(flat_convolutional.convs2s, kernels=(3, 2, 1)),
        ),
        *(
            (
                bytenet.spec(width=3, depth=3, max_dilation=2, kernel=3, unit=unit, vocab=17, length=10, dropout=0.0),
                partial(flat_convolutional.bytenet, dilations=(1, 2, 1), kernel=3, unit=unit),
            )
            for unit in ("relu", "multiplicative")
        ),
        (
            neural_gpu.spec(width=4, rows=2, copies=2, vocab=17, length=10, dropout=0.0),
            partial(active_memory.neural_gpu, rows=2, depth=2),
        ),
        *(
            (
                extended_neural_gpu.spec(width=4, rows=3, depth=1, copies=copies, vocab=17, length=10, dropout=0.0),
                partial(active_memory.extended_neural_gpu, rows=3, depth=1),
            )
            for copies in (1, 2)
        ),
    ],
    ids=[
        "sutskever",
        "luong dot",
        "luong general",
        "luong concat",
        "luong without feeding",
        "as advised",
        "cho",
        "bahdanau",
        "rnnsearch",
        "convs2s",
        "bytenet",
        "bytenet multiplicative",
        "neural gpu",
        "extended neural gpu",
        "extended neural gpu, copies",
    ],
)
def test_predecessors(spec: ModelSpec, flat: Callable[..., Tensor]) -> None:
    net, w = random_net(spec)
    lengths = [(7, 5), (2, 6), (4, 1)]
    source, target = torch.randint(17, (3, 7)), torch.randint(17, (3, 6))
    at = Coords.lengths([m for m, _ in lengths]), Coords.lengths([n for _, n in lengths])
    mine = net.logits(net(target, at[1], (source, at[0])))
    theirs = [flat(w, s[:m], t[:n]) for s, t, (m, n) in zip(source, target, lengths, strict=True)]
    for row, (_, n), wanted in zip(mine, lengths, theirs, strict=True):
        torch.testing.assert_close(row[:n], wanted, **CLOSE)
    pull = torch.randn_like(mine)
    ours = sum((row[:n] * p[:n]).sum() for row, (_, n), p in zip(mine, lengths, pull, strict=True))
    others = sum((row * p[: len(row)]).sum() for row, p in zip(theirs, pull, strict=True))
    same_gradients(w, ours, others)  # type: ignore[arg-type]


@pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
@pytest.mark.parametrize("empty_slots", [True, False])
@pytest.mark.parametrize(("encoding", "linear"), [("bag", False), ("position", False), ("centered", True)])
def test_memory_network(tying: Any, encoding: Any, linear: bool, empty_slots: bool) -> None:
    """With padded words and sentences; one story is empty. Linear start holds for its steps, and only in training."""
    shape: dict[str, Any] = {"width": 5, "hops": 2, "tying": tying, "encoding": encoding}
    spec = memn2n.spec(vocab=17, memory=6, linear_start=3 if linear else 0, empty_slots=empty_slots, **shape)
    net, w = random_net(spec)
    lengths = [7, 4, 1]
    ids = torch.randint(1, 17, (3, 7, 4)) * (torch.arange(4) < torch.randint(1, 5, (3, 7, 1)))
    at = Coords.lengths(lengths)
    for step in (3, 4):
        net.train().before_step(step)
        mine = net.logits(net(ids, at)[:, 0])
        theirs = [
            flat_memn2n.memn2n(w, row[:n].tolist(), linear=linear and step == 3, slots=6 * empty_slots, **shape)
            for row, n in zip(ids, lengths, strict=True)
        ]
        torch.testing.assert_close(mine, torch.stack(theirs), **CLOSE)
        pull = torch.randn_like(mine)
        same_gradients(w, (mine * pull).sum(), (torch.stack(theirs) * pull).sum())
    net.before_step(1)
    torch.testing.assert_close(net.eval().logits(net(ids, at)[:, 0]), mine, **CLOSE)


def same_gradients(w: dict[str, Tensor], ours: Tensor, theirs: Tensor) -> None:
    """Of every parameter; one that the flat model does not read is an error here."""
    pairs = zip(*(torch.autograd.grad(x, list(w.values()), retain_graph=True) for x in (ours, theirs)), strict=True)
    for name, (a, b) in zip(w, pairs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")
