"""Masked language modelling: what is hidden, what is asked, what comes out, and that it learns."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard.data.batch import IGNORE
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import CheckpointError, DataError, SpecError
from regard.families import bert, gpt
from regard.model.net import Net
from regard.nn.blocks.head import Classes, Masked
from regard.nn.core.coords import Coords
from regard.tasks.common.fill_mask import encode_masked, plan_views
from regard.tasks.common.losses import evaluate_loss
from regard.tasks.common.task import Dataset
from regard.tasks.common.text_corpus import Texts
from regard.tasks.mlm import Mlm, MlmData
from regard.text import Bpe, ByteBpe, Bytes, Chars, Tokenizer, TokenizerSpec, Unigram, WordPiece, Words
from tests.training.small import events

pytestmark = pytest.mark.numeric

PLAY = [
    "the cat sat on the mat.\nthe dog saw the cat.\nthe cat saw the dog, and ran.",
    "a man went to the market.\nhe bought a fish.\nthe fish was old.",
    "it rained for a day.\nthe mat was wet.\nthe man was wet, and the dog ran.",
]
SMALL: dict[str, Any] = dict(width=16, depth=1, heads=2, hidden=32, dropout=0.0)


def made(**settings: Any) -> Mlm:
    settings = {"tokenizer": WordPiece(vocab=120), "context": 24, **settings}
    return Mlm.prepare(MlmData(**settings), Dataset(Texts(tuple(PLAY), training=True), Texts(tuple(PLAY)), "", {}))


def net_of(task: Mlm, size: str = "bert-base", **changes: Any) -> Net:
    return bert.spec(size, **{**SMALL, **task.model_arguments(), **changes}).build(1).eval()


@pytest.fixture(scope="module")
def task() -> Mlm:
    return made()


@pytest.fixture(scope="module")
def net(task: Mlm) -> Net:
    return net_of(task)


# What is hidden.


def test_a_mark_is_no_unknown_text(task: Mlm) -> None:
    assert task.find_unknown(["the [MASK]", "<mask> <mask>", "<extra_id_0> cat", "日本語 <mask>", "[MASK] sat"]) == [3]


def test_only_tokens_of_text_are_hidden_and_the_rest_is_as_it_was(task: Mlm) -> None:
    rows = task.encode(Texts(tuple(PLAY * 3), training=True))
    special = {task.tokenizer.pad, task.tokenizer.bos, task.tokenizer.eos, task.tokenizer.unk, task.mask}
    for epoch in range(5):
        batch = task.batch(task.augment(rows, 7, epoch), np.arange(len(rows)))
        hidden = batch.wanted != IGNORE
        assert not special & set(batch.wanted[hidden].tolist())
        assert batch.tokens == int(hidden.sum())
        assert (hidden.sum(1) > 0).all(), "every row asks for something"
        for r, row in enumerate(rows.ids):
            seen = batch.given.ids[r, : len(row)]
            assert torch.equal(seen[~hidden[r, : len(row)]], torch.tensor(row)[~hidden[r, : len(row)]].long())
            assert batch.wanted[r, hidden[r]].tolist() == row[hidden[r, : len(row)].numpy()].tolist()


def test_masks_are_new_in_every_epoch_and_a_function_of_seed_epoch_and_example(task: Mlm) -> None:
    rows = task.encode(Texts(tuple(PLAY), training=True))

    def hidden(seed: int, epoch: int, indices: list[int]) -> list[list[int]]:
        batch = task.batch(task.augment(rows, seed, epoch), np.array(indices))
        return [[i for i, t in enumerate(row) if t != IGNORE] for row in batch.wanted.tolist()]

    assert hidden(1, 0, [0, 1, 2]) == hidden(1, 0, [0, 1, 2])
    assert hidden(1, 0, [2, 0]) == [hidden(1, 0, [2])[0], hidden(1, 0, [0])[0]], "neighbours do not matter"
    assert len({str(hidden(seed, epoch, [0, 1, 2])) for seed in (1, 2) for epoch in range(4)}) > 5
    before = task.batch(rows, np.arange(3))
    assert torch.equal(before.given.ids, task.batch(rows, np.arange(3)).given.ids), "a judgement has one for ever"


@pytest.mark.parametrize(
    "kind", [WordPiece(vocab=60), Bpe(vocab=60), Unigram(vocab=60)], ids=lambda k: type(k).__name__
)
def test_whole_words_are_hidden(kind: TokenizerSpec) -> None:
    task = made(tokenizer=kind, next_sentence=False, masking={"whole_words": True, "rate": 0.3})
    rows = task.encode(Texts(tuple(PLAY)))
    assert task._boundaries is not None
    split = 0
    for epoch in range(10):
        batch = task.batch(task.augment(rows, 1, epoch), np.arange(len(rows)))
        for r, row in enumerate(rows.ids):
            joined, asked = task._boundaries.continues_word(row), (batch.wanted[r, : len(row)] != IGNORE).numpy()
            free = task._maskable[row]
            inside = joined[1:] & free[1:] & free[:-1]
            assert (asked[1:][inside] == asked[:-1][inside]).all()
            split += int(inside.sum())
    assert split, "some words have several tokens"


def test_pairs_have_segments_and_are_framed(task: Mlm) -> None:
    rows = task.encode(Texts(tuple(PLAY), training=True))
    assert rows.is_next is not None
    for ids, segments in zip(rows.ids, rows.segments, strict=True):
        ends = np.flatnonzero(ids == task.tokenizer.eos)
        assert ids[0] == task.tokenizer.bos
        assert len(ends) == 2
        assert ends[1] == len(ids) - 1
        assert segments.tolist() == [0] * (ends[0] + 1) + [1] * (len(ids) - ends[0] - 1)
        assert len(ids) <= task.settings.context
    assert len(made(dupe_factor=3).encode(Texts(tuple(PLAY), training=True))) > 2 * len(rows)
    assert len(made(dupe_factor=3).encode(Texts(tuple(PLAY)))) == len(rows), "one cut is enough to judge by"


# What is asked.


@torch.no_grad()
def test_the_loss_is_of_the_hidden_tokens_and_of_the_second_segment(task: Mlm, net: Net) -> None:
    rows = task.encode(Texts(tuple(PLAY)))
    batch = task.batch(rows, np.arange(len(rows)))
    assert batch.next_sentence is not None
    loss = task.loss(net, batch, 0.0)
    at = dataclasses.replace(Coords.lengths(batch.given.lengths), segment=batch.segment)
    stream = net(batch.given.ids, at)
    logits = net.logits(stream)
    plain = F.cross_entropy(logits.flatten(0, 1), batch.wanted.flatten(), ignore_index=IGNORE, reduction="sum")
    beside = F.cross_entropy(net.logits_beside(stream, at), batch.next_sentence)
    assert float(loss.plain) == pytest.approx(float(plain), rel=1e-5)
    assert float(loss.total) == pytest.approx(float(plain + beside * batch.tokens), rel=1e-5)
    hidden = batch.wanted != IGNORE
    right = int((logits.argmax(-1)[hidden] == batch.wanted[hidden]).sum())
    assert loss.rows["masked_accuracy"].sum(0).tolist() == [right, batch.tokens]
    scores = evaluate_loss(cast(Any, task), net, cast(Any, rows))
    assert scores["masked_accuracy"] == pytest.approx(100 * right / batch.tokens)
    assert scores["next_sentence_accuracy"] == pytest.approx(
        100 * float(loss.rows["next_sentence_accuracy"][:, 0].mean())
    )


@pytest.mark.parametrize("size", ["roberta-base", "distilbert-base", "bert-base"])
def test_models_without_a_second_head(size: str) -> None:
    task = made(next_sentence=False)
    net = net_of(task, size)
    assert task.metrics == ("loss", "masked_accuracy")
    assert net.beside is None
    rows = task.encode(Texts(tuple(PLAY)))
    loss = task.loss(net, task.batch(rows, np.arange(len(rows))), 0.0)
    assert torch.isfinite(loss.total)
    assert "next_sentence_accuracy" not in loss.rows


def test_the_model_gets_the_heads_it_needs(task: Mlm) -> None:
    spec = bert.spec(**SMALL, classes=3, vocab=50, length=24)
    fitted = task.adapt_spec(spec)
    assert (fitted.head, fitted.beside) == (Masked(), Classes(2, hidden=True))
    assert made(next_sentence=False).adapt_spec(bert.spec(**SMALL, vocab=50, length=24)).beside is None
    with pytest.raises(SpecError, match=r"an encoder and no decoder; use model\.family: bert"):
        task.adapt_spec(gpt.spec(**SMALL, vocab=50, length=24))


# What comes out.


KINDS = (
    Chars(),
    Bytes(),
    Words(min_count=1),
    Bpe(vocab=60),
    ByteBpe(vocab=290),
    WordPiece(vocab=80),
    Unigram(vocab=60),
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: type(k).__name__)
def test_a_mask_stands_for_one_token_and_changes_none_beside_it(kind: TokenizerSpec) -> None:
    tokenizer = Tokenizer.train(PLAY, kind, tags=["<mask>"])
    mask, text = tokenizer.tag("<mask>"), "the cat saw the dog, and ran."
    whole = tokenizer.encode(text)
    for word in ("the ", " cat", " dog", ",", "."):
        shown = text.replace(
            word, f" [MASK]{' ' if word.endswith(' ') else ''}" if " " in word else "<mask>", 1
        ).strip()
        ids = encode_masked(tokenizer, [shown], lambda _: mask)[0]
        at = ids.index(mask)
        after = ids[at + 1 :]
        assert ids[:at] == whole[:at]
        assert whole[len(whole) - len(after) :] == after
        assert ids.count(mask) == 1


@torch.no_grad()
def test_filling_in_is_the_argmax_at_each_mask(task: Mlm, net: Net) -> None:
    texts = ["the [MASK] sat on the <mask>.", "no mask here", "[MASK]"]
    best, second = (task.run(TorchEngine(net), texts, Search(beam=3, n_best=n)) for n in (1, 3))
    assert [len(each) for each in best] == [1, 1, 1]
    assert [each[0].text for each in second] == [each[0].text for each in best]
    assert best[1][0].text == texts[1]
    ids, _ = task.tokenizer.frame(encode_masked(task.tokenizer, texts[:1], lambda _: task.mask)[0])
    told = net.logits(net(torch.tensor([ids]), Coords.span(len(ids))))[0].log_softmax(-1)
    told[:, ~torch.from_numpy(task._maskable)] = -torch.inf
    places = [i for i, t in enumerate(ids) if t == task.mask]
    fills = [int(told[p].argmax()) for p in places]
    wanted = [fills.pop(0) if t == task.mask else t for t in ids]
    assert best[0][0].text == task.tokenizer.decode(wanted)
    assert best[0][0].log_prob == pytest.approx(sum(float(told[p].max()) for p in places), abs=1e-4)
    for one, two in zip(second[0], second[0][1:], strict=False):
        assert one.score >= two.score  # type: ignore[operator]
    shown = second[0][0].plain()
    assert [set(fill) for fill in shown["fills"]] == [{"text", "probability"}] * 2
    assert shown["score"] == pytest.approx(np.prod([fill["probability"] for fill in shown["fills"]]), rel=1e-4)


def test_texts_longer_than_the_model_are_seen_around_each_mask(task: Mlm, net: Net) -> None:
    room = 22
    assert plan_views([0] * 10, 9, room) == []
    assert plan_views([9, 0, 0], 9, room) == [(0, [0])]
    ids = [0] * 60
    ids[3] = ids[20] = ids[50] = 9
    assert plan_views(ids, 9, room) == [(0, [3, 20]), (38, [50])]
    long = "the cat sat on the mat. " * 6 + "the [MASK] ran. " + "the dog saw the cat. " * 6
    (found,) = task.run(TorchEngine(net), [long], Search(beam=1))[0]
    assert "[MASK]" not in found.text
    assert found.text.startswith("the cat sat on the mat. the cat")


def test_an_ensemble_of_one_model_twice_is_the_model(task: Mlm, net: Net) -> None:
    one, two = (task.run(TorchEngine(*nets), ["the [MASK]"], Search(beam=1))[0][0] for nets in ([net], [net, net]))
    assert one.text == two.text
    assert one.log_prob == pytest.approx(two.log_prob, abs=1e-5)


def test_score_is_that_of_what_run_gives(task: Mlm, net: Net) -> None:
    texts = ["the [MASK] sat on the [MASK].", "it rained."]
    found = [each[0] for each in task.run(TorchEngine(net), texts, Search(beam=1))]
    assert task.score(TorchEngine(net), texts, [f.text for f in found]) == pytest.approx(
        [f.log_prob for f in found], abs=1e-4
    )
    with pytest.raises(DataError, match="output 1 should be its input with a token for each mask, got 'the dog'"):
        task.score(TorchEngine(net), texts, ["the dog", "it rained."])
    with pytest.raises(DataError, match="as many outputs as inputs are needed, got 1 for 2"):
        task.score(TorchEngine(net), texts, ["the dog"])


def test_attention_is_of_the_framed_text(task: Mlm, net: Net) -> None:
    weights, rows, columns = task.forward_pass(net, "the [MASK]", "").attention(net)
    assert rows == columns == ["<s>", "▁the", "<mask>", "</s>"]
    assert weights["encoder.blocks.0.mix"].shape == (2, 4, 4)


# What is refused.


def test_refusals(task: Mlm, net: Net, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="no training data; name a text file with one sentence per line and blank lines"
    ):
        Mlm.read(MlmData(), 1)
    with pytest.raises(DataError, match="at least two documents, got 1; put blank lines between documents"):
        task.encode(Texts((PLAY[0],)))
    with pytest.raises(SpecError, match="context should be at least 8"):
        MlmData(context=4)
    with pytest.raises(SpecError, match="no metric 'masked'"):
        MlmData(metrics=("masked",))
    with pytest.raises(SpecError, match=r"this vocabulary has no mask token \(<mask> or \[MASK\]\)"):
        Mlm(MlmData(), Tokenizer.train(PLAY, Chars()))
    with pytest.raises(CheckpointError, match=r"there is no tokenizer.json among x.json"):
        Mlm.load(MlmData(), {"x.json": b""})
    with pytest.raises(SpecError, match="filled with the likeliest tokens, not sampled"):
        task.run(TorchEngine(net), ["the [MASK]"], Search(beam=1, sample=True))
    with pytest.raises(DataError, match="the vocabulary knows nothing in this text"):
        made(next_sentence=False, tokenizer=Chars()).encode(Texts(("漢字",)))


# That it learns.


@pytest.mark.slow
def test_the_recipe_learns_a_text_by_heart(tmp_path: Path) -> None:
    path = tmp_path / "play.txt"
    path.write_text("\n\n".join(PLAY))
    settings = {f"model.{name}": value for name, value in SMALL.items()}
    settings |= {"model.width": 64, "model.hidden": 128, "model.depth": 2}
    settings |= {"data.tokenizer": {"kind": "words", "min_count": 1}, "data.context": 32, "data.dupe_factor": 4}
    settings |= {"train.schedule": {"kind": "cosine", "lr": 4e-3, "warmup": 30}, "train.batch_tokens": 256}
    settings |= {"train.steps": 1000, "train.validate_every": 500, "train.threads": 1, "train.precision": "float32"}
    model = regard.train("bert", [str(path)], valid=[str(path)], set=settings, out=tmp_path / "run", quiet=True)
    whole = "a man went to the market. he bought a fish."
    assert model.run([whole.replace("market", "[MASK]"), whole.replace("fish", "[MASK]")]) == [whole, whole]
    (done,) = events(tmp_path / "run", "done")
    assert done["scores"]["masked_accuracy"] >= 80
    assert done["scores"]["next_sentence_accuracy"] >= 75
