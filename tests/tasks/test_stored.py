"""A corpus kept on disk is the corpus in memory: the same tokens, the same training to the bit, in a bounded space."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from regard.data import line_store, pairs
from regard.data.pairs import Pairs
from regard.tasks import translate
from regard.tasks.common import encoded_pairs
from regard.tasks.common.encoded_pairs import EncodedPairs
from regard.tasks.common.task import Dataset
from regard.tasks.translate import Translate, TranslateData
from regard.text import Chars, Tokenizer
from regard.training.recipe import Recipe
from regard.training.run.run_folder import open_run
from regard.training.train import run_training
from tests.training.small import ROWS, events, on_files, traces

LONG = Pairs([f"{i} {'x' * (i % 9)}" for i in range(11)], [f"{i}" * (1 + i % 2) for i in range(11)], tag="2de")
SHORT = Pairs(["a", "b", "c"], ["x", "y", "z"], weight=2.0, name="short")
RAW = [LONG, SHORT]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of three pairs: LONG is four of them, SHORT one."""
    monkeypatch.setattr(encoded_pairs, "CHUNK", 3)


def made(raw: Sequence[Pairs] = RAW, **settings: Any) -> Translate:
    settings = {"tokenizer": Chars(), "metrics": ("loss",), "max_length": 10, **settings}
    return Translate.prepare(TranslateData(**settings), Dataset(raw, [], "", {}))


def plain(rows: EncodedPairs) -> list[Any]:
    groups = None if rows.groups is None else rows.groups.tolist()
    sides = [[row.tolist() for row in side] for side in (rows.source, rows.target)]
    return [*sides, rows.lengths.tolist(), groups, rows.shares, rows.left_out]


@pytest.mark.parametrize("raw", [RAW, [LONG], [SHORT, LONG]])
def test_what_is_stored_is_what_is_encoded(tmp_path: Path, raw: list[Pairs]) -> None:
    task = made()
    wanted = task.encode(raw)
    assert wanted.left_out == 2  # 7 and 8 have more x than fit
    assert len(wanted) == sum(map(len, raw)) - 2
    for _ in range(2):
        assert plain(task.encode_to(tmp_path, raw, "one")) == plain(wanted)


def test_a_corpus_that_is_learned_from_no_more_is_not_in_what_was_stored(tmp_path: Path) -> None:
    """All texts are the same as before; one corpus is now judged by."""
    task = made()
    task.encode_to(tmp_path, [SHORT, LONG], "one")
    assert plain(task.encode_to(tmp_path, [SHORT], "one")) == plain(task.encode([SHORT]))


def counting(monkeypatch: pytest.MonkeyPatch, stop: int | None = None) -> list[int]:
    """How many texts each call of the tokenizer gets; at call `stop` it fails."""
    calls: list[int] = []
    encode = Tokenizer.encode_all

    def counted(self: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        if len(calls) == stop:
            raise KeyboardInterrupt
        calls.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(Tokenizer, "encode_all", counted)
    return calls


@pytest.mark.parametrize("stop", range(10))
def test_preparation_goes_on_where_it_was_stopped(tmp_path: Path, stop: int) -> None:
    task = made()
    wanted = plain(task.encode(RAW))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("regard.data.token_store.AHEAD", 1)
        counting(patch, stop)
        task.encode_to(tmp_path, RAW, "one")
    with pytest.MonkeyPatch.context() as patch:
        calls = counting(patch)
        assert plain(task.encode_to(tmp_path, RAW, "one")) == wanted
    assert len(calls) == 10 - stop // 2 * 2  # two calls a chunk


@pytest.mark.parametrize("changed", ["corpus", "vocabulary", "max_length"])
def test_tokens_of_another_corpus_or_vocabulary_are_made_again(tmp_path: Path, changed: str) -> None:
    task = made()
    task.encode_to(tmp_path, RAW, "one")
    other = {"vocabulary": made([LONG]), "max_length": made(max_length=6)}.get(changed, task)
    with pytest.MonkeyPatch.context() as patch:
        calls = counting(patch)
        raw = [LONG] if changed == "vocabulary" else RAW
        again = other.encode_to(tmp_path, raw, "two" if changed == "corpus" else "one")
    assert calls
    assert plain(again) == plain(other.encode(raw))


def test_a_vocabulary_is_learned_from_a_sample_where_there_is_more_than_enough(tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(ROWS))
    settings = TranslateData.parse({"train": [{"paths": [str(table)]}], "tokenizer": {"kind": "words", "min_count": 1}})
    whole = Translate.prepare(settings, Translate.read(settings, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translate, "MAX_VOCABULARY_PAIRS", 20)
        patch.setattr(pairs.sample_pairs, "__defaults__", (20,))
        raw = Translate.read(settings, 1)
        some = Translate.prepare(settings, raw)
    assert raw.messages[-1] == "vocabulary: if one is trained, from 20 of the 38 pairs, chosen at random"
    assert some.tokenizer.size < whole.tokenizer.size


def test_a_run_is_the_same_to_the_bit_whether_its_texts_are_in_memory_or_in_a_file(tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(ROWS))
    found = []
    for room in (1 << 26, 0):
        out = tmp_path / f"run-{room}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(line_store, "ROOM", room)
            run_training(on_files(out, table))
        found.append(traces(out))
    assert found[0] == found[1]


def test_a_run_that_goes_on_encodes_its_corpus_no_more(tmp_path: Path) -> None:
    table, out = tmp_path / "pairs.tsv", tmp_path / "run"
    table.write_text("".join(ROWS))
    order = on_files(out, table, data__metrics=["loss"])
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        counting(patch, 7)
        run_training(order)
    vocabulary = (out / "vocabulary" / "tokenizer.json").stat()
    with pytest.MonkeyPatch.context() as patch:
        first = counting(patch)
        run_training(order)
    with pytest.MonkeyPatch.context() as patch:
        second = counting(patch)
        run_training(order)
    assert 0 < sum(first) < 2 * len(ROWS)
    assert second == []
    assert (out / "vocabulary" / "tokenizer.json").stat().st_mtime_ns == vocabulary.st_mtime_ns
    assert [event["step"] for event in events(out, "done")] == [12]


CHILD = """
import sys, threading, time
from pathlib import Path

import numpy as np

from regard.data import line_store
from regard.data.corpus_stats import describe_corpus
from regard.data.ragged import Ragged
from regard.data.pairs import fingerprint, split_pairs
from regard.data.pair_reader import Corpus, read_corpus
from regard.data.token_store import TokenStore, fill_store

line_store.ROOM, peak = 1 << 22, 0
def anonymous():
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1024
def watch():
    global peak
    while True:
        peak = max(peak, anonymous())
        time.sleep(0.002)

folder, before = Path(sys.argv[1]), anonymous()
threading.Thread(target=watch, daemon=True).start()
pairs = read_corpus(Corpus((str(folder / "a"), str(folder / "b"))))
train, valid = split_pairs(pairs, seed=1)
describe_corpus(train), describe_corpus(valid, train=[train]), fingerprint(train, valid)
read_in = peak
rows = Ragged(np.arange(1 << 18, dtype=np.int32), np.arange(1 << 8, (1 << 18) + 1, 1 << 8))
source, = fill_store(TokenStore(folder / "tokens", ["source"], {}), range(100), lambda job: [rows])
for place in range(0, len(source), 50):
    source.take([place, len(source) - place - 1])
print(read_in - before, peak - before, (len(source.ids) * 4) >> 20)
"""


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell how much memory is whose")
    text = "ä" * 1000
    for name in "ab":  # 80 MB as Python keeps them
        (tmp_path / name).write_text("".join(f"{i}{name}{text}\n" for i in range(40_000)), encoding="utf-8")
    words = [sys.executable, "-c", CHILD, str(tmp_path)]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    reading, all_of_it, tokens = map(float, told.split())
    assert tokens == 100
    assert 0 < reading < 30
    assert all_of_it < 30


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, {"tokens", "vocabulary"}),
        ({"facts": {"fingerprint": "other"}}, {"tokens"}),
        ({"recipe": {"train": {"steps": 8}}}, {"tokens"}),
        ({"fresh": True}, set()),
    ],
    ids=["the same", "another corpus", "another recipe", "fresh"],
)
def test_what_an_interrupted_run_had_prepared_is_kept_while_it_is_good(
    tmp_path: Path, changes: dict[str, Any], left: set[str]
) -> None:
    recipe: dict[str, Any] = {"task": "translate", "model": {"family": "transformer"}, "train": {"steps": 9}}
    facts = {"fingerprint": "one", "threads": 1, "torch": "2"}
    open_run(tmp_path, Recipe.parse(recipe), facts)
    for name in ("tokens", "vocabulary"):
        (tmp_path / name).mkdir()
    now = Recipe.parse(recipe | changes.get("recipe", {}))
    open_run(tmp_path, now, facts | changes.get("facts", {}), fresh=changes.get("fresh", False))
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} - {".before"} == left
