"""Language modelling: windows, loss, going on from a prompt, and a recipe that learns."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.data.batch import IGNORE, next_token_batch
from regard.data.ragged import Ragged
from regard.data.windows import Windows
from regard.decode import Search
from regard.decode.decode_request import Hypothesis
from regard.decode.greedy import choose_best
from regard.decode.sample import make_sampler
from regard.engine.torch_engine import TorchEngine
from regard.errors import DataError, SpecError
from regard.families import bert, gpt
from regard.model.net import Net
from regard.nn.blocks.head import Classes
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.tasks.common.text_corpus import Texts
from regard.tasks.lm import Lm, LmData
from regard.text import Bpe, Tokenizer

pytestmark = pytest.mark.numeric

TEXT = "the cat sat on the mat; the dog sat on the cat. " * 20


@pytest.fixture(scope="module")
def lm() -> Lm:
    settings = LmData(context=12)
    return Lm(settings, Tokenizer.train([TEXT], settings.tokenizer))


@pytest.fixture(scope="module")
def net(lm: Lm) -> object:
    return (
        gpt.spec(width=16, depth=2, heads=2, hidden=32, dropout=0.0, **lm.model_arguments())
        .build(seed=1)
        .double()
        .eval()
    )


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 8), st.integers(1, 8))
def test_windows_cover_every_token_that_follows_another(sizes: list[int], context: int, stride: int) -> None:
    stride = min(stride, context)
    if max(sizes) < 2:
        return
    texts = Ragged.of([list(range(100 * i, 100 * i + n)) for i, n in enumerate(sizes)])
    windows = Windows.of(texts, context=context, stride=stride)
    starts, lengths = windows.locate(np.arange(len(windows)))
    batch = next_token_batch(windows.ids, starts, lengths, pad=-5)
    pairs = set()
    for given_row, wanted_row, n in zip(batch.given.ids.tolist(), batch.wanted.tolist(), lengths, strict=True):
        assert n <= context
        assert wanted_row[n:] == [IGNORE] * (len(wanted_row) - n)
        assert given_row[n:] == [-5] * (len(given_row) - n)
        assert wanted_row[:n] == [g + 1 for g in given_row[:n]]  # what follows, and never of another text
        pairs |= set(given_row[:n])
    assert pairs == {100 * i + j for i, n in enumerate(sizes) for j in range(n - 1)}


def test_windows_without_overlap_ask_for_each_token_once() -> None:
    windows = Windows.of(Ragged.of([list(range(23))]), context=5, stride=5)
    starts, lengths = windows.locate(np.arange(5))
    assert lengths.tolist() == [5, 5, 5, 5, 2]
    assert starts.tolist() == [0, 5, 10, 15, 20]


@torch.no_grad()
def test_the_loss_is_that_of_the_next_token(lm: Lm, net: object) -> None:
    examples = lm.encode(Texts((TEXT,)))
    loss = lm.loss(net, lm.batch(examples, np.arange(3)), 0.0)  # type: ignore[arg-type]
    ids = torch.tensor(lm.tokenizer.encode(TEXT)[:37])
    total = 0.0
    for start in range(0, 36, 12):
        stream = net(ids[None, start : start + 12], Coords.span(12))  # type: ignore[operator]
        told = net.logits(stream)[0].log_softmax(-1)  # type: ignore[attr-defined]
        total -= float(told.gather(1, ids[start + 1 : start + 13, None]).sum())
    assert float(loss.plain) == pytest.approx(total, rel=1e-9)
    assert loss.tokens == 36


@torch.no_grad()
@pytest.mark.parametrize("sample", [False, True])
def test_going_on_is_recomputing_from_scratch(lm: Lm, net: object, sample: bool) -> None:
    """Prompts of different lengths in one batch, longer than the model has room for in all; drawn as well as greedily."""
    search = Search(beam=1, max_extra=40, repetition_guard=False, sample=sample)
    choose = make_sampler(search) if sample else choose_best
    prompts = ["the", "a", "", "the cat s"]
    found = lm.run(TorchEngine(net), prompts, search)  # type: ignore[list-item]
    for i, (prompt, (output,)) in enumerate(zip(prompts, found, strict=True)):
        ids = lm.tokenizer.encode(prompt)
        written: list[int] = []
        seen = ids or [lm.tokenizer.bos]
        while len(written) < search.max_extra:
            if len(seen) > 12:
                seen = (ids + written)[-6:]
            stream = net(torch.tensor([seen]), Coords.span(len(seen)))  # type: ignore[operator]
            logits = net.logits(stream)[0, -1].clone()  # type: ignore[attr-defined]
            logits[[lm.tokenizer.pad, lm.tokenizer.bos, lm.tokenizer.unk]] = -torch.inf
            token = int(choose(logits.log_softmax(-1).unsqueeze(0), torch.tensor([i]), len(written)))
            if token == lm.tokenizer.eos:
                break
            written.append(token)
            seen = [*seen, token]
        assert output.text == lm.tokenizer.decode(written)


def test_what_follows_does_not_depend_on_the_other_prompts(lm: Lm, net: Net) -> None:
    """Also where the model is full at different times."""
    prompts, search = ["the", "the cat sat on", "a dog"], Search(beam=2, max_extra=30, repetition_guard=False)
    together = lm.run(TorchEngine(net), prompts, search)
    assert [each[0].text for each in together] == [
        lm.run(TorchEngine(net), [prompt], search)[0][0].text for prompt in prompts
    ]
    assert all(len(lm.tokenizer.encode(each[0].text)) <= 30 for each in together)


def test_score_is_the_likelihood_of_what_follows(lm: Lm, net: object) -> None:
    whole, part = lm.score(TorchEngine(net), ["the ", "the c"], ["cat", "at"])  # type: ignore[arg-type]
    first = lm.score(TorchEngine(net), ["the "], ["c"])[0]  # type: ignore[arg-type]
    assert whole == pytest.approx(first + part, abs=1e-9)
    with pytest.raises(DataError, match="as many outputs as inputs are needed, got 1 for 2"):
        lm.score(TorchEngine(net), ["a", "b"], ["c"])  # type: ignore[arg-type]


def spaced() -> tuple[Lm, Net]:
    """A model whose tokenizer writes a space before every word."""
    task = Lm(LmData(context=32), Tokenizer.train([TEXT], Bpe(vocab=60)))
    return task, gpt.spec(width=16, depth=2, heads=2, hidden=32, dropout=0.0, **task.model_arguments()).build(
        seed=1
    ).double().eval()


def test_what_is_scored_must_fit(lm: Lm, net: Net) -> None:
    room = net.spec.room
    assert room is not None
    words = f"input 2 and its output have [0-9,]+ tokens, and the model reads {room}; shorten them"
    with pytest.raises(DataError, match=words):
        lm.score(TorchEngine(net), ["a", "b"], ["c", "c" * 1000])


def test_what_is_scored_is_the_text_that_was_asked_about() -> None:
    task, net = spaced()
    ids = [task.tokenizer.encode(text) for text in ("the cat", "the c at")]
    assert ids[0] != ids[1]
    whole, part, rest = task.score(TorchEngine(net), ["the", "the", "the cat"], [" cat sat", " cat", " sat"])
    assert whole == pytest.approx(part + rest)
    assert task.score(TorchEngine(net), ["the c"], ["at"]) == pytest.approx(
        task.score(TorchEngine(net), ["the"], [" cat"])
    )
    assert task.score(TorchEngine(net), ["the c"], [""]) == [0.0]


@pytest.mark.parametrize(("text", "output"), [("the", " cat"), ("the ", "cat"), ("", "the cat"), ("the cat", "")])
def test_an_output_stands_right_after_its_input(text: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a space comes between the two only both together tell."""
    task, net = spaced()
    read, whole = task.tokenizer.encode(text), task.tokenizer.encode(text + output)
    assert whole[: len(read)] == read

    def told(*_: object, **__: object) -> list[list[Hypothesis]]:
        return [[Hypothesis(tuple(whole[len(read) :]), 0.0, 0.0)]]

    monkeypatch.setattr(TorchEngine, "decode", told)
    ((found,),) = task.run(TorchEngine(net), [text], Search(beam=1, max_extra=12))
    assert found.text == output


def test_limits_and_what_cannot_be_asked_for(lm: Lm, net: Net) -> None:
    def length(**options: Any) -> int:
        return len(lm.run(TorchEngine(net), ["the"], Search(beam=1, **options))[0][0].text)

    assert length(max_extra=0) == 0
    assert length(max_extra=40, max_length=5) == length(max_extra=5) == 5
    with pytest.raises(
        SpecError, match="a language model gives one continuation, got n_best=2; for others, use sample"
    ):
        lm.run(TorchEngine(net), ["the"], Search(beam=2, n_best=2))


DOCUMENTS = ("the cat sat", "a dog", "the mat; the dog", "on", "the cat sat on the mat; the dog sat")


@pytest.fixture(scope="module")
def packed() -> tuple[Lm, Net]:
    settings = LmData(context=16, documents="line")
    task = Lm(settings, Tokenizer.train([TEXT], settings.tokenizer))
    net = (
        gpt.spec(width=16, depth=2, heads=2, hidden=32, dropout=0.0, **task.model_arguments())
        .build(seed=1)
        .double()
        .eval()
    )
    return task, net


def test_documents_share_rows_and_none_sees_another(packed: tuple[Lm, Net]) -> None:
    """By gradients: what a token's prediction depends on is its own document up to itself, whatever else is in the row."""
    task, net = packed
    rows = task.encode(Texts(DOCUMENTS))
    batch = task.batch(rows, np.arange(len(rows)))
    assert batch.given.documents is not None
    assert max(map(len, batch.given.documents)) > 1, "some row holds several"
    at = Coords.documents(batch.given.documents)
    assert at.doc is not None
    read = net.embed(batch.given.ids, at).detach().requires_grad_()
    assert net.decoder is not None
    stream, _ = net.decoder(read, Context(at))
    for r in range(at.rows):
        for t in range(at.n):
            (slope,) = torch.autograd.grad(stream[r, t, 0], read, retain_graph=True)
            touched = slope.abs().sum(-1) > 0
            own = (at.doc[r] == at.doc[r, t]) & (torch.arange(at.n) <= t) & at.kept[r]
            if at.kept[r, t]:
                assert torch.equal(touched[r], own)
            assert not touched[[i for i in range(at.rows) if i != r]].any()


@torch.no_grad()
def test_packed_documents_have_the_loss_they_have_alone(packed: tuple[Lm, Net]) -> None:
    task, net = packed
    alone = Lm(dataclasses.replace(task.settings, pack=False), task.tokenizer)
    raw = Texts(DOCUMENTS)
    together, apart = task.encode(raw), alone.encode(raw)
    assert len(together) < len(apart)
    one, other = (
        t.loss(net, t.batch(rows, np.arange(len(rows))), 0.0) for t, rows in ((task, together), (alone, apart))
    )
    assert float(one.plain) == pytest.approx(float(other.plain), rel=1e-12)
    assert one.tokens == other.tokens == sum(len(text) + 1 for text in DOCUMENTS)


def test_documents_begin_and_end_with_their_marks(packed: tuple[Lm, Net]) -> None:
    task, net = packed
    rows = task.encode(Texts(("on",)))
    batch = task.batch(rows, np.arange(1))
    assert batch.given.ids.tolist() == [[task.tokenizer.bos, *task.tokenizer.encode("on")]]
    assert batch.wanted.tolist() == [[*task.tokenizer.encode("on"), task.tokenizer.eos]]
    whole, part = task.score(TorchEngine(net), ["", "t"], ["the", "he"])
    assert whole == pytest.approx(task.score(TorchEngine(net), [""], ["t"])[0] + part, abs=1e-9)
    assert task.forward_pass(net, "on", "").attention(net)[1] == ["<s>", "o", "n"]


def test_a_text_too_short_and_no_text_at_all(lm: Lm, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no training data; name a text file"):
        Lm.read(LmData(), 1)
    (tmp_path / "one.txt").write_text("a")
    with pytest.raises(DataError, match="at least two tokens"):
        lm.encode(Lm.read_test(lm.settings, [str(tmp_path / "one.txt")]))


@pytest.mark.slow
def test_a_model_that_reads_or_tells_apart_does_not_go_on(lm: Lm) -> None:
    spec = gpt.spec(width=16, depth=1, heads=2, vocab=9, length=16)
    assert lm.adapt_spec(spec) == spec
    for other in (
        bert.spec(width=16, depth=1, heads=2, vocab=9, length=16),
        dataclasses.replace(spec, head=Classes(2)),
    ):
        with pytest.raises(
            SpecError, match=r"language modeling needs a model with a decoder alone and a head over tokens; use"
        ):
            lm.adapt_spec(other)


def test_the_recipe_learns_a_text_by_heart(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    changes = {"train.steps": 150, "model.width": 32, "model.depth": 2, "data.context": 24, "train.log_every": 50}
    changes |= {"train.schedule.lr": 5e-3, "train.schedule.warmup": 10, "train.threads": 1}
    model = regard.train("gpt", [str(path)], out=tmp_path / "run", set=changes, quiet=True)
    assert model.run(["the cat sat on"], sample=False, beam=1, max_extra=8) == [" the mat"]
    assert model.attention("the cat")["decoder.blocks.0.mix"].shape[0] == 4
