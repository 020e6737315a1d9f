"""Summaries: what is read of a text, lengths that can be asked for, lead-1 beside the score, and bad rows by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.api.light_model import _open_frame
from regard.api.open_light import open_light
from regard.data.pairs import Pairs
from regard.errors import CheckpointError, SpecError
from regard.files.folder import read_folder
from regard.tasks.common.pairs_frame import TextPairsOptions
from regard.tasks.summarize import Summarize, SummarizeData
from regard.text import Chars, Tokenizer, Words
from tests.training.small import TINY
from tests.verbs.calling import call

pytestmark = pytest.mark.numeric

TEXTS = [
    f"The tool {name} reads files. It has {i} options." for i, name in enumerate(("abc", "bcd", "cde", "def") * 10)
]
SUMMARIES = [f"{text.split()[2]} reads" + (" many files" if i % 3 else "") for i, text in enumerate(TEXTS)]
ROWS = list(zip(TEXTS, SUMMARIES, strict=True))


def made(**settings: Any) -> Summarize:
    tokenizer = Tokenizer.train([*TEXTS, *SUMMARIES, "short: medium: long: summarize:"], Words(min_count=1))
    return Summarize(SummarizeData(**settings), tokenizer)


def train(folder: Path, *words: str, rows: str | None = None, name: str = "pairs.tsv") -> Any:
    path = folder / name
    if rows is not None or not path.exists():
        path.write_text("".join(f"{a}\t{b}\n" for a, b in ROWS) if rows is None else rows)
    given = [w for key, value in TINY.items() for w in ("--set", f"{key}={json.dumps(value)}")]
    return call("train", "summarize", path, "--out", folder / "run", *given, "--set", "train.steps=4", *words)


def test_the_beginning_of_a_long_text_is_read_and_no_pair_is_left_out() -> None:
    task = made(max_length=8)
    rows = task.encode([Pairs(TEXTS, SUMMARIES)])
    assert len(rows) == len(TEXTS) and rows.left_out == 0
    assert max(rows.source.lengths) == 7
    assert task.find_too_long([TEXTS[0], "The tool"]) == [0]
    assert task.split(TEXTS[0]) == [TEXTS[0]], "it is not read in parts"
    (ids,) = task.encode_inputs([TEXTS[0]], TextPairsOptions())
    assert ids == [*rows.source[0].tolist(), task.tokenizer.eos]


def test_a_prefix_is_part_of_every_input() -> None:
    task = made(prefix="summarize: ")
    front = task.tokenizer.encode("summarize: ")
    assert task.encode_inputs(["The tool"], TextPairsOptions()) == [
        [*front, *task.tokenizer.encode("The tool"), task.tokenizer.eos]
    ]
    assert task.encode([Pairs(TEXTS, SUMMARIES)]).source[3].tolist()[: len(front)] == front


def test_lengths_are_told_to_every_second_text() -> None:
    task = made(lengths=[2, 3], prefix="summarize: ")
    assert task.tags == ["short", "medium", "long"]
    rows = task.encode([Pairs(TEXTS, SUMMARIES)])
    words = {tag: task.tokenizer.encode(f"{tag}: summarize: ") for tag in task.tags}
    plain = task.tokenizer.encode("summarize: ")
    for i, summary in enumerate(SUMMARIES):
        count = len(summary.split())
        wanted = words["short" if count <= 2 else "medium" if count <= 3 else "long"] if i % 2 else plain
        assert rows.source[i].tolist()[: len(wanted)] == wanted
    (asked,) = task.encode_inputs(["The tool"], TextPairsOptions(tag="2long"))
    assert asked[: len(words["long"])] == words["long"]
    assert made().tags == []


def test_stored_tokens_depend_on_prefix_and_lengths(tmp_path: Path) -> None:
    pairs = [Pairs(TEXTS, SUMMARIES)]
    for task in (made(), made(prefix="summarize: "), made(lengths=[2, 3]), made(lengths=[1, 2]), made()):
        stored, wanted = task.encode_to(tmp_path, pairs, "x"), task.encode(pairs)
        assert [*map(list, stored.source)] == [*map(list, wanted.source)]


def test_the_first_sentence_is_the_baseline() -> None:
    name, outputs = made().make_baseline(["One. Two.", "Is it 3.5? Yes.", "no stop", ""])
    assert (name, outputs) == ("lead-1", ["One.", "Is it 3.5?", "no stop", ""])


def test_refusals() -> None:
    with pytest.raises(
        SpecError, match=r"lengths should be two increasing numbers of words, such as \[6, 9\], got \[5, 5\]"
    ):
        SummarizeData(lengths=(5, 5))
    with pytest.raises(SpecError, match="the prefix has 12 tokens, and max_length is 16; raise it"):
        Summarize(SummarizeData(prefix="summarize it", max_length=16), Tokenizer.train(["summarize it"], Chars()))


class TestCommands:
    """A folder with a table, one command to train and one to use."""

    def test_from_a_table_to_summaries(self, tmp_path: Path) -> None:
        said = train(tmp_path, "--set", "data.lengths=[2, 3]", "--set", "data.tokenizer=chars")
        assert said.code == 0, said.err
        assert "filters" not in said.err + said.out
        run = tmp_path / "run"
        assert "the native engine has no PointerHead" in call("show", run).out
        short = call("run", run, "--to", "short", "--beam", "1", stdin="\n".join(TEXTS[:3]).encode())
        assert len(short.lines) == 3 and short.code == 0
        assert "short, medium, long" in call("run", run, "--to", "tiny", "x").err
        found = regard.evaluate(run, tmp_path / "pairs.tsv", device="cpu")
        assert [row.model for row in found.models] == [str(run), "lead-1 (baseline)"]
        lead = found.models[1]
        assert list(lead.scores) == ["rouge_l", "rouge1", "rouge2"] and lead.scores["rouge_l"].score > 20
        assert "lead-1 (baseline)" in found.render()
        assert [row.model for row in regard.evaluate(run, tmp_path / "pairs.tsv", metrics=["loss"]).models] == [
            str(run)
        ]

    def test_a_bad_row_is_named_by_line(self, tmp_path: Path) -> None:
        rows = [f"{a}\t{b}\n" for a, b in ROWS]
        rows[6] = "a text without a summary\n"
        said = train(tmp_path, rows="".join(rows))
        assert said.code != 0 and "pairs.tsv, line 7" in said.err and "Traceback" not in said.err

    def test_columns_by_position_and_by_key(self, tmp_path: Path) -> None:
        three = "".join(f"p{i}\t{a}\t{b}\n" for i, (a, b) in enumerate(ROWS))
        assert train(tmp_path, "--set", "data.columns=[2, 3]", rows=three).code == 0
        keys = "".join(json.dumps({"id": i, "body": a, "title": b}) + "\n" for i, (a, b) in enumerate(ROWS))
        (tmp_path / "j").mkdir()
        assert train(tmp_path / "j", "--set", 'data.columns=["body", "title"]', rows=keys, name="x.jsonl").code == 0
        assert regard.load(tmp_path / "j" / "run").task.settings.columns == ("body", "title")

    def test_the_native_engine_and_long_texts(self, tmp_path: Path) -> None:
        """A plain head runs without torch, and reads prefix and lengths as torch does; the encoder may be windowed."""
        settings = {
            "data.tokenizer": "chars",
            "model.head.kind": "vocab",
            "data.max_length": 40,
        }
        settings |= {"data.prefix": "sum: ", "data.lengths": [2, 3]}
        said = train(tmp_path, *(w for k, v in settings.items() for w in ("--set", f"{k}={json.dumps(v)}")))
        assert said.code == 0, said.err
        light, heavy = open_light(str(tmp_path / "run"), device="cpu"), regard.load(tmp_path / "run", engine="torch")
        if light is None:
            pytest.skip("the native engine is not compiled")
        for to in (None, "long"):
            lazy = [batch for model in (light, heavy) for batch in model.run_lazily(TEXTS[:4], beam=2, to=to)]
            one, other = ([outputs[0].text for _, outputs in batch] for batch in lazy)
            assert one == other
        folder = read_folder(tmp_path / "run" / "final")
        plan = json.loads(folder["engine.json"])
        plan["frame"]["prompts"] = {"": [-1]}
        with pytest.raises(CheckpointError, match="it does not say how texts become tokens"):
            _open_frame(plan, folder)
        long = tmp_path / "long"
        long.mkdir()
        windowed = "model.encoder.block.mix={kind: local, heads: 2, reach: 4}"
        said = train(long, "--set", windowed, "--set", "data.max_length=400")
        assert said.code == 0, said.err
        assert regard.load(long / "run").run([" ".join(TEXTS)], beam=1) is not None
