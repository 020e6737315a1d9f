"""Questions about stories: what is read, random noise, a memory that overflows, unknown words, and what a user sees."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.stories import Story
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import DataError, SpecError
from regard.families import bert, memn2n
from regard.nn.blocks.memory_hops import MemoryHopsBody
from regard.tasks.babi import EMPTY, Babi, BabiData, EncodedStories
from regard.tasks.common.task import Dataset
from tests.laws.uses import STORY
from tests.verbs.calling import call
from tests.verbs.conftest import settings

pytestmark = pytest.mark.numeric

NAMES = ("mary", "john", "bill", "sandra")


def story(*sentences: str, question: str = "Where is Mary?", answer: str = "home") -> Story:
    return Story(sentences, question, answer, "qa.txt, line 9")


LONG = [
    story(*(f"{NAMES[i % 4]} went to place{i}." for i in range(count)), answer=f"place{count - 1}")
    for count in (1, 4, 10, 20, 20, 30)
]


def made(stories: list[Story] = LONG, **more: Any) -> Babi:
    return Babi.prepare(BabiData(**more), Dataset(stories, [], "", {}))


def texts(task: Babi, examples: EncodedStories, row: int) -> list[str]:
    """The sentences of a row as they reach the model; `-` is an empty one."""
    batch = task.batch(examples, np.array([row]))
    said = [" ".join(task.classes[i] for i in words if i) for words in batch.ids[0].tolist()]
    return [text or "-" for text in said[: batch.lengths[0]]]


def test_the_question_comes_first_then_the_newest_sentence() -> None:
    task = made()
    wanted = [f"{NAMES[i % 4]} went to place{i}" for i in range(4)]
    assert texts(task, task.encode(LONG), 1) == ["where is mary", *reversed(wanted)]
    batch = task.batch(task.encode(LONG), np.array([0, 2, 1]))
    assert (tuple(batch.ids.shape), batch.lengths) == ((3, 11, 4), (2, 11, 5))
    assert [task.classes[i] for i in batch.answers] == ["place0", "place9", "place3"]


def test_a_story_beyond_the_memory_loses_its_oldest_sentences() -> None:
    task = made(memory=3)
    assert texts(task, task.encode(LONG), 2)[1:] == [f"{NAMES[i % 4]} went to place{i}" for i in (9, 8, 7)]
    assert task.find_too_long(LONG) == [1, 2, 3, 4, 5]
    assert task.explain_cut(LONG[2]) == "has 10 sentences, and the model remembers 3; the oldest are left out"


@pytest.mark.parametrize("memory", [50, 21])
def test_random_noise(memory: int) -> None:
    """Up to a tenth of empty sentences; the others keep their order. New in each epoch, whatever batch an example is in."""
    task = made(memory=memory)
    examples = task.encode(LONG)
    for epoch in range(10):
        noisy = task.augment(examples, 1, epoch)
        for row, one in enumerate(LONG):
            said, still = texts(task, noisy, row), texts(task, examples, row)
            kept = [text for text in said if text != "-"]
            assert kept == still[: len(kept)]
            count = len(one.sentences)
            assert len(said) <= min(1 + count + -(-count // 10), 1 + memory)
            assert len(kept) == len(still) or len(said) == 1 + memory
    noise = [task.augment(examples, 1, epoch) for epoch in range(300)]
    gaps = {i for one in noise for i, slot in enumerate(one.slots[3, : one.counts[3]]) if slot == EMPTY}
    assert gaps == {*range(1, min(23, memory + 1))}, "empty sentences come anywhere, but not before the question"
    assert {int(one.counts[3]) for one in noise} == {21, 22, 23} - ({23} if memory < 22 else set())
    again, other = (task.augment(examples, 1, epoch) for epoch in (0, 1))
    assert np.array_equal(again.slots, task.augment(examples, 1, 0).slots)
    assert again.slots.shape != other.slots.shape or not np.array_equal(again.slots, other.slots)
    together = task.batch(again, np.arange(6)).ids[3]
    alone = task.batch(again, np.array([3])).ids[0]
    assert torch.equal(together[: len(alone)], alone)


def test_without_noise_and_in_validation_nothing_is_added() -> None:
    task = made(random_noise=0.0)
    examples = task.encode(LONG)
    assert task.augment(examples, 1, 0) is examples
    assert (examples.words[EMPTY] == 0).all()


def test_training_batches_have_equally_many_questions() -> None:
    task = made(LONG * 3)
    examples = task.encode(LONG * 3)
    order = task.order_batches(examples, tokens=4, seed=1)
    epochs = [order.epoch(e) for e in range(30)]
    assert all([len(batch) for batch in batches] == [4] * 4 for batches in epochs)
    assert {int(i) for batches in epochs for batch in batches for i in batch} == {*range(18)}
    seen = task.order_batches(examples, tokens=4, seed=1, evaluate=True).epoch(0)
    assert sorted(int(i) for batch in seen for i in batch) == [*range(18)]


def test_the_answer_comes_with_the_sentence_each_hop_looked_at() -> None:
    task = made()
    net = task.adapt_spec(memn2n.spec(width=6, **task.model_arguments())).build(seed=1).double().eval()
    batch = task.batch(task.encode(LONG), np.arange(6))
    with torch.no_grad():
        told = net.logits(net(batch.ids, batch.at)[:, 0]).log_softmax(-1)
    for row, one, (best,) in zip(told, LONG, task.run(TorchEngine(net), LONG, Search()), strict=True):
        assert best.text == task.classes[int(row.argmax())]
        assert best.log_prob == pytest.approx(float(row.max()), abs=1e-5)
        hops = best.more["hops"]
        assert [hop["hop"] for hop in hops] == [1, 2, 3]  # type: ignore[attr-defined]
        assert all(hop["sentence"] in one.sentences for hop in hops)  # type: ignore[attr-defined]
        assert len(best.explanation) == 3
    weights, labels, _ = task.forward_pass(net, str(LONG[1]), "place3").attention(net)
    assert labels == ["Where is Mary?", *(f"{NAMES[i % 4]} went to place{i}." for i in (3, 2, 1, 0))]
    (best,) = task.run(TorchEngine(net), [LONG[1]], Search())[0]
    for i, hop in enumerate(best.more["hops"]):  # type: ignore[arg-type]
        looked = weights[f"encoder.hops.{i}"][0, 0]
        assert labels[int(looked.argmax())] == hop["sentence"]
        assert float(looked.max()) == pytest.approx(hop["weight"], abs=1e-6)
    assert task.score(TorchEngine(net), [LONG[1]], ["place3"])[0] == pytest.approx(
        float(told[1, task.classes.index("place3")]), abs=1e-5
    )
    alone = task.run(TorchEngine(net), ["Where is Mary?"], Search())[0][0]
    assert alone.explanation == [] and alone.more["hops"] == []


def test_the_linear_start_goes_by_the_step_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, real = list[bool](), MemoryHopsBody.forward

    def watch(self: MemoryHopsBody, *given: Any) -> Any:
        if self.training:
            seen.append(self.is_linear)
        return real(self, *given)

    monkeypatch.setattr(MemoryHopsBody, "forward", watch)
    (tmp_path / "qa.txt").write_text("".join(f"{line}\n" for line in STORY * 8))
    small = {"train.steps": 5, "train.epochs": None, "model.width": 6, "model.linear_start": 3, "train.threads": 1}
    regard.train("babi", [str(tmp_path / "qa.txt")], out=tmp_path / "run", set=small, quiet=True)
    assert "".join("LS"[not one] for one in seen).strip("S") == "LLL", (
        "three linear steps, then softmax, also in trial runs"
    )
    assert seen[seen.index(True) :].count(False) >= 2


def test_what_is_refused(tmp_path: Path) -> None:
    task = made()
    with pytest.raises(DataError, match=r"^no training data; name one or more files of bAbI"):
        Babi.read(BabiData(), 1)
    with pytest.raises(SpecError, match=r"^stories need a model that reads sentences; use model\.family: memn2n$"):
        task.adapt_spec(bert.spec(width=16, depth=1, heads=2, vocab=9, length=16))
    known = len(task.classes)
    with pytest.raises(
        SpecError, match=rf"^the model knows 9 words and 50 sentences, and the data has {known} and .*50$"
    ):
        task.adapt_spec(memn2n.spec(vocab=9))
    with pytest.raises(
        DataError, match=r"^qa\.txt, line 9: the model does not know the word 'mari'; did you mean 'mary'\?$"
    ):
        task.encode([story("Mari went home.")])
    with pytest.raises(DataError, match=r"^qa\.txt, line 9: the model does not know the word '<none>'"):
        task.encode([story("<none> went home.")])
    with pytest.raises(DataError, match=r"^the model does not know the word 'nowhere'"):
        task.score(TorchEngine(memn2n.spec(width=6, **task.model_arguments()).build()), [LONG[0]], ["nowhere"])
    (tmp_path / "qa.txt").write_text("1 Mary left.\n2 Where is Mary? \tout\t1\n")
    with pytest.raises(DataError, match=r"^1 question is not enough to hold some out; name a file for validation$"):
        Babi.read(BabiData(train=(str(tmp_path / "qa.txt"),)), 1)
    assert dataclasses.asdict(Babi.load(BabiData(), task.files()).settings) == dataclasses.asdict(task.settings)


def test_the_recipe_on_the_command_line(tmp_path: Path) -> None:
    """It learns a tiny world by heart, answers, shows where it looked, and refuses in one line what it cannot read."""
    rows = []
    for i in range(60):
        who, other, place = NAMES[i % 4], NAMES[(i + 1) % 4], ("home", "out", "away")[i % 3]
        rows += [f"1 {other} sat.", f"2 {who} went {place}.", f"3 Where is {who}? \t{place}\t2"]
    path = tmp_path / "qa.txt"
    path.write_text("".join(f"{row}\n" for row in rows))
    small = settings("train.epochs=60", "model.linear_start=30", "train.schedule={kind: constant, lr: 0.3}",
                     "train.batch_tokens=9", "train.threads=1", "model.width=12")  # fmt: skip
    out = tmp_path / "run"
    assert call("train", "babi", path, "--out", out, *small, "--quiet").code == 0
    assert "100.00" in call("eval", out, path, "--samples", "5").out
    said = call("run", out, "john sat. mary went away. Where is mary?")
    answer, *hops = said.lines
    assert answer == "away" and len(hops) == 3
    assert hops[0].startswith("  hop 1 looks at  mary went away.  (")
    counted = call(
        "run", out, stdin=b"john sat. mary went away. Where is mary?\nmary sung. Where is mary?\nmary sat.\n"
    )
    assert (counted.lines, counted.code) == (["away", "", ""], 2)
    assert "input 2 has no output: the model does not know the word 'sung'" in counted.err
    assert "input 3 has no output: a story should end with a question" in counted.err
    long = call("run", out, f"{'john sat. ' * 60}mary went away. Where is mary?", "--json")
    assert (
        "input 1 has 61 sentences, and the model remembers 50; the oldest are left out, here and in later" in long.err
    )
    assert [hop["hop"] for hop in json.loads(long.out)["outputs"][0]["hops"]] == [1, 2, 3]
    path.write_text("1 Mary went home.\n3 Where?\tout\n")
    bad = call("train", "babi", path, "--out", tmp_path / "none")
    assert bad.err.endswith(f"regard: {path}, line 2: the number should be 2, or 1 for a new story, got 3\n")
