"""Language modelling: windows, loss, going on from a prompt, and a recipe that learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.data.batch import IGNORE, next_tokens
from regard.data.ragged import Ragged
from regard.data.windows import Windows
from regard.decode import Search
from regard.errors import DataError
from regard.families import gpt
from regard.nn.coords import Coords
from regard.tasks.lm import Lm, LmData
from regard.text import Tokenizer

TEXT = "the cat sat on the mat; the dog sat on the cat. " * 20


@pytest.fixture(scope="module")
def lm() -> Lm:
    settings = LmData(context=12)
    return Lm(settings, Tokenizer.train([TEXT], settings.tokenizer))


@pytest.fixture(scope="module")
def net(lm: Lm) -> object:
    return gpt.spec(width=16, depth=2, heads=2, hidden=32, dropout=0.0, **lm.facts()).build(seed=1).double().eval()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 8), st.integers(1, 8))
def test_windows_cover_every_token_that_follows_another(sizes: list[int], context: int, stride: int) -> None:
    stride = min(stride, context)
    if max(sizes) < 2:
        return
    texts = Ragged.of([list(range(100 * i, 100 * i + n)) for i, n in enumerate(sizes)])
    windows = Windows.of(texts, context=context, stride=stride)
    batch = next_tokens(windows.ids, windows.starts, windows.lengths, pad=-5)
    pairs = set()
    for given_row, wanted_row, n in zip(batch.given.ids.tolist(), batch.wanted.tolist(), windows.lengths, strict=True):
        assert n <= context
        assert wanted_row[n:] == [IGNORE] * (len(wanted_row) - n)
        assert given_row[n:] == [-5] * (len(given_row) - n)
        assert wanted_row[:n] == [g + 1 for g in given_row[:n]]  # what follows, and never of another text
        pairs |= set(given_row[:n])
    assert pairs == {100 * i + j for i, n in enumerate(sizes) for j in range(n - 1)}


def test_windows_without_overlap_ask_for_each_token_once() -> None:
    windows = Windows.of(Ragged.of([list(range(23))]), context=5, stride=5)
    assert windows.lengths.tolist() == [5, 5, 5, 5, 2]
    assert windows.starts.tolist() == [0, 5, 10, 15, 20]


@torch.no_grad()
def test_the_loss_is_that_of_the_next_token(lm: Lm, net: object) -> None:
    examples = Windows.of(
        Ragged.of(lm.target.encode_all([TEXT])), context=12, stride=12
    )  # fmt: skip
    loss = lm.loss(net, lm.batch(examples, np.arange(3)), 0.0)  # type: ignore[arg-type]
    ids = torch.tensor(lm.target.encode(TEXT)[:37])
    total = 0.0
    for start in range(0, 36, 12):
        stream = net(ids[None, start : start + 12], Coords.span(12))  # type: ignore[operator]
        told = net.logits(stream)[0].log_softmax(-1)  # type: ignore[attr-defined]
        total -= float(told.gather(1, ids[start + 1 : start + 13, None]).sum())
    assert float(loss.plain) == pytest.approx(total, rel=1e-9)
    assert loss.tokens == 36


@torch.no_grad()
def test_going_on_greedily_is_recomputing_from_scratch(lm: Lm, net: object) -> None:
    """Prompts of different lengths in one batch, longer than the model has room for in all."""
    search = Search(beam=1, extra=9, guard=False)
    prompts = ["the", "a", "", "the cat s"]
    found = lm.run([net], prompts, search)  # type: ignore[list-item]
    for prompt, (output,) in zip(prompts, found, strict=True):
        ids = lm.target.encode(prompt)
        written: list[int] = []
        seen = ids or [lm.target.bos]
        while len(written) < search.extra:
            if len(seen) > 12:
                seen = (ids + written)[-6:]
            stream = net(torch.tensor([seen]), Coords.span(len(seen)))  # type: ignore[operator]
            logits = net.logits(stream)[0, -1].clone()  # type: ignore[attr-defined]
            logits[[lm.target.pad, lm.target.bos, lm.target.unk]] = -torch.inf
            token = int(logits.argmax())
            if token == lm.target.eos:
                break
            written.append(token)
            seen = [*seen, token]
        assert output.text == lm.target.decode(written)


def test_score_is_the_likelihood_of_what_follows(lm: Lm, net: object) -> None:
    whole, part = lm.score(net, ["the ", "the c"], ["cat", "at"])  # type: ignore[arg-type]
    first = lm.score(net, ["the "], ["c"])[0]  # type: ignore[arg-type]
    assert whole == pytest.approx(first + part, abs=1e-9)
    with pytest.raises(DataError, match="as many outputs as inputs are needed, got 1 for 2"):
        lm.score(net, ["a", "b"], ["c"])  # type: ignore[arg-type]


def test_a_text_too_short_and_no_text_at_all(lm: Lm, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is nothing to learn from; name a text file"):
        Lm.read(LmData(), 1)
    (tmp_path / "one.txt").write_text("a")
    with pytest.raises(DataError, match="at least two tokens"):
        lm.encode(Lm.gather(lm.settings, [str(tmp_path / "one.txt")]))


@pytest.mark.slow
def test_the_recipe_learns_a_text_by_heart(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    changes = {"train.steps": 150, "model.width": 32, "model.depth": 2, "data.context": 24, "train.log_every": 50}
    changes |= {"train.schedule.peak": 5e-3, "train.schedule.warmup": 10, "train.threads": 1}
    model = regard.train("gpt", [str(path)], out=tmp_path / "run", set=changes, quiet=True)
    assert model.run(["the cat sat on"], sample=False, beam=1, extra=8) == [" the mat"]
    assert model.attention("the cat")["decoder.blocks.0.mix"].shape[0] == 4
