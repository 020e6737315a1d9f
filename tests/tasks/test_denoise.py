"""Denoising as a task: a damaged text and the whole one, and what was learned is taken to summaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regard.data.batch import IGNORE
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import DataError, SpecError
from regard.families import bart
from regard.tasks.common.task import Dataset
from regard.tasks.common.text_corpus import Texts
from regard.tasks.denoise import Denoise, DenoiseData
from regard.text import Bpe, Chars, Tokenizer, Words
from tests.tasks.test_span import PLAY

pytestmark = pytest.mark.numeric

SMALL: dict[str, Any] = dict(width=16, depth=1, heads=2, hidden=32, dropout=0.0)


def made(**settings: Any) -> Denoise:
    settings = {"tokenizer": Bpe(vocab=90), "max_length": 20, **settings}
    data = Dataset(Texts(tuple(PLAY), training=True), Texts(tuple(PLAY)), "", {})
    return Denoise.prepare(DenoiseData(**settings), data)


@pytest.fixture(scope="module")
def task() -> Denoise:
    return made()


def test_a_batch_has_the_whole_text_as_target_and_no_longer_source(task: Denoise) -> None:
    rows = task.encode(Texts(tuple(PLAY), training=True))
    batch = task.batch(task.augment(rows, 1, 0), np.arange(len(rows)))
    assert batch.source is not None
    masks = 0
    for i, text in enumerate(rows.ids):
        n, m = batch.source.lengths[i], batch.given.lengths[i]
        assert n <= m == len(text) + 1 == rows.lengths[np.array([i])][0, 1] <= 20
        assert batch.wanted[i, :m].tolist() == [*text.tolist(), task.tokenizer.eos]
        source = batch.source.ids[i, :n].tolist()
        assert source.pop() == task.tokenizer.eos and set(source) <= {*text.tolist(), task.mask}
        masks += source.count(task.mask)
    assert masks >= len(rows)
    assert batch.tokens == int((batch.wanted != IGNORE).sum())


def test_noise_is_new_in_every_epoch_and_a_function_of_seed_epoch_and_example(task: Denoise) -> None:
    rows = task.encode(Texts(tuple(PLAY)))

    def source(seed: int, epoch: int, *which: int) -> tuple[int, ...]:
        batch = task.batch(task.augment(rows, seed, epoch), np.array(which))
        assert batch.source is not None
        return tuple(batch.source.ids[-1, : batch.source.lengths[-1]].tolist())

    assert source(1, 0, 2) == source(1, 0, 2) == source(1, 0, 0, 1, 2)
    assert len({source(seed, epoch, 0) for seed in (1, 2) for epoch in range(6)}) > 6


def test_sentences_end_at_their_stops() -> None:
    task = made(tokenizer=Words(min_count=1), max_length=40, noise={"infill": 0.0})
    rows = task.encode(Texts((PLAY[0],)))
    found = set()
    for epoch in range(30):
        batch = task.batch(task.augment(rows, 1, epoch), np.array([0]))
        assert batch.source is not None
        found.add(task.tokenizer.decode(batch.source.ids[0, : batch.source.lengths[0] - 1].tolist()))
    first, second, third = "the cat sat on the mat.", "the dog saw the cat.", "the cat saw the dog, and ran."
    assert f"{second} {first} {third}" in found and len(found) == 6


def test_a_text_is_restored(task: Denoise) -> None:
    net = bart.spec(**SMALL, **{k: v for k, v in task.model_arguments().items() if k != "start"}).build(1).eval()
    texts = ["the <mask> sat", "no mark here"]
    found = task.run(TorchEngine(net), texts, Search(beam=2, n_best=2))
    assert [len(each) for each in found] == [2, 2] and not any("<mask>" in out.text for each in found for out in each)
    assert task.encode_inputs(texts[:1], task.Options())[0].count(task.mask) == 1
    assert task.find_too_long(["the cat", "the cat sat on the mat. " * 9]) == [1]
    assert task.find_unknown(["the [MASK]", "日本語 <mask>"]) == [1]


def test_refusals(task: Denoise) -> None:
    with pytest.raises(DataError, match="no training data; name a text file with blank lines between documents"):
        Denoise.read(DenoiseData(), 1)
    with pytest.raises(SpecError, match="max_length=2 leaves no room for a text of two tokens and its end"):
        DenoiseData(max_length=2)
    with pytest.raises(SpecError, match=r"this vocabulary has no mask token \(<mask> or \[MASK\]\)"):
        Denoise(DenoiseData(), Tokenizer.train(PLAY, Chars()))
    with pytest.raises(DataError, match="at least two tokens: one to corrupt and one to keep"):
        task.encode(Texts(("a",)))
