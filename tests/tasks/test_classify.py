"""Sentence classification: what is read, what is refused, and that it learns, also from a model that fills in masks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import CheckpointError, DataError, SpecError
from regard.families import bert, gpt
from regard.nn.blocks.head import Classes
from regard.nn.core.coords import Coords
from regard.nn.mixers import Performer
from regard.tasks.classify import Classify, ClassifyData
from regard.tasks.common.class_names import check_class_names, list_classes, unpack_classes
from regard.tasks.common.text_frame import _truncate_pair, frame_texts
from regard.text import Chars, Tokenizer

pytestmark = pytest.mark.numeric

TEXTS = ["a fine day", "a bad day", "so fine", "so bad", "fine", "bad and bad again"]
TOKENIZER = Tokenizer.train(TEXTS, Chars())
SMALL: dict[str, Any] = dict(width=16, depth=1, heads=2, hidden=32, dropout=0.0)


def made(**settings: Any) -> Classify:
    return Classify(ClassifyData(tokenizer="chars", max_length=16, **settings), TOKENIZER, ("down", "flat", "up"))


def net_of(task: Classify, **more: Any) -> Any:
    return task.adapt_spec(bert.spec(**SMALL, **task.model_arguments(), **more)).build(seed=1).double().eval()


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 30))
def test_two_texts_are_cut_from_the_longer_one(a: int, b: int, room: int) -> None:
    first, second = _truncate_pair(list(range(a)), list(range(b)), room)
    assert len(first) + len(second) == min(a + b, room)
    assert first == list(range(a))[: len(first)] and second == list(range(b))[: len(second)]
    if len(first) < a and len(second) < b:
        assert abs(len(first) - len(second)) <= 1
    elif len(first) < a:
        assert len(first) >= len(second)


def test_what_the_model_reads() -> None:
    t = TOKENIZER
    ((ids, segments),) = frame_texts(t, ["fine\tbad day"], 11, pair=True)
    assert ids == [t.bos, *t.encode("fine"), t.eos, *t.encode("bad day")[:4], t.eos]
    assert segments == [0] * 6 + [1] * 5
    assert frame_texts(t, ["a fine day"], 6) == [([t.bos, *t.encode("a fi"), t.eos], [0] * 6)]
    with pytest.raises(DataError, match="reads pairs of texts with a tab between them, got 'fine'"):
        frame_texts(t, ["fine"], 11, pair=True)


@torch.no_grad()
def test_classes_are_the_softmax_of_the_head_and_segments_count() -> None:
    task = made(pair=True)
    net = net_of(task)
    ((ids, segments),) = frame_texts(TOKENIZER, ["fine\tbad"], 16, pair=True)
    at = Coords(torch.arange(len(ids))[None], first=0, segment=torch.tensor([segments]))
    wanted = net.logits(net(torch.tensor([ids]), at), at)[0].softmax(-1)
    ((best, second, third),) = task.run(TorchEngine(net), ["fine\tbad"], Search(beam=3, n_best=3))
    assert best.more["probabilities"] == pytest.approx(dict(zip(task.classes, wanted.tolist(), strict=True)))
    assert [best.score, second.score, third.score] == pytest.approx(sorted(wanted.tolist(), reverse=True))
    assert task.score(TorchEngine(net), ["fine\tbad"], [best.text]) == pytest.approx([best.log_prob])
    net.embed.segment[1].normal_()
    assert task.score(TorchEngine(net), ["fine\tbad"], [best.text]) != pytest.approx([best.log_prob])


@torch.no_grad()
def test_an_ensemble_is_the_mean_of_probabilities() -> None:
    task = made()
    nets = [task.adapt_spec(bert.spec(**SMALL, **task.model_arguments())).build(seed=s).double().eval() for s in (1, 2)]
    each = [task.run(TorchEngine(net), ["fine"], Search())[0][0].more["probabilities"] for net in nets]
    both = task.run(TorchEngine(*nets), ["fine"], Search())[0][0].more["probabilities"]
    assert both == pytest.approx({name: (each[0][name] + each[1][name]) / 2 for name in task.classes})


def test_any_mixer_and_any_encoder() -> None:
    task = made()
    spec = bert.spec(**SMALL, **task.model_arguments()).replace("encoder.block.mix", Performer(2, features=8).plain())
    assert task.adapt_spec(spec).head == Classes(3, "first", hidden=True, dropout=0.1)
    assert len(task.run(TorchEngine(task.adapt_spec(spec).build(0).eval()), TEXTS, Search())) == len(TEXTS)
    assert made(pool="mean").adapt_spec(spec).head == Classes(3, "mean", hidden=True, dropout=0.1)
    own = bert.spec(**SMALL, vocab=TOKENIZER.size, length=16, classes=3)
    assert task.adapt_spec(own) == own, "a head that fits stays as it is"
    with pytest.raises(SpecError, match="a classifier needs a model with an encoder and no decoder"):
        task.adapt_spec(gpt.spec(width=16, depth=1, heads=2, vocab=9, length=16))
    with pytest.raises(SpecError, match=r"the model reads at most 8 tokens, but data\.max_length is 16; lower it"):
        task.adapt_spec(bert.spec(**SMALL, vocab=9, length=8))


def test_a_rare_class_is_learned_from_before_it_is_judged_by(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    often, rare = (
        [f"{t} {i}\t{'ud'[i % 2]}\n" for i in range(12) for t in TEXTS],
        [f"odd {i}\tx{i}\n" for i in range(20)],
    )
    path.write_text("".join(often + rare))
    data = ClassifyData(train=(str(path),), tokenizer="chars")
    raw = Classify.read(data, 1)
    task = Classify.prepare(data, raw)
    assert len(task.classes) == 22 and len(raw.train[0]) + len(raw.valid[0]) == 92
    assert {*raw.valid[0].target} == {"u", "d"}
    task.encode(raw.valid)
    path.write_text("".join(rare))
    with pytest.raises(
        DataError,
        match="no text can be held out for validation, since each has a class of its own; name a file with --valid",
    ):
        Classify.read(data, 1)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no training data; name a \.tsv, \.csv or \.jsonl file with texts and labels"):
        Classify.read(ClassifyData(), 1)
    path = tmp_path / "x.tsv"
    path.write_text("".join(f"{t} {i}\tup\n" for i in range(5) for t in TEXTS))
    data = ClassifyData(train=(str(path),), tokenizer="chars")
    with pytest.raises(DataError, match=r"x\.tsv.* has 1 class \('up'\); at least two are needed"):
        Classify.prepare(data, Classify.read(data, 1))
    path.write_text("fine\tsideways\nbad\tup\n")
    with pytest.raises(DataError, match=r"x\.tsv has a class 'sideways' that the model does not have; it has 'down', "):
        made().encode(Classify.read_test(data, [str(path)]))
    with pytest.raises(DataError, match="as many outputs as inputs are needed, got 1 for 2"):
        made().score(TorchEngine(net_of(made())), ["a", "b"], ["up"])
    with pytest.raises(SpecError, match=r"data\.max_length=3 leaves no room for a text"):
        Classify(ClassifyData(max_length=3), TOKENIZER, ("a", "b"))
    files = made().files()
    with pytest.raises(
        CheckpointError, match=r"there is no classes\.json among tokenizer\.json; this is not a classifier"
    ):
        Classify.load(data, {"tokenizer.json": files["tokenizer.json"]})
    with pytest.raises(CheckpointError, match=r"classes\.json is not JSON"):
        Classify.load(data, files | {"classes.json": b"{"})
    with pytest.raises(CheckpointError, match=r"should be an object with the names of at least two classes, got \[1\]"):
        Classify.load(data, files | {"classes.json": b"[1]"})
    with pytest.raises(CheckpointError, match=r"there is no tokenizer\.json among classes\.json"):
        Classify.load(data, {"classes.json": files["classes.json"]})


def test_what_a_class_is_called_moves_no_cursor() -> None:
    assert check_class_names(["größer", "日本", "a b"], "x") == ("größer", "日本", "a b")
    for name in ("a\x1b[2J", "a\nb", "\x7f", "\x9b0m", "\udcff"):
        with pytest.raises(DataError, match=r"x has a class .*; class names cannot have control characters"):
            check_class_names(["a", name], "x")
        with pytest.raises(DataError, match="x has a class"):
            list_classes(["a", name], "x")
        with pytest.raises(DataError, match=r"classes\.json has a class"):
            unpack_classes({"classes.json": json.dumps({"classes": ["a", name]}).encode()})


def test_what_is_too_long() -> None:
    assert made().find_too_long(["a" * 14, "a" * 15]) == [1]


@pytest.mark.slow
def test_the_recipe_learns_and_a_model_that_fills_in_masks_can_be_tuned(tmp_path: Path) -> None:
    good, bad, filler = (
        ["good", "great", "lovely", "fine"],
        ["bad", "awful", "poor", "dull"],
        ["the", "film", "was", "a", "plot", "and", "an"],
    )
    rows = [
        f"{filler[i % 7]} {word} {filler[i // 7 % 7]} {filler[i % 5]}\t{label}"
        for i in range(40)
        for words, label in ((good, "up"), (bad, "down"))
        for word in words
    ]
    (tmp_path / "x.tsv").write_text("".join(f"{row}\n" for row in rows))
    (tmp_path / "x.txt").write_text("".join(row.split("\t")[0] + "\n\n" for row in rows))
    small = {"model.width": 32, "model.depth": 1, "model.hidden": 64, "model.heads": 2, "train.threads": 1}
    quick = {"train.batch_tokens": 512, "train.epochs": 8, "train.schedule.warmup": 5, "train.schedule.lr": 5e-3}
    model = regard.train(
        "classify",
        [str(tmp_path / "x.tsv")],
        out=tmp_path / "run",
        quiet=True,
        set={**small, **quick, "data.tokenizer": "words"},
    )
    assert model.run(["the film was lovely", "a dull plot"]) == ["up", "down"]
    data = {"tokenizer": "words", "context": 128, "next_sentence": False}
    mask = {
        "task": "mlm",
        "data": data,
        "model": {"family": "bert", **SMALL},
        "train": {"steps": 3, "schedule": "constant"},
    }
    first = regard.train(mask, [str(tmp_path / "x.txt")], out=tmp_path / "mlm", quiet=True)
    tuned = regard.train(
        "classify",
        [str(tmp_path / "x.tsv")],
        out=tmp_path / "tuned",
        start=first.path,
        quiet=True,
        set=quick | {"train.epochs": 2},
    )
    assert tuned.tokenizer.to_bytes() == first.tokenizer.to_bytes()
    assert isinstance(tuned.spec.head, Classes) and tuned.spec.encoder == first.spec.encoder
