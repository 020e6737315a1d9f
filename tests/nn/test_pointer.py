"""A head that copies: against the paper's equations, step by step, with their gradients."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from random import Random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from regard.decode.fast_step import build_fast_decoder
from regard.engine.write_plan import find_refusal
from regard.errors import ShapeError, SpecError, StateError
from regard.families import bert, transformer
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.pointer import Pointer, PointerState
from regard.nn.core.context import Context, Memory, Tape
from regard.nn.core.coords import Coords
from tests.laws.examples import LENGTH, POINTERS, SMALL, VOCAB, describe, make_ids
from tests.twins import pointer_generator
from tests.verbs.calling import call

pytestmark = pytest.mark.numeric

each = pytest.mark.parametrize("head", POINTERS, ids=describe)
SOURCES, TARGETS = [[3, 5, 3, 7, 5, 3], [1, 9, 1], [4]], [[5, 3, 0, 2], [1, 8, 9], [2]]


def build(head: Pointer) -> Net:
    spec = dataclasses.replace(transformer.spec(**SMALL, length=LENGTH), head=head)
    net = spec.build(0).double()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for name, parameter in net.named_parameters():
            if name.startswith(("head", "embed")):
                parameter.normal_(std=0.6)
    return net


def padded(rows: list[list[int]], fill: int) -> Tensor:
    n = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (n - len(row))] for row in rows])


def twin(net: Net, head: Pointer, smoothing: float) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Loss with coverage, plain loss, and P of every pair, each read alone."""
    w = {name: p for name, p in net.head.named_parameters() if p is not None} | {"scale": torch.tensor(head.scale)}
    loss, plain, found = torch.zeros((), dtype=torch.double), torch.zeros((), dtype=torch.double), []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        at, given = Coords.span(len(target)), torch.tensor([[0, *target[:-1]]])
        memory = net.encode(torch.tensor([source]), Coords.span(len(source)))
        x = net.embed(given, at)
        assert net.decoder is not None
        states, _ = net.decoder(x, Context(at, memory=memory))
        p, costs = pointer_generator.write(
            w, net.embed.table, states[0], x[0], memory.keys[0], source, coverage=head.coverage is not None
        )
        loss = loss + F.nll_loss(p.log(), torch.tensor(target), reduction="sum") * (1 - smoothing)
        loss = loss - smoothing * p.log().mean(1).sum() + (head.coverage or 0) * costs.sum()
        plain = plain + F.nll_loss(p.log(), torch.tensor(target), reduction="sum")
        found.append(p)
    return loss, plain, found


@each
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_is_the_paper_step_by_step(head: Pointer, smoothing: float) -> None:
    """P of all tokens, the loss and every gradient, in a padded batch; the twin reads one pair at a time."""
    net = build(head)
    wanted, plain, each_p = twin(net, head, smoothing)
    wanted.backward()  # type: ignore[no-untyped-call]
    grads = {name: p.grad for name, p in net.named_parameters()}
    net.zero_grad()
    tape, at = Tape(), Coords.lengths([*map(len, TARGETS)])
    given, target = padded([[0, *t[:-1]] for t in TARGETS], 2), padded(TARGETS, -100)
    stream = net(given, at, (padded(SOURCES, 2), Coords.lengths([*map(len, SOURCES)])), tape)
    for row, p in zip(net.logits(stream), each_p, strict=True):
        torch.testing.assert_close(row[: len(p)].exp(), p, rtol=0, atol=1e-12)
    total, got = net.loss(stream, target, smoothing)
    total = total + sum(tape.losses.values()) * sum(map(len, TARGETS))
    torch.testing.assert_close(total, wanted, rtol=1e-12, atol=0)
    torch.testing.assert_close(got, plain.detach(), rtol=1e-12, atol=0)
    total.backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and grads[name] is not None
        torch.testing.assert_close(parameter.grad, grads[name], rtol=1e-9, atol=1e-11, msg=name)


@each
def test_probabilities_add_up_to_one(head: Pointer) -> None:
    net = build(head).eval()
    stream = net(make_ids(2, 4), Coords.span(4), (make_ids(2, 6), Coords.lengths([6, 0])))
    torch.testing.assert_close(net.logits(stream).exp().sum(-1), torch.ones(2, 4, dtype=torch.double))


def test_a_token_that_is_not_in_the_source_has_a_finite_gradient() -> None:
    net, stream = build(Pointer()), None
    stream = net(torch.tensor([[1, 1]]), Coords.span(2), (torch.tensor([[3, 4]]), Coords.span(2)))
    net.loss(stream, torch.tensor([[7, 8]]), 0.1)[0].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_bfloat16_keeps_the_ids() -> None:
    """An id above 256 is no bfloat16; the columns are float32."""
    spec = transformer.spec(**{**SMALL, "vocab": 1000}, length=LENGTH)
    net = dataclasses.replace(spec, head=Pointer()).build(0)
    source = torch.tensor([[777, 999]])
    with torch.autocast("cpu", torch.bfloat16):
        stream = net(torch.tensor([[1]]), Coords.span(1), (source, Coords.span(2)))
        assert stream.dtype == torch.float32 and stream[0, 0, -2:].tolist() == [777, 999]
        loss, _ = net.loss(stream, torch.tensor([[999]]), 0.1)
    loss.backward()
    half = net.bfloat16()(torch.tensor([[1]]), Coords.span(1), (source, Coords.span(2)))
    assert half[0, 0, -2:].tolist() == [777, 999] and net.logits(half).isfinite().all()


def test_places_on_the_tape() -> None:
    net, tape = build(Pointer()), Tape("head.*")
    net(make_ids(2, 4), Coords.span(4), (make_ids(2, 6), Coords.span(6)), tape)
    assert {name: tuple(t.shape) for name, t in tape.kept.items()} == {"head.copy": (2, 4, 6), "head.gate": (2, 4, 1)}


class TestRefusals:
    def spec(self, head: Pointer = Pointer(), **changes: object) -> ModelSpec:
        return dataclasses.replace(transformer.spec(**SMALL, length=LENGTH, **changes), head=head)  # type: ignore[arg-type]

    def test_a_model_with_one_side(self) -> None:
        with pytest.raises(
            SpecError, match=r"head 'pointer' copies from what an encoder reads, .* use head.kind: vocab"
        ):
            dataclasses.replace(bert.spec(**SMALL, length=LENGTH), head=Pointer()).build()

    def test_two_vocabularies(self) -> None:
        with pytest.raises(SpecError, match=r"both sides need one vocabulary; set data.joint_vocab: true"):
            self.spec(source_vocab=VOCAB).build()

    def test_beside_another_head(self) -> None:
        with pytest.raises(SpecError, match="head 'pointer' cannot stand beside another"):
            dataclasses.replace(self.spec(), head=Vocab(), beside=Pointer()).build()

    def test_a_memory_without_tokens(self) -> None:
        net, keys = build(Pointer()), torch.zeros(1, 2, 8, dtype=torch.double)
        with pytest.raises(
            StateError, match="head copies tokens of the source; give it the memory that `encode` returns"
        ):
            net.decode(make_ids(1, 2), Coords.span(2), Memory(keys, keys, Coords.span(2)))

    def test_odd_columns(self) -> None:
        with pytest.raises(ShapeError, match="head reads streams of width 8, or with the columns of a source, got 10"):
            build(Pointer()).logits(torch.zeros(1, 10, dtype=torch.double))

    def test_rows_that_no_sentence_has(self) -> None:
        net = build(Pointer())
        memory = net.encode(make_ids(2, 3), Coords.span(3))
        with pytest.raises(StateError, match=r"3 (hypotheses|rows)"):
            net.decode(make_ids(3, 1), Coords.span(1), memory)

    def test_a_state_that_has_read_nothing(self) -> None:
        with pytest.raises(StateError, match="PointerState has read nothing; read a token with each"):
            PointerState().join(PointerState())

    def test_coverage_cannot_be_undone(self) -> None:
        with pytest.raises(StateError, match="PointerState cannot go back to 1 tokens"):
            PointerState(torch.ones(1, 2, 3), torch.ones(1, 2)).cut(1)

    def test_the_native_engine(self) -> None:
        assert find_refusal(build(Pointer())) == "the native engine has no PointerHead"
        assert build_fast_decoder(build(Pointer()).eval()) is None


def test_weights_of_a_plain_head_are_kept() -> None:
    assert Pointer().shares(Vocab()) == Vocab().shares(Pointer()) == ("weight", "bias")
    assert Pointer(score="additive").shares(Pointer()) == ("weight", "bias")
    assert "cover" in Pointer(coverage=1.0).shares(Pointer()) and Vocab().shares(None) == ()


def make_pairs(rng: Random, winners: list[str], losers: list[str], count: int) -> list[tuple[str, str]]:
    """Reports of matches, and what a headline says of them."""
    days, verbs = ["today", "yesterday"], [("beat", "beats"), ("met", "meets")]
    out = []
    for _ in range(count):
        winner, loser, day, (past, now) = (rng.choice(choices) for choices in (winners, losers, days, verbs))
        out.append((f"{day} {winner} {past} {loser}", f"{winner} {now}"))
    return out


@pytest.mark.slow
def test_learns_to_copy_names_it_has_never_written(tmp_path: Path) -> None:
    """The tested names occur in no headline of the training data."""
    rng, names = Random(1), ["".join(letters) for letters in itertools.product("bdgkptfv", "aeiou", "lmnrs")]
    rng.shuffle(names)
    train, unseen = make_pairs(rng, names[:160], names, 800), make_pairs(rng, names[160:], names, 40)
    for name, pairs in (("train", train), ("valid", unseen)):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs))
    settings = {
        "model.width": 32, "model.depth": 1, "model.heads": 4, "model.hidden": 64, "model.dropout": 0.0,
        "data.tokenizer": "words", "data.metrics": ["exact"], "train.threads": 1, "train.precision": "float32",
        "train.steps": 150, "train.epochs": None, "train.batch_tokens": 400, "train.average": None,
        "train.label_smoothing": 0.0,
        "train.schedule": {"kind": "cosine", "lr": 0.01, "warmup": 10}, "train.validate_every": 150,
    }  # fmt: skip
    right = {}
    for head in ("vocab", "pointer"):
        model = regard.train(
            "translate", [str(tmp_path / "train.tsv")], valid=[str(tmp_path / "valid.tsv")],
            set={**settings, "model.head.kind": head}, out=tmp_path / head, quiet=True,
        )  # fmt: skip
        said = model.run([source for source, _ in unseen], beam=2)
        right[head] = sum(a == b for a, (_, b) in zip(said, unseen, strict=True))
    assert right["pointer"] >= 24 and right["vocab"] <= 2, right
    assert "the native engine has no PointerHead" in call("show", tmp_path / "pointer").out
