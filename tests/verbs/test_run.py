"""`regard run`: N lines in, N lines out, whatever the lines are; options that do something, or an error that says why not."""

from __future__ import annotations

import io
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

import regard
from regard.api.run_texts import choose_batch, resolve_search
from regard.decode import Search
from regard.errors import SpecError
from regard.tasks.common.seq2seq import TextPairsOptions
from regard.tasks.common.task import Output, RunOptions
from regard.verbs.lines import read_prompt, read_stdin, write_outputs
from tests.verbs.calling import UNKNOWN, call, shell, start

pytestmark = pytest.mark.numeric

ODD = [
    b"abc",
    b"",
    b"   ",
    b"\t",
    b"cab\r",
    b"\r",
    b"a\xffb",
    "🙂 abc 👩‍👩‍👧".encode(),
    b"a\x01\x1b[31mb\x7f",
    b"a\x00b",
    "a\u2028b\u0085c\x0bd".encode(),
    "\u200b".encode(),
    b"<s> </s> <pad> <unk>",
    b"abc",
]
"""Lines of every awkward kind; the first and the last are alike."""


def test_as_many_lines_as_came_in_in_their_order(model: Path) -> None:
    said = call("run", model, stdin=b"".join(line + b"\n" for line in ODD))
    assert said.code == 0
    texts = [line.removesuffix(b"\r").decode(errors="replace") for line in ODD]
    assert said.lines == [call("run", model, text).out[:-1] for text in texts]
    assert [out == "" for out in said.lines[:6]] == [False, True, True, True, False, True]
    assert said.lines[0] == said.lines[-1] != ""


def test_five_hundred_odd_lines_through_a_process_of_its_own(model: Path) -> None:
    draw = random.Random(7)
    alphabet = [*"abcdefghij" * 3, " ", "\t", "\r", "\0", "\x1b", "é", "\u0301", "字", "🙂", "\u2028", "\ufeff", "<s>"]
    lines = ["".join(draw.choices(alphabet, k=draw.choice((0, 1, 3, 12, 80)))).encode() for _ in range(500)]
    lines = [line + draw.choice((b"", b"", b"", b"\r", b"\xff", b"\xe2\x80")) for line in lines]
    said = shell("run", model, stdin=b"\n".join([*lines, b"last"]))
    assert said.code == 0
    assert len(said.lines) == 501
    for line, out in zip(lines[1:], said.lines[1:], strict=False):
        assert out == "" or line.decode(errors="replace").strip()
    assert "Traceback" not in said.err
    assert len(said.err.splitlines()) == 3  # a line was not UTF-8, one unknown, one too long: each is said once


@pytest.mark.parametrize(("given", "wanted"), [(b"", 0), (b"\n", 1), (b"abc", 1), (b"abc\n", 1), (b"abc\n\n", 2)])
def test_the_last_line_may_lack_its_newline(model: Path, given: bytes, wanted: int) -> None:
    said = call("run", model, stdin=given)
    assert (said.code, len(said.lines)) == (0, wanted)


def test_a_byte_order_mark_is_no_text(model: Path) -> None:
    assert call("run", model, stdin=b"\xef\xbb\xbfabc\n").out == call("run", model, stdin=b"abc\n").out


def test_bad_bytes_are_replaced_and_that_is_said_once(model: Path) -> None:
    said = call("run", model, "--json", stdin=b"abc\na\xffb\n\xfe\n")
    assert [json.loads(line)["source"] for line in said.lines] == ["abc", "a\ufffdb", "\ufffd"]
    assert said.err == (
        "regard: line 2 is not UTF-8; unreadable bytes become U+FFFD, here and in later lines\n"
        f"regard: input 3 {UNKNOWN}\n"
    )


def test_a_line_that_the_vocabulary_makes_nothing_of_is_said_once(model: Path) -> None:
    said = call("run", model, stdin="abc\n日本語です\nab 😀\nДобрый\n".encode())
    assert (said.code, len(said.lines), said.err) == (0, 4, f"regard: input 2 {UNKNOWN}\n")


def test_a_replacement_character_that_was_there_is_fine(model: Path) -> None:
    assert call("run", model, stdin="a\ufffdb\n".encode()).err == ""


def test_a_line_too_long_to_read_can_be_cut_and_that_is_said_once(model: Path) -> None:
    long = b"abcdefghij" * 10_000
    said = call("run", model, "--long", "cut", stdin=b"\nabc\n" + long + b"\nabc\n" + long + b"\n")
    assert (said.code, len(said.lines)) == (0, 5)
    assert said.err == (
        "regard: input 3 is longer than the model can read; the end is left out, here and in later inputs\n"
    )
    assert said.lines[2] == said.lines[4] == call("run", model, "--long", "cut", "abcdefghij" * 7).out[:-1]


def test_what_is_cut_is_what_the_task_cuts(model: Path) -> None:
    handle = regard.load(model)
    room = handle.task.settings.max_length - 1
    texts = ["a" * room, "a" * (room + 1)]
    assert handle.task.find_too_long(texts) == [1]
    assert handle.task.find_too_long(texts, TextPairsOptions(tag="2de")) == [0, 1]
    with mock.patch.object(type(handle.engine), "decode", return_value=[[], []]) as decode:
        handle.run(texts, long="cut")
    assert [len(source) for source in decode.call_args.args[0].sources] == [room + 1, room + 1]  # with the end mark


def test_texts_as_arguments(model: Path) -> None:
    said = call("run", model, "abc", "", "two\nlines", "cab")
    assert said.code == 0
    assert len(said.lines) == 4
    assert said.lines[1] == ""
    assert [said.lines[0]] == call("run", model, stdin=b"abc\n").lines


def test_a_file_that_is_named_as_a_text_is_told(model: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("abc\n")
    said = call("run", model, tmp_path / "lines")
    assert len(said.lines) == 1
    assert f"regard: {tmp_path / 'lines'} is a file, but is read as a text here; for its lines use < " in said.err


def test_a_dash_is_told_to_be_a_text(model: Path) -> None:
    said = call("run", model, "-", stdin=b"abc\n")
    assert said.err.startswith("regard: - is read as a text here; leave it out to read lines from standard input\n")
    assert len(said.lines) == 1


def test_an_empty_text_is_a_text(model: Path) -> None:
    assert call("run", model, "", stdin=b"not read\n") == call("run", model, stdin=b"\n")


def test_bytes_in_an_argument_that_are_not_utf8(model: Path) -> None:
    said = call("run", model, "--json", os.fsdecode(b"a\xffb"))
    assert (said.code, json.loads(said.out)["source"]) == (0, "a\ufffdb")


class ParrotTask:
    """Stands in for a task: answers with what it is told to."""

    Options, target, metrics = RunOptions, None, ("exact",)

    def __init__(self, *answers: str) -> None:
        self.answers, self.places = answers, list[int]()

    def files(self) -> dict[str, bytes]:
        return {}

    def eval_sets(self, raw: object) -> list[Any]:
        return []

    def run(self, nets: Any, inputs: list[str], search: Search, options: RunOptions) -> list[list[Output]]:
        self.places.append(options.first)
        return [[Output(answer) for answer in self.answers] for _ in inputs]


def parrot(*answers: str) -> regard.Model:
    return regard.Model(cast(Any, None), cast(Any, ParrotTask(*answers)), Search(), Path("parrot"))


NO_LIGHT = mock.patch("regard.api.open_light.open_light", return_value=None)
"""There is no folder of a parrot that could be opened without torch."""


def ran(model: regard.Model, *lines: str, as_json: bool = False, **options: Any) -> str:
    out = io.StringIO(newline="")
    write_outputs(model.run_lazily(lines, **options), out, as_json=as_json)
    return out.getvalue()


def test_an_output_with_line_breaks_is_one_line_and_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(parrot("a\nb\r\nc"), "x", "", "y") == "a\\nb\\r\\nc\n\na\\nb\\r\\nc\n"
    assert capsys.readouterr().err == (
        "regard: line breaks in outputs are written as \\n, so that lines can be counted; --json has them\n"
    )
    (line,) = ran(parrot("a\nb"), "x", as_json=True).splitlines()
    assert json.loads(line)["outputs"][0]["text"] == "a\nb"


def test_a_single_text_keeps_its_line_breaks() -> None:
    with mock.patch("regard.load", return_value=parrot("a\nb")), NO_LIGHT:
        assert call("run", "parrot", "x").out == "a\nb\n"
        assert call("run", "parrot", "x", "y").out == "a\\nb\n" * 2
        assert call("run", "parrot", stdin=b"x\n").out == "a\\nb\n"


def test_a_model_may_have_no_answer() -> None:
    assert ran(parrot(), "x", "y") == "\n\n"


def test_lines_come_out_as_soon_as_a_batch_is_done() -> None:
    out = io.StringIO()

    def lines() -> Iterator[str]:
        for i in range(4):
            assert out.getvalue().count("\n") == i // 2 * 2
            yield "x"

    write_outputs(parrot("y").run_lazily(lines(), batch=2), out, as_json=False)
    assert out.getvalue() == "y\n" * 4


def test_at_a_terminal_there_is_a_prompt_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    typed = iter(["abc", "cab"])

    def ask(prompt: str) -> str:
        assert prompt == "", "only results go to stdout, which is no terminal here"
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    assert list(read_prompt(ask)) == ["abc", "cab"]
    assert capsys.readouterr().err == "regard: type a text and press Enter; Ctrl-D ends\n> > > \n"


@pytest.mark.parametrize(("terminal", "wanted"), [(True, 1), (False, 1024)])
def test_at_a_terminal_each_line_is_answered_at_once(terminal: bool, wanted: int) -> None:
    with (
        NO_LIGHT,
        mock.patch("regard.load", return_value=parrot("y")) as load,
        mock.patch("builtins.input", side_effect=["x"] * 4 + [EOFError]),
    ):
        handle = load.return_value
        with mock.patch.object(handle, "run_lazily", wraps=handle.run_lazily) as run:
            said = call("run", "parrot", stdin=b"x\n" * 4, terminal=terminal)
            assert (said.code, said.out) == (0, "y\n" * 4)
            assert run.call_args.kwargs["batch"] == wanted


@pytest.mark.parametrize(("beam", "wanted"), [(1, 1024), (8, 1024), (16, 512), (64, 128), (10_000, 1)])
def test_wide_beam_takes_fewer_lines_at_once(beam: int, wanted: int) -> None:
    assert choose_batch(beam) == wanted


def test_batches_do_not_show_in_the_output(model: Path) -> None:
    lines = b"abc\n\ncab\nj\n" * 3
    assert call("run", model, "--batch", 2, stdin=lines) == call("run", model, stdin=lines)


# ---------------------------------------------------------------------------------------------------------- options


def test_json_has_every_output_with_its_score(model: Path) -> None:
    said = call("run", model, "--json", "--n-best", 3, "abc", "")
    first, empty = map(json.loads, said.lines)
    assert empty == {"source": "", "outputs": []}
    assert first["source"] == "abc"
    scores = [output["score"] for output in first["outputs"]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert all(output["log_prob"] < 0 for output in first["outputs"])
    assert len({output["text"] for output in first["outputs"]}) == 3


def test_a_beam_finds_what_is_at_least_as_likely(model: Path) -> None:
    greedy, beam = (json.loads(call("run", model, "--json", "--beam", k, "jihgfa").out) for k in (1, 8))
    found, plain = beam["outputs"][0]["score"], greedy["outputs"][0]["score"]
    assert found > plain or found == pytest.approx(plain, rel=1e-5), "one score by two ways of computing it"


def test_drawing_depends_on_the_seed_alone(model: Path) -> None:
    lines = b"abcdefgh\n" * 6
    drawn = [call("run", model, "--sample", "--temperature", 2, "--seed", s, stdin=lines).lines for s in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) > 1
    for batch in (1, 2, 4):
        words = ("--sample", "--temperature", 2, "--seed", 3, "--batch", batch)
        assert call("run", model, *words, stdin=lines).lines == drawn[0]


def test_the_same_line_in_a_later_batch_is_drawn_anew() -> None:
    model = parrot("y")
    ran(model, "x", "x", "x", "x", batch=2)
    assert cast(Any, model.task).places == [0, 2]


def test_the_likeliest_of_one_is_greedy(model: Path) -> None:
    assert call("run", model, "--sample", "--top-k", 1, "abc", "jih") == call("run", model, "--beam", 1, "abc", "jih")


@pytest.mark.parametrize("prefix", ["", "f", "fed"])
def test_every_output_begins_with_the_prefix(model: Path, prefix: str) -> None:
    said = call("run", model, "--prefix", prefix, "abc", "", "jihgf")
    assert said.code == 0
    assert said.lines[1] == ""
    assert all(said.lines[i].startswith(prefix) for i in (0, 2))


def test_what_the_model_cannot_write_is_refused_before_the_first_line(model: Path, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("jih\tab\nhij\tΩmega\n")
    for words in (("--prefix", "Ωmega"), ("--glossary", tmp_path / "terms.tsv")):
        said = call("run", model, *words, "--batch", 1, stdin=b"abc\nhij\n")
        assert (said.code, said.out) == (2, "")
        assert (
            f"{words[0].removeprefix('--')}: " in said.err
            and "cannot write 'Ωmega', not all of it is in its vocabulary" in said.err
        )


def test_a_line_without_room_for_what_it_must_have_goes_without(model: Path, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text(f"hij\t{'ab' * 60}\nabc\tfed\n")
    said = call("run", model, "--glossary", tmp_path / "terms.tsv", stdin=b"abc\n\nhij\nabc\nhij\n")
    assert said.code == 0
    assert ["fed" in line for line in said.lines] == [True, False, False, True, False]
    assert (
        said.err.count(
            "input 3 has no room for what its output must include; it goes without, as do later ones like it"
        )
        == 1
    )
    said = call("run", model, "--prefix", "ab" * 60, "abc", "jih")
    assert (said.code, len(said.lines), "input 1 has no room" in said.err) == (0, 2, True)


def test_closed_standard_input(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SpecError, match="standard input is closed"):
        list(read_stdin())


def test_a_model_with_itself_is_that_model(model: Path) -> None:
    alone, doubled = (call("run", model, "--json", *words, "abc") for words in ((), ("--with", model)))
    one, two = (json.loads(said.out)["outputs"][0] for said in (alone, doubled))
    assert one["text"] == two["text"]
    assert one["log_prob"] == pytest.approx(two["log_prob"], abs=1e-5)


def test_an_ensemble_lies_between_its_models(model: Path, other: Path) -> None:
    words = ("--json", "--sample", "--top-k", 1, "abc")
    texts = [json.loads(call("run", *pair, *words).out)["outputs"][0] for pair in ((model,), (model, "--with", other))]
    assert texts[0]["log_prob"] != texts[1]["log_prob"]


def test_an_ensemble_shares_its_vocabulary(model: Path, polyglot: Path) -> None:
    said = call("run", model, "--with", polyglot, "abc")
    assert said.code == 2
    assert "has another vocabulary" in said.err


def test_target_languages(model: Path, polyglot: Path) -> None:
    german, czech = (call("run", polyglot, "--to", language, "one", "two") for language in ("de", "cs"))
    assert (german.code, czech.code) == (0, 0)
    unknown = call("run", polyglot, "--to", "fr", "one")
    assert (unknown.code, unknown.err) == (2, "regard: no target language 'fr'; available: cs, de\n")
    none = call("run", model, "--to", "de", stdin=b"abc\n")
    assert none.code == 2
    assert none.err.endswith(
        "was not trained with several target languages or lengths to choose from; leave out to='de'\n"
    )


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--n-best 2", "--n-best 2 needs --json: a line of plain output has room for one"),
        ("--n-best 3 --beam 2 --json", "n_best=3 needs a beam of at least as many"),
        ("--temperature 2 --seed 1", "temperature, seed would have no effect without sampling; set sample=True"),
        ("--sample --beam 4", "beam would have no effect while sampling; set sample=False"),
        ("--sample --top-p 1.5", "top_p: input should be less than or equal to 1, got 1.5"),
        ("--beam 0", "beam: input should be greater than or equal to 1, got 0"),
        ("--device cdua", "no device 'cdua'; did you mean 'cuda'?"),
        ("--with nowhere", "there is no model folder nowhere"),
    ],
)
def test_an_option_that_cannot_be(model: Path, words: str, wanted: str) -> None:
    said = call("run", model, *words.split(), stdin=b"abc\n")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("regard: ")
    assert wanted in said.err


def test_a_model_that_was_set_up_to_draw() -> None:
    draws = Search(beam=1, sample=True)
    assert resolve_search(draws, {"temperature": 0.5}) == Search(beam=1, sample=True, temperature=0.5)
    with pytest.raises(SpecError, match="beam would have no effect while sampling; set sample=False"):
        resolve_search(draws, {"beam": 3})
    assert resolve_search(draws, {"sample": False, "beam": 3}) == Search(beam=3)


# ------------------------------------------------------------------------------------------------- the world around


def test_a_reader_that_has_had_enough(model: Path) -> None:
    with start("run", model, "--batch", 1) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(b"abc\n" * 3)
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        process.stdin.write(b"abc\n" * 3)
        process.stdin.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")


def test_ctrl_c(model: Path) -> None:
    with start("run", model, "--batch", 1) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(b"abc\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")  # one line in, one line out: now it waits for the next
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert (process.returncode, said) == (130, b"regard: interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_no_room_for_the_output(model: Path) -> None:
    with Path("/dev/full").open("wb") as full, start("run", model, "abc", stdout=full) as process:
        _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (5, b"regard: the output cannot be written: No space left on device\n")


# ---------------------------------------------------------------------------------------------------------- glossary


def test_a_glossary(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("abc\tgag\njih\thid\n", encoding="utf-8")
    said = call("run", model, "--glossary", file, "--beam", 2, stdin=b"abc\nj\n\nABC jih\nabcd\n")
    free = call("run", model, "--beam", 2, stdin=b"abc\nj\n\nABC jih\nabcd\n")
    assert (said.code, said.err) == (0, f"regard: input 4 {UNKNOWN}\n")
    assert "gag" in said.lines[0]
    assert "gag" in said.lines[3] and "hid" in said.lines[3]
    assert [said.lines[i] for i in (1, 2, 4)] == [free.lines[i] for i in (1, 2, 4)]
    greedy = call("run", model, "--glossary", file, "abc")
    assert greedy.err == ("regard: a glossary needs beam search: inputs with terms are searched with a beam\n")
    assert "gag" in greedy.out


def test_a_glossary_that_cannot_be(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("abc\tgag\nabc\n", encoding="utf-8")
    said = call("run", model, "--glossary", file, "abc")
    assert (said.code, said.out) == (2, "")
    assert f"{file}, line 2: should be a term, a tab and its translation, got 'abc'" in said.err
    file.write_text("abc\tgag\n", encoding="utf-8")
    drawn = call("run", model, "--glossary", file, "--sample", "abc")
    assert drawn.code == 2
    assert "terms need beam search, not sampling" in drawn.err
    with pytest.raises(SpecError, match="parrot cannot be told what to write; leave out the glossary"):
        ran(parrot("y"), "x", glossary={"a": "b"})
    with pytest.raises(SpecError, match="parrot cannot be told what to write; leave out the prefix"):
        ran(parrot("y"), "x", prefix="b")
