"""Span corruption as a task: batches for an encoder-decoder, filling in marks, and that it learns."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.batch import IGNORE
from regard.data.span_corruption import restore
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import CheckpointError, DataError, SpecError
from regard.families import t5
from regard.model.net import Net
from regard.tasks.common.fill_mask import find_fills
from regard.tasks.common.task import Dataset, RunOptions
from regard.tasks.common.text_corpus import Texts
from regard.tasks.span import Span, SpanData
from regard.text import Bpe, Chars, Tokenizer

pytestmark = pytest.mark.numeric

PLAY = [
    "the cat sat on the mat. the dog saw the cat. the cat saw the dog, and ran.",
    "a man went to the market. he bought a fish. the fish was old.",
    "it rained for a day. the mat was wet. the man was wet, and the dog ran.",
]
SMALL: dict[str, Any] = dict(width=16, depth=1, heads=2, head_width=8, hidden=32, dropout=0.0)


def made(**settings: Any) -> Span:
    settings = {"tokenizer": Bpe(vocab=90), "max_length": 20, "sentinels": 8, **settings}
    return Span.prepare(SpanData(**settings), Dataset(Texts(tuple(PLAY), training=True), Texts(tuple(PLAY)), "", {}))


@pytest.fixture(scope="module")
def task() -> Span:
    return made()


@pytest.fixture(scope="module")
def net(task: Span) -> Net:
    return t5.spec(**SMALL, **task.model_arguments()).build(1).eval()


def test_a_mark_is_no_unknown_text(task: Span) -> None:
    assert task.find_unknown(["the [MASK]", "<mask> <mask>", "<extra_id_0> cat", "日本語 <mask>", "[MASK] sat"]) == [3]


def test_a_batch_holds_every_token_on_one_of_its_sides(task: Span) -> None:
    rows = task.encode(Texts(tuple(PLAY), training=True))
    batch = task.batch(task.augment(rows, 1, 0), np.arange(len(rows)))
    assert batch.source is not None
    for i, text in enumerate(rows.ids):
        n, m = batch.source.lengths[i], batch.given.lengths[i]
        assert [n, m] == rows.lengths[i].tolist()
        assert max(n, m) <= 20
        source, wanted = batch.source.ids[i, :n].tolist(), batch.wanted[i, :m].tolist()
        assert source.pop() == wanted.pop() == task.tokenizer.eos
        assert batch.given.ids[i, :m].tolist() == [task.tokenizer.bos, *wanted]
        assert restore(source, wanted, task.sentinels) == text.tolist()
    assert batch.tokens == int((batch.wanted != IGNORE).sum())


def test_spans_are_new_in_every_epoch_and_a_function_of_seed_epoch_and_example(task: Span) -> None:
    rows = task.encode(Texts(tuple(PLAY)))

    def wanted(seed: int, epoch: int, i: int) -> tuple[int, ...]:
        return tuple(task.batch(task.augment(rows, seed, epoch), np.array([i])).wanted[0].tolist())

    assert wanted(1, 0, 2) == wanted(1, 0, 2)
    assert len({wanted(seed, epoch, 0) for seed in (1, 2) for epoch in range(6)}) > 6
    both = task.batch(task.augment(rows, 1, 0), np.array([1, 0])).wanted
    assert tuple(t for t in both[1].tolist() if t != IGNORE) == wanted(1, 0, 0)


def test_marks_are_filled_in_and_scored(task: Span, net: Net) -> None:
    texts = ["the [MASK] sat on the <mask>.", "no mark here", "<extra_id_5> ran"]
    found = task.run(TorchEngine(net), texts, Search(beam=3, n_best=2))
    assert [len(each) for each in found] == [2, 1, 2]
    assert found[1][0].text == texts[1]
    for each in found:
        assert "extra_id" not in each[0].text
    filled = "the cat sat on the old mat."
    whole, other = task.score(TorchEngine(net), [texts[0]] * 2, [filled, "the dog sat on the mat."])
    ids = task._encode_target(texts[0], filled)
    assert task.tokenizer.tokens(ids) == [
        "<extra_id_0>",
        "▁cat",
        "<extra_id_1>",
        *task.tokenizer.tokens(task.tokenizer.encode("old mat")),
    ]
    assert whole != other
    weights, read, written = task.forward_pass(net, texts[0], filled).attention(net)
    assert weights["decoder.blocks.0.cross"].shape == (2, len(written), len(read))
    with pytest.raises(DataError, match="the output should be its input with text at each mask, got 'a cat'"):
        task.score(TorchEngine(net), texts[:1], ["a cat"])
    with pytest.raises(DataError, match="as many outputs as inputs are needed, got 0 for 1"):
        task.score(TorchEngine(net), texts[:1], [])


def test_find_fills_is_the_regular_expression() -> None:
    rng = random.Random(1)
    matches = 0
    for _ in range(5000):
        letters = rng.choice(["ab ", "a ", "a \n", "ab", "abc  "])
        parts = ["".join(rng.choices(letters, k=rng.randint(0, 3))) for _ in range(rng.randint(1, 4))]
        whole = parts[0] + "".join("".join(rng.choices(letters, k=rng.randint(0, 4))) + part for part in parts[1:])
        if rng.random() < 0.3:
            whole = "".join(rng.choices(letters, k=rng.randint(0, 8)))
        wanted = re.fullmatch(r"\s*(.*?)\s*".join(map(re.escape, parts)), whole, re.DOTALL)
        assert find_fills(parts, whole) == (None if wanted is None else [*wanted.groups()]), (parts, whole)
        matches += wanted is not None
    assert 3000 < matches < 5000


@pytest.mark.parametrize("end", [" sun", " cat"])
def test_score_is_linear_in_the_number_of_masks(task: Span, end: str) -> None:
    """The regular expression tried 400 to the 8th power ways."""
    text = "a" + "".join(f" <extra_id_{i}> dog" for i in range(8)) + " cat"
    output = "a" + " dog" * 400 + end
    if end == " cat":
        assert task._encode_target(text, output).count(task.sentinels[7]) == 1
    else:
        with pytest.raises(DataError, match="the output should be its input with text at each mask, got 'a dog dog"):
            task._encode_target(text, output)


def test_long_texts_are_cut_and_that_is_told(task: Span) -> None:
    assert task.find_too_long(["the cat", "the cat sat on the mat. " * 9]) == [1]
    assert [len(ids) for ids in task.encode_inputs(["the cat", "the cat sat on the mat. " * 9], RunOptions())] == [
        3,
        20,
    ]


def test_refusals(task: Span, net: Net) -> None:
    with pytest.raises(DataError, match="no training data; name a text file with blank lines between documents"):
        Span.read(SpanData(), 1)
    with pytest.raises(SpecError, match="max_length=2 leaves no room for a text with a masked span"):
        SpanData(max_length=2)
    with pytest.raises(SpecError, match="texts of 568 tokens need 28 sentinels, got sentinels=20"):
        SpanData(sentinels=20)
    with pytest.raises(SpecError, match="this vocabulary has 0 of 100 sentinels, <extra_id_0> is missing"):
        Span(SpanData(), Tokenizer.train(PLAY, Chars()))
    with pytest.raises(CheckpointError, match=r"there is no tokenizer.json among x.json"):
        Span.load(SpanData(), {"x.json": b""})
    with pytest.raises(DataError, match="at least two tokens"):
        task.encode(Texts(("a",)))
    with pytest.raises(DataError, match="a text has 9 masks, but this model only 8 sentinels"):
        task.run(TorchEngine(net), ["[MASK]" * 9], Search(beam=1))


@pytest.mark.slow
def test_pre_trained_then_fine_tuned(tmp_path: Path) -> None:
    """The recipe learns a text by heart; what it learned is taken to a text-to-text task, vocabulary and all."""
    text, pairs = tmp_path / "play.txt", tmp_path / "pairs.tsv"
    text.write_text("\n\n".join(PLAY))
    pairs.write_text("".join(f"{w}\t{w[::-1]}\n" for w in ("cat", "dog", "mat", "man", "fish", "ran", "wet", "old")))
    settings = {f"model.{name}": value for name, value in SMALL.items()}
    settings |= {"model.width": 64, "model.hidden": 128, "model.depth": 2}
    common = {"train.validate_every": 250, "train.threads": 1, "train.precision": "float32", "train.batch_tokens": 256}
    common |= {"train.schedule": {"kind": "cosine", "lr": 5e-3, "warmup": 30}}
    settings |= common | {
        "data.tokenizer": {"kind": "words", "min_count": 1},
        "data.max_length": 40,
        "train.steps": 500,
    }
    model = regard.train("t5", [str(text)], valid=[str(text)], set=settings, out=tmp_path / "run", quiet=True)
    assert model.run([PLAY[1].replace("the market.", "[MASK]")]) == [PLAY[1]]  # three tokens, as it learned
    settings = common | {
        "train.steps": 40,
        "train.validate_every": 40,
        "train.epochs": None,
        "train.label_smoothing": 0.0,
    }
    tuned = regard.train(
        "translate",
        [str(pairs)],
        valid=[str(pairs)],
        start=tmp_path / "run",
        set=settings | {"data.metrics": ["exact"]},
        out=tmp_path / "tuned",
        quiet=True,
    )
    assert tuned.tokenizer.fingerprint == model.tokenizer.fingerprint
    assert tuned.task.tags == [], "sentinels are no languages"
    assert torch.isfinite(torch.tensor(tuned.score(["cat"], ["tac"])))
