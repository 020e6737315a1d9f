"""Words cut anew and tokens hidden every epoch: seeded, never what is wanted, never in judging."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.data.pairs import Pairs
from regard.errors import SpecError
from regard.tasks.translate import TranslateData
from regard.text import Bpe
from tests.tasks.test_translate import made

pytestmark = pytest.mark.numeric

SLOW = Pairs(
    ["the lowest slower", "lower the slow", "slow"] * 4, ["slowest low", "the lower", "low slow"] * 4, tag="2xx"
)


def test_every_epoch_cuts_words_anew_and_hides_others() -> None:
    task = made(SLOW, tokenizer=Bpe(vocab=40), subword_sampling=0.3, word_dropout=0.2)
    examples, rows = task.encode([SLOW]), np.arange(12)
    drawn = {place: task.augment(examples, *place) for place in [(1, 0), (1, 1), (2, 0)]}
    again = made(SLOW, tokenizer=Bpe(vocab=40), subword_sampling=0.3, word_dropout=0.2)
    for place, fresh in drawn.items():
        one, other = task.batch(fresh, rows), again.batch(again.augment(again.encode([SLOW]), *place), rows)
        assert torch.equal(one.given.ids, other.given.ids)
        assert torch.equal(one.wanted, other.wanted)
        assert [task.tokenizer.decode(ids) for ids in fresh.target] == SLOW.target
        assert [task.source_tokenizer.decode(ids) for ids in fresh.source] == SLOW.source
        assert fresh.source.ids.tolist().count(task.source_tokenizer.tag("<2xx>")) == 12
        assert np.array_equal(fresh.lengths, np.stack([fresh.source.lengths, fresh.target.lengths], 1) + 1)
    assert len({tuple(fresh.source.ids.tolist()) for fresh in drawn.values()}) == 3
    assert len({tuple(task.batch(fresh, rows).given.ids.flatten().tolist()) for fresh in drawn.values()}) == 3
    one, turned = drawn[1, 0], task.batch(drawn[1, 0], rows[::-1])
    assert torch.equal(turned.given.ids.flip(0), task.batch(one, rows).given.ids), "whatever batch a pair is in"


def test_what_is_wanted_is_never_hidden() -> None:
    task = made(SLOW, tokenizer=Bpe(vocab=40), word_dropout=0.5)
    examples, rows = task.encode([SLOW]), np.arange(12)
    plain, batch = task.batch(examples, rows), task.batch(task.augment(examples, 1, 0), rows)
    assert torch.equal(batch.wanted, plain.wanted)
    assert plain.source is not None
    assert batch.source is not None
    for side, whole in ((batch.given, plain.given), (batch.source, plain.source)):
        changed = side.ids != whole.ids
        assert changed.any()
        assert (side.ids[changed] == task.tokenizer.unk).all()
        assert torch.equal(side.ids[:, 0], whole.ids[:, 0]), "a start mark or a tag"
    eos = plain.source.ids == task.source_tokenizer.eos
    assert (batch.source.ids[eos] == task.source_tokenizer.eos).all()


def test_judging_draws_nothing_and_neither_does_a_recipe_that_is_silent() -> None:
    task = made(SLOW, tokenizer=Bpe(vocab=40), subword_sampling=0.5, word_dropout=0.5)
    examples = task.encode([SLOW])
    assert examples.rng is None
    assert [ids.tolist() for ids in examples.target] == task.tokenizer.encode_all(SLOW.target)
    silent = made(SLOW, tokenizer=Bpe(vocab=40))
    assert silent.augment(examples, 1, 0) is examples


def test_pairs_that_would_be_too_long_stay_as_they_are() -> None:
    task = made(SLOW, tokenizer=Bpe(vocab=40), subword_sampling=0.5, max_length=12)
    examples = task.encode([SLOW])
    fresh = task.augment(examples, 1, 0)
    assert fresh.lengths.max() <= 12
    same = [np.array_equal(a, b) for a, b in zip(fresh.source, examples.source, strict=True)]
    assert 0 < sum(same) < len(same)


def test_a_vocabulary_for_each_side_is_cut_by_its_own_merges() -> None:
    task = made(SLOW, tokenizer=Bpe(vocab=40), subword_sampling=0.3, joint_vocab=False)
    fresh = task.augment(task.encode([SLOW]), 1, 0)
    assert [task.tokenizer.decode(ids) for ids in fresh.target] == SLOW.target
    assert [task.source_tokenizer.decode(ids) for ids in fresh.source] == SLOW.source


@pytest.mark.parametrize("kind", ["chars", "words", "bytes", "wordpiece", "pieces"])
def test_what_has_one_way_to_cut_a_word_is_not_cut_in_others(kind: str) -> None:
    with pytest.raises(
        SpecError,
        match=r"data\.subword_sampling needs a tokenizer that can cut a word in several ways, .* has one",
    ):
        TranslateData.parse({"tokenizer": kind, "subword_sampling": 0.1})
    assert TranslateData.parse({"tokenizer": kind, "word_dropout": 0.1}).word_dropout == 0.1
