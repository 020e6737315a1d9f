"""Code completion: what is read and drawn, tokens of Python counted again by hand, cursors, and that middles are learned."""

from __future__ import annotations

import io
import json
import math
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.data.batch import IGNORE
from regard.data.cursor import Cursor
from regard.decode import Search
from regard.decode.decode_request import Hypothesis
from regard.engine.torch_engine import TorchEngine
from regard.errors import DataError, SpecError
from regard.families import gpt, llama
from regard.metrics import METRICS
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.tasks.code import Code, CodeData, CodeOptions, CodeRows
from regard.tasks.common.losses import count_losses
from regard.tasks.common.task import Dataset
from regard.tasks.common.text_corpus import Texts
from regard.text import Bpe, ByteBpe, Bytes, Normalize, Tokenizer
from tests.verbs.calling import call

pytestmark = pytest.mark.numeric

SOURCES = [
    'def area(width, height):\n    """The area of a rectangle."""\n    return width * height\n',
    "for name in names:\n\tif name.startswith('é'):\r\n\t\tprint(name)  # 日本\n",
    "class Point:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n\n    def norm(self):\n        return 1\n",
]
EXACT = Normalize(unicode="none", spaces=False)
GREEDY = Search(beam=1, max_extra=12)


def made(**changes: Any) -> Code:
    data = {
        "tokenizer": ByteBpe(vocab=300, normalize=EXACT, leading_space=False),
        "context": 200,
        "lines": 6,
        **changes,
    }
    return Code.prepare(CodeData(**data), Dataset(Texts(SOURCES, training=True), Texts(SOURCES), "", {}))


@pytest.fixture(scope="module")
def task() -> Code:
    return made()


@pytest.fixture(scope="module")
def net(task: Code) -> Net:
    return gpt.spec(width=16, depth=1, heads=2, hidden=32, dropout=0.0, **task.model_arguments()).build(1).eval()


# ------------------------------------------------------------------------------------------------ text and windows


@settings(max_examples=200, deadline=None)
@given(st.text(), st.text())
def test_every_text_comes_back_wherever_it_is_cut(one: str, other: str) -> None:
    """Spaces, tabs, line ends, text that spells a special token: the bytes are those of the text."""
    for text in (one, f"\t{one}\r\n   {other} ", f"<fim_middle>{other}</s>"):
        assert TOKENIZER.decode(TOKENIZER.encode(text)) == text
        assert not TOKENIZER.marks & {*TOKENIZER.encode(text)}
    assert TOKENIZER.decode(TOKENIZER.encode(one) + TOKENIZER.encode(other)) == one + other


TOKENIZER: Tokenizer = made().tokenizer


def test_every_source_of_the_standard_library_comes_back() -> None:
    for name in ("textwrap", "json.decoder", "keyword"):
        module = __import__(name, fromlist=["x"])
        text = Path(str(module.__file__)).read_bytes().decode()
        assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def rows_of(task: Code, examples: CodeRows, indices: Sequence[int]) -> list[list[int]]:
    """The tokens of windows, one window a row."""
    batch, out = task.batch(examples, np.array(indices)), []
    for row, n in enumerate(batch.given.lengths):
        given, wanted = batch.given.ids[row, :n].tolist(), batch.wanted[row, :n].tolist()
        assert given[1:] == wanted[:-1]
        out.append([*given, wanted[-1]])
    return out


def test_a_rearranged_window_is_a_part_of_its_file() -> None:
    task = made(context=40, pack=False, stride=7, fim={"rate": 1.0})
    assert task.sentinels is not None
    whole = task.encode(Texts(SOURCES, training=True))
    drawn, rearranged = task.augment(whole, 1, 0), 0
    assert isinstance(drawn, CodeRows)
    for ids in rows_of(task, drawn, range(len(drawn))):
        rearranged += task.sentinels.middle in ids
        text = task.tokenizer.decode(task.sentinels.restore(ids))
        assert len(ids) <= 41
        assert any(text in source for source in SOURCES) or "\ufffd" in text
    assert rearranged > 0.6 * len(drawn), "but for those whose middle is nearly everything"


def test_as_many_windows_as_asked_for_and_none_in_validation() -> None:
    task = made(context=40, pack=False, stride=1, fim={"rate": 0.5, "split": "tokens"})
    assert task.sentinels is not None
    examples = task.encode(Texts(SOURCES * 8, training=True))
    full = [i for i in range(len(examples)) if examples.lengths[np.array([i])][0] == 40]
    drawn = rows_of(task, task.augment(examples, 3, 1), full)  # type: ignore[arg-type]
    count, n = sum(task.sentinels.middle in ids for ids in drawn), len(full)
    no_room = (1 / 41) ** 2 * 10  # of two cuts among 41 tokens, those with fewer than 4 tokens outside
    p = 0.5 * (1 - no_room)
    assert abs(count - n * p) < 4 * math.sqrt(n * p * (1 - p)), (count, n)
    plain = task.encode(Texts(SOURCES))
    assert not any(task.sentinels.middle in ids for ids in rows_of(task, plain, range(len(plain))))  # type: ignore[arg-type]


def test_windows_depend_on_seed_epoch_and_place_alone() -> None:
    task = made(context=40, fim={"rate": 1.0})
    examples = task.encode(Texts(SOURCES, training=True))

    def ids(seed: int, epoch: int, indices: list[int]) -> list[list[int]]:
        batch = task.batch(task.augment(examples, seed, epoch), np.array(indices))
        return [row[:n].tolist() for row, n in zip(batch.given.ids, batch.given.lengths, strict=True)]

    assert ids(1, 0, [0, 1])[1] == ids(1, 0, [1, 2])[0]
    assert len({str(ids(seed, epoch, [0])) for seed in (1, 2) for epoch in range(4)}) > 6


# ------------------------------------------------------------------------------------------------ tokens of Python


def count_by_hand(net: Net, task: Code, text: str) -> tuple[int, int]:
    """Right and all tokens of a file: every character knows its piece, and every token asks its characters."""
    ids = [task.tokenizer.bos, *task.tokenizer.encode(text), task.tokenizer.eos]
    right = list[bool]()
    for start in range(0, len(ids) - 1, task.settings.context):
        window = ids[start : start + task.settings.context + 1]
        with torch.no_grad():
            best = net.logits(net(torch.tensor([window[:-1]]), Coords.span(len(window) - 1)))[0].argmax(-1)
        right += [a == b for a, b in zip(best.tolist(), window[1:], strict=True)]
    owner, pieces = list[set[int]](), bytearray()
    for number, piece in enumerate(ids[1:-1]):
        raw = task.tokenizer.core.id_to_token(piece)
        for _ in raw:  # one letter per byte
            owner.append({number})
    for character in text:
        pieces += character.encode()
    assert bytes(pieces) == text.encode() and len(owner) == len(pieces)
    lines, good, count = text.split("\n"), 0, 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if not token.string:
            continue
        places = []
        for row, column in (token.start, token.end):
            before = "\n".join([*lines[: row - 1], lines[row - 1][:column]])
            place = len(before.encode())
            if row <= len(lines) and column > len(lines[row - 1]):
                place += 1  # the line end itself
            places.append(place)
        needed = {i for place in range(*places) for i in owner[place]}
        count += 1
        whole = len({i // task.settings.context for i in needed}) == 1  # cut by a window: counts as wrong
        good += whole and all(right[i] for i in needed)
    return good, count


@pytest.mark.parametrize(("context", "pack"), [(200, True), (200, False), (13, True)])
def test_tokens_counted_again_by_hand(context: int, pack: bool) -> None:
    task = made(context=context, pack=pack)
    net = gpt.spec(width=16, depth=1, heads=2, hidden=32, dropout=0.0, **task.model_arguments()).build(1)
    learn(net, task, 60)
    examples = task.encode(Texts(SOURCES))
    counts = count_losses(task, net, examples, tokens=400).rows["token_accuracy"].sum(0)
    by_hand = np.array([count_by_hand(net, task, text) for text in SOURCES]).sum(0)
    assert counts.tolist() == by_hand.tolist()
    assert (
        0
        < counts[0]
        < counts[1]
        == sum(bool(token.string) for text in SOURCES for token in tokenize.generate_tokens(io.StringIO(text).readline))
    )


def learn(net: Net, task: Code, steps: int, texts: Sequence[str] = SOURCES, lr: float = 0.02) -> None:
    examples = task.encode(Texts(texts, training=True))
    step = torch.optim.AdamW(net.parameters(), lr=lr)
    net.train()
    for epoch in range(steps):
        for group in step.param_groups:
            group["lr"] = lr * min((epoch + 1) / 10, 1) * (1 - epoch / steps)
        loss = task.loss(net, task.batch(task.augment(examples, 1, epoch), np.arange(len(examples))), 0.0)
        step.zero_grad()
        (loss.total / loss.tokens).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        step.step()
    net.eval()


def test_edit_similarity_is_the_ratio_that_others_report() -> None:
    score = METRICS["edit_similarity"].compute
    assert score(["abcd"], ["abcd"]) == 100.0
    assert score(["abcd"], ["abxd"]) == pytest.approx(75.0)  # of 8 characters, one deleted and one inserted
    assert score(["", "ab"], ["ab", "ab"]) == pytest.approx(50.0)


# ------------------------------------------------------------------------------------------------ at a cursor


def test_lines_to_complete_are_the_same_in_every_run(task: Code) -> None:
    (found,) = task.eval_sets(Texts(SOURCES))
    assert found == made(fim={"rate": 0.0}).eval_sets(Texts(SOURCES))[0], "a twin without middles is asked the same"
    assert len(found.references) == 6
    for cursor, rest in zip(found.inputs, found.references, strict=True):
        assert isinstance(cursor, Cursor)
        assert cursor.before + rest + str(cursor.after) in SOURCES
        assert rest.strip() and "\n" not in rest and str(cursor.after)[:1] in ("\n", "\r", "")
    assert task.eval_sets(Texts(["lonely\n\nwords\n"])) == []


def test_what_the_model_reads_at_a_cursor(task: Code) -> None:
    assert task.sentinels is not None
    text, s = SOURCES[0], task.sentinels
    cursor = Cursor(text[:30], text[40:])
    before, after = task.tokenizer.encode(text[:30]), task.tokenizer.encode(text[40:])
    whole = task._prompt(cursor, 200, 8, "psm")
    assert whole == [s.prefix, task.tokenizer.bos, *before, s.suffix, *after, task.tokenizer.eos, s.middle]
    assert task._prompt(cursor, 200, 8, "spm")[:2] == [s.prefix, s.suffix]
    short = task._prompt(cursor, 30, 9, "psm")
    assert len(short) == 21, "room for the middle"
    cut = short.index(s.suffix)
    assert short[1:cut] == before[-12:] and short[cut + 1 : -1] == after[:6], "two thirds before, one third after"
    assert task._prompt(Cursor(text[:30]), 200, 8, "psm") == [task.tokenizer.bos, *before]
    twin = made(fim={"rate": 0.0})
    assert twin._prompt(cursor, 200, 8, "psm") == [task.tokenizer.bos, *before], "it knows no middles"


def test_a_model_reads_in_an_order_that_it_learned(task: Code) -> None:
    assert task.sentinels is not None
    cursor = Cursor(SOURCES[0][:30], SOURCES[0][40:])
    assert task._prompt(cursor, 200, 8) == task._prompt(cursor, 200, 8, "spm")
    for spm, other, known in ((0.0, "spm", "psm"), (1.0, "psm", "spm")):
        alone = made(fim={"spm": spm})
        assert alone._prompt(cursor, 200, 8) == task._prompt(cursor, 200, 8, known)
        with pytest.raises(
            SpecError, match=rf"^the model never learned the order {other}: it was trained with data\.fim\.spm={spm:g}$"
        ):
            alone._prompt(cursor, 200, 8, other)


def test_completions(task: Code, net: Net) -> None:
    text = SOURCES[0]
    inputs = [Cursor(text[:30], text[40:]), "def ", Cursor(text[:30]), Cursor(text[:30], "")]
    among = task.run(TorchEngine(net), inputs, GREEDY)
    alone = [task.run(TorchEngine(net), [each], GREEDY)[0] for each in inputs]
    assert [a[0].text for a in among] == [a[0].text for a in alone]
    assert "\n" not in among[2][0].text, "without what comes after, the rest of the line"
    for order in ("psm", "spm"):
        options = CodeOptions(lines=2, order=order)
        assert task.run(TorchEngine(net), inputs[:1], GREEDY, options)[0][0].text.count("\n") <= 1
    limited = task.run(TorchEngine(net), inputs[:1], Search(beam=1, max_extra=3))[0][0]
    assert among[0][0].text.startswith(limited.text.rstrip("\ufffd"))
    assert task.run(TorchEngine(net), inputs[:1], Search(beam=1, max_extra=0))[0][0].text == ""


def test_a_line_ends_before_both_characters_of_its_end(task: Code, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file with \\r\\n, the rest of a line has no \\r: the file has it already."""
    written = Hypothesis((*task.tokenizer.encode("x\r\ny\r\nz"),), -1.0, -1.0)
    monkeypatch.setattr(TorchEngine, "decode", lambda *_: [[written]])
    for lines, wanted in ((1, "x"), (2, "x\r\ny"), (9, "x\r\ny\r\nz")):
        assert task.run(TorchEngine(net), [Cursor("")], GREEDY, CodeOptions(lines=lines))[0][0].text == wanted


def test_a_long_line_is_written_in_rounds(task: Code, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = [Cursor("x = ")]
    once = task.run(TorchEngine(net), cursor, Search(beam=1, max_extra=40))[0][0]
    monkeypatch.setattr("regard.tasks.code.ROUND", 3)
    rounds = task.run(TorchEngine(net), cursor, Search(beam=1, max_extra=40))[0][0]
    assert rounds.text == once.text
    assert rounds.log_prob == once.log_prob or rounds.log_prob == pytest.approx(once.log_prob, abs=1e-4)
    drawn = [
        task.run(TorchEngine(net), cursor, Search(sample=True, beam=1, max_extra=9, seed=5))[0][0].text
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


def test_the_score_of_a_middle_is_the_sum_of_its_tokens(task: Code, net: Net) -> None:
    text, middle = SOURCES[0], SOURCES[0][30:40]
    cursor = Cursor(text[:30], text[40:])
    tokens = task.tokenizer.encode(middle)
    ids = [*task._prompt(cursor, 200, len(tokens), "spm"), *tokens]
    with torch.no_grad():
        told = net.logits(net(torch.tensor([ids]), Coords.span(len(ids))))[0].log_softmax(-1)
    places = range(len(ids) - len(tokens), len(ids))
    by_hand = sum(float(told[i - 1, ids[i]]) for i in places)
    assert task.score(TorchEngine(net), [cursor], [middle]) == [pytest.approx(by_hand, abs=1e-4)]
    assert task.score(TorchEngine(net), [text[:30], Cursor(text[:30])], [middle, middle])[0] == pytest.approx(
        task.score(TorchEngine(net), [Cursor(text[:30])], [middle])[0], abs=1e-4
    )
    long = SOURCES[0] * 150  # more than is encoded of a text
    (alone,) = task.score(TorchEngine(net), [Cursor(long)], ["def"])
    assert alone == pytest.approx(task.score(TorchEngine(net), [Cursor(long[len(long) // 2 :])], ["def"])[0], abs=1e-4)
    shown = task.forward_pass(net, cursor, middle)
    assert [i for i in shown.wanted[0].tolist() if i != IGNORE] == tokens
    with pytest.raises(DataError, match=r"the model has room for 100 tokens at a cursor, got \d+; give less text"):
        task.score(TorchEngine(net), [cursor], ["xyz" * 200])


def test_middles_are_learned_by_heart() -> None:
    """Whatever is cut out of three snippets is filled in again, from what is before it and after it."""
    snippets = ["a = b + 1\nreturn a\n", "if x:\n    y = 2\n", "for i in z:\n\tprint(i)\n"]
    task = made(context=60, pack=False, fim={"rate": 0.9})
    shape: dict[str, Any] = dict(width=48, depth=2, heads=4, hidden=96, tied=True, base=1e4)
    net = llama.spec(**shape, **task.model_arguments()).build(2)
    learn(net, task, 200, texts=snippets * 12, lr=0.01)
    cuts = [(text, a, b) for text in snippets for a in range(len(text)) for b in range(a + 1, len(text) + 1, 3)]
    found = task.run(
        TorchEngine(net), [Cursor(text[:a], text[b:]) for text, a, b in cuts], Search(beam=1, max_extra=30)
    )
    right = [each[0].text == text[a:b] for each, (text, a, b) in zip(found, cuts, strict=True)]
    assert sum(right) > 0.8 * len(right)
    assert task.run(TorchEngine(net), [Cursor("for i in z:\n\tpr", "(i)\n")], Search(beam=1))[0][0].text == "int"


# ------------------------------------------------------------------------------------------------ settings and files


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"tokenizer": Bpe(vocab=80, normalize=EXACT)},
            "needs a tokenizer that keeps every space, wherever a text is cut",
        ),
        ({"tokenizer": ByteBpe(vocab=300)}, "kind: byte_bpe, leading_space: false, normalize: "),
        ({"documents": "line"}, "data.documents: code is learned file by file, got 'line'; leave it out"),
        ({"stream": True}, "data.stream only reads from left to right; set data.fim.rate to 0, or leave out stream"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as error:
        made(**changes)
    assert said in str(error.value)


def test_another_tokenizer_and_one_without_sentinels() -> None:
    other = Tokenizer.train(SOURCES, Bytes(normalize=EXACT))
    assert Code(CodeData(fim={"rate": 0.0}), other).infills is False  # type: ignore[arg-type]
    with pytest.raises(
        SpecError, match=r"this vocabulary has no <fim_prefix>, <fim_suffix>, <fim_middle>; set data.fim.rate"
    ):
        Code(CodeData(), other)


def test_the_command_from_a_folder_to_a_completion(tmp_path: Path) -> None:
    """One command to train, one to complete, one to score; what is printed is the completion alone."""
    folder, run = tmp_path / "src", tmp_path / "run"
    folder.mkdir()
    for i in range(5):
        (folder / f"m{i}.py").write_text(SOURCES[i % 3])
    (folder / "bad.py").write_bytes(b"\xff")
    small = ["model.width=16", "model.depth=1", "model.heads=2", "model.hidden=32", "data.context=48", "data.lines=3"]
    small += ["data.tokenizer.vocab=300", "train.steps=3", "train.schedule.warmup=1", "decode.max_extra=5"]
    sets = [word for each in [*small, "train.threads=1"] for word in ("--set", each)]
    refused = call("train", "code", folder, "--out", run, "--quiet", *sets)
    assert (refused.code, "bad.py, line 1: not UTF-8 at byte 0" in refused.err) == (2, True)
    said = call("train", "code", folder, "--out", run, "--on-bad", "drop", *sets)
    assert said.code == 0, said.err
    assert "src: 4 files of " in said.err and "1 file is not UTF-8 text and left out: bad.py" in said.err
    assert f"use it:    regard run {run} --at FILE:LINE:COLUMN\n" in said.err
    file = folder / "m0.py"
    model = regard.load(run)
    completed = model.complete(SOURCES[0][:28], SOURCES[0][28:])
    assert call("run", run, "--at", f"{file}:2:4").out == f"{completed}\n"
    row = json.loads(call("run", run, "--at", f"{file}:2:4", "--json").out)
    assert [output["text"] for output in row["outputs"]] == [completed]
    assert "▮" in row["source"]
    for words, told in (
        (["--at", f"{file}:9:1"], f"regard: {file} has 4 lines, got line 9\n"),
        (["--at", f"{file}:2:99"], f"regard: line 2 of {file} has columns 1 to 35, got column 99\n"),
        (["--at", f"{folder}/no.py:2:9"], f"regard: cannot read {folder}/no.py: No such file or directory\n"),
        (["--at", "x"], "regard: --at takes FILE:LINE:COLUMN, such as main.py:12:8, got 'x'\n"),
        (
            ["--at", f"{file}:2:4", "text"],
            "regard: --at completes at one place, with a model of this machine; leave out ",
        ),
        (["--at", f"{folder}/bad.py:1:1"], f"regard: {folder}/bad.py, line 1: not UTF-8 at byte 0"),
    ):
        failed = call("run", run, *words)
        assert (failed.code, failed.out) == (2, "")
        assert failed.err.startswith(told) and failed.err.count("\n") == 1, failed.err
    scores = regard.evaluate(run, file, device="cpu").models[0].scores
    assert [*scores] == ["loss", "token_accuracy", "exact", "edit_similarity", "bits_per_byte", "unknown_tokens"]


def test_a_line_longer_than_the_model_reads_does_not_stop_training(tmp_path: Path) -> None:
    for i in range(4):
        (tmp_path / f"m{i}.py").write_text(f"x = [{'1, ' * 100}]\n" * 3)
    sets = {"train.steps": 2, "train.schedule.warmup": 1, "model.width": 16, "model.depth": 1, "model.hidden": 16}
    sets |= {"data.context": 32, "data.lines": 3, "data.tokenizer.vocab": 280, "decode.max_extra": 5}
    model = regard.train("code", [tmp_path], set=sets, out=tmp_path / "run", quiet=True)
    assert isinstance(model.complete("x = "), str)


def test_only_a_model_of_code_completes(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("to be or not to be " * 20)
    sets = {"train.steps": 2, "train.schedule.warmup": 1, "model.width": 16, "model.depth": 1, "model.hidden": 16}
    model = regard.train("gpt", [tmp_path / "x.txt"], set=sets, out=tmp_path / "run", quiet=True)
    with pytest.raises(SpecError, match=r"only a model of code \(task code\) completes at a cursor, got lm"):
        model.complete("to be")
    said = call("run", tmp_path / "run", "--at", f"{tmp_path}/x.txt:1:3")
    assert (said.code, said.err) == (2, "regard: only a model of code (task code) completes at a cursor, got lm\n")


def test_a_long_text_is_read_as_far_as_the_context(task: Code) -> None:
    """Also by a model without a limit, whose time grows with the square of what it reads."""
    net = llama.spec(width=8, depth=1, heads=2, hidden=16, vocab=task.tokenizer.size, length=64).build(1).eval()
    assert net.spec.room is None
    assert task.limit_room(net.spec.room) == task.settings.context
    assert (task.frame() or {})["context"] == task.settings.context
    long, short = "x = 1\n" * 5000, "x = 1\n" * 500
    search = Search(beam=1, max_extra=4)
    one, other = (task.run(TorchEngine(net), [text], search)[0][0].text for text in (long, short))
    assert one == other
