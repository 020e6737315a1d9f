"""The command line as such: help that never waits, one line and an exit code for every error, results on stdout alone."""

from __future__ import annotations

import errno
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import regard
from regard import errors, tasks
from regard.cli import app
from regard.recipes.merge import PURPOSES, list_recipes
from regard.verbs.command import select_verb
from tests.verbs.calling import ENVIRONMENT, call, shell, start

VERBS = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
HEAVY = ["torch", "numpy", "tokenizers", "sacrebleu", "babel", "regard.spec"]

ASK_FOR_HELP = f"""
import sys
from regard.__main__ import main

for words in ["--help"], *([verb, "--help"] for verb in {VERBS!r}), ["recipes"], ["recipes", "dates"]:
    sys.argv = ["regard", *words]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, end.code
    assert words[0] in {VERBS!r} or "pydantic" not in sys.modules  # typer itself needs it for a verb's options
    assert not [name for name in {HEAVY!r} if name in sys.modules], words
"""


def test_help_and_recipes_never_wait_for_torch() -> None:
    done = subprocess.run([sys.executable, "-c", ASK_FOR_HELP], env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[2] for line in done.stdout.splitlines() if line.startswith("Usage: regard ")][1:] == VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_told_whole_in_the_list_and_has_help(verb: str) -> None:
    (line,) = [line for line in call("--help").lines if line.startswith(f"  {verb} ")]
    assert not line.endswith("...")
    said = call(verb, "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"Usage: regard {verb} ")
    options = said.out.partition("Options:")[2]
    assert "<" not in options  # every value has a word


def test_only_the_verb_that_is_asked_for_is_built() -> None:
    every = {command.name for command in app.registered_commands}
    only = select_verb(app, ["eval"])
    assert [command.name for command in only.registered_commands] == ["eval"] and not only.registered_groups
    assert [group.name for group in select_verb(app, ["study"]).registered_groups] == ["study"]
    assert select_verb(app, ["evla"]) is app and select_verb(app, []) is app  # so that the help lists all
    assert {command.name for command in app.registered_commands} == every


def test_without_a_word_there_is_help() -> None:
    said = call()
    assert said.code == 2
    assert "Commands:" in said.out + said.err


def test_which_version() -> None:
    assert call("--version") == shell("--version") == call("--version", "run")
    assert call("--version").out == f"regard {regard.__version__}\n"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["trian"], "No such command 'trian'"),
        (["run"], "Missing argument 'MODEL'"),
        (["eval", "model"], "Missing argument 'DATA'"),
        (["run", "model", "--bem", "3"], "No such option: --bem"),
        (["run", "model", "--beam", "three"], "Invalid value for '--beam'"),
        (["run", "model", "--batch", "0"], "Invalid value for '--batch'"),
        (["show"], "Missing argument"),
        (["--quiet"], "No such option: --quiet"),
        (["doctor", "--\u202e"], r"No such option: --\u202e"),
        (["doctor", "\x1b[2J"], r"(\x1b[2J)"),
        (["--\u202e"], r"No such option: --\u202e"),
        (["study", "--\u202e"], r"No such option: --\u202e"),
        (["study", "compare", "--\u202e"], r"No such option: --\u202e"),
        (["recipes", "date"], "no recipe 'date'; did you mean 'dates'?"),
        (["recipes", "dates.yaml"], "no recipe 'dates.yaml'; did you mean 'dates'?"),
    ],
)
def test_wrong_words(words: list[str], wanted: str) -> None:
    said = call(*words)
    assert (said.code, said.out) == (2, "")
    assert wanted in said.err
    assert "Traceback" not in said.err


# ------------------------------------------------------------------------------------------------------------ errors


def tree(cls: type[errors.RegardError]) -> Iterator[type[errors.RegardError]]:
    yield cls
    for below in cls.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from tree(below)


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail() -> None:
        print("half a result", end="")
        raise error

    monkeypatch.setattr("regard.api.doctor.examine", fail)


@pytest.mark.parametrize("kind", [k for k in tree(errors.RegardError) if k is not errors.UnknownName])
def test_each_error_has_its_exit_code(monkeypatch: pytest.MonkeyPatch, kind: type[errors.RegardError]) -> None:
    error = kind("what was wanted, what came")
    failing(monkeypatch, error)
    said = call("doctor")
    assert (said.code, said.err) == (error.exit_code, "regard: what was wanted, what came\n")


def test_exit_codes_are_the_promised_ones() -> None:
    codes = {kind.__name__: kind.exit_code for kind in tree(errors.RegardError)}
    assert codes | {"Interrupted": errors.Interrupted("", 15).exit_code} == {
        "RegardError": 1, "SpecError": 2, "UnknownName": 2, "ShapeError": 1, "StateError": 1, "LawError": 2, "DataError": 2,
            "NoRoom": 2,        "CheckpointError": 3, "DamagedModel": 3, "Diverged": 4, "DiskFull": 5, "OutputLost": 1,
        "CallStopped": 1,       "Interrupted": 143,
    }  # fmt: skip


def test_what_nobody_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyError("lost"))
    said = call("doctor")
    assert said.code == 1
    assert said.err == "regard: unexpected KeyError: 'lost'; run again with --debug to see where\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files", "run/a"), 1, "run/a: Too many open files; raise the limit of open files"),
        (OSError(errno.EMFILE, "Too many open files"), 1, "Too many open files; raise the limit of open files (ulimit -n)"),
        (OSError(errno.ENFILE, "Too many open files in system"), 1, "Too many open files in system; close other programs"),
        (OSError(errno.ENOSPC, "No space left on device", "run/a"), 5, "run/a: No space left on device; make space and run"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 5, "Disk quota exceeded; make space and run the same command again"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 1, "Cannot allocate memory; the files are intact: close other"),
        (MemoryError(), 1, "Cannot allocate memory; the files are intact: close other programs, or use a machine with more"),
        (OSError(errno.EFBIG, "File too large", "run/a"), 2, "run/a: File too large"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else None,
)  # fmt: skip
def test_what_the_machine_lacks_is_told_with_advice(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, said: str
) -> None:
    failing(monkeypatch, error)
    done = call("doctor")
    assert done.code == code
    assert done.err.startswith(f"regard: {said}") and done.err.count("\n") == 1


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    said = call("doctor")
    assert (said.code, said.err) == (130, "regard: interrupted\n")


def test_a_pipe_that_broke_elsewhere_is_an_error() -> None:
    """Only whoever reads the results may end a command early, and be content."""
    with start("show", "tiny", "--set", "vocab=7", stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        process.stderr.close()
    assert process.returncode == 2
    broken = "import sys; from unittest import mock; from regard.__main__ import main; sys.argv[1:] = ['doctor']\n"
    broken += "with mock.patch('regard.api.doctor.examine', side_effect=BrokenPipeError(32, 'Broken pipe')): main()"
    done = subprocess.run([sys.executable, "-c", broken], env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("regard: unexpected BrokenPipeError: ")


def test_a_note_that_nobody_reads_costs_nothing() -> None:
    with start("show", "tiny", "--json") as process:  # it would say that its vocabulary is a guess
        assert process.stderr is not None and process.stdout is not None
        process.stderr.close()
        assert json.loads(process.stdout.read())
    assert process.returncode == 0


CLOSED = (1, "regard: the output cannot be written: standard output is closed\n")


@pytest.mark.parametrize("words", ["show tiny --json", "recipes", "--help", "--version"])
@pytest.mark.parametrize("closed", [">&-", "> /dev/full"])
def test_results_that_go_nowhere_are_an_error(words: str, closed: str) -> None:
    """One line and an exit code, whichever verb or option prints."""
    if closed == "> /dev/full" and not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    command = ["sh", "-c", f'exec "$0" -m regard {words} {closed}', sys.executable]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    full = (5, "regard: the output cannot be written: No space left on device\n")
    assert (done.returncode, done.stderr.split("\n", 1)[-1] if "guess" in done.stderr else done.stderr) == (
        CLOSED if closed == ">&-" else full
    )


@pytest.mark.parametrize("words", ["recipes", "--help"])
def test_a_reader_that_left_is_no_error_to_talk_about(words: str) -> None:
    """As of any program that SIGPIPE ends."""
    with start(words, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_lead_nowhere(closed: str) -> None:
    """Notes do not stray among the results, and no file is opened in the place of a stream."""
    code = """
import sys
from regard.__main__ import main

sys.argv[1:] = ["show", "tiny", "--json"]
try:
    main()
except SystemExit as end:
    with open(sys.executable) as file:
        sys.exit(9 if file.fileno() < 3 else end.code)
"""
    words = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-c", code]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == (1 if ">&- " in f" {closed} ".replace("2>&-", "") else 0)
    if closed in ("<&-", "2>&-"):
        assert json.loads(done.stdout)


@pytest.mark.parametrize(("error", "code"), [(errors.DataError("line 3 is empty"), 2), (KeyError("lost"), 1)])
def test_a_traceback_is_for_debugging(monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    failing(monkeypatch, error)
    assert "Traceback" not in call("doctor").err
    said = call("doctor", "--debug")
    assert said.code == code
    assert said.err.startswith("Traceback (most recent call last):")
    assert "in fail" in said.err


# ----------------------------------------------------------------------------------------------------------- recipes


def test_recipes_are_listed_by_what_they_are_for() -> None:
    said = call("recipes")
    assert (said.code, said.err) == (0, "")
    headings = [line for line in said.lines if not line.startswith(" ")]
    assert headings == [purpose for purpose in PURPOSES if purpose in headings], "each once, in their order"
    assert sorted(line.split()[0] for line in said.lines if line.startswith("  ")) == list(list_recipes())
    found = json.loads(call("recipes", "--json").out)
    assert found.keys() == list_recipes().keys()
    assert found["dates"]["purpose"] == "Rewrite words and dates" and "ISO 8601" in found["dates"]["about"]
    below = said.lines[said.lines.index("Rewrite words and dates") + 1 :]
    assert below[0].startswith("  dates "), "under its heading"


@pytest.mark.parametrize("name", list(list_recipes()))
def test_a_recipe_is_printed_as_it_is(name: str) -> None:
    assert call("recipes", name).out == list_recipes()[name]
    assert name == "finetune" or json.loads(call("recipes", name, "--json").out)["task"] in tasks.names()


def test_a_path_that_the_system_refuses_is_no_bug() -> None:
    said = call("eval", "x" * 300, "y" * 300)
    assert (said.code, said.err) == (2, f"regard: {'y' * 300}/recipe.yaml: File name too long\n")


def test_garbage_is_collected_as_soon_as_a_verb_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """While modules are imported it is not, which is quicker."""
    seen: list[bool] = []

    def look() -> dict[str, str]:
        seen.append(gc.isenabled())
        return list_recipes()

    monkeypatch.setattr("regard.recipes.merge.list_recipes", look)
    assert call("recipes", "dates").code == 0
    assert seen == [True] and gc.isenabled()
    for words in (("--help",), ("nonsense",), ("recipes", "--nonsense")):
        call(*words)
        assert gc.isenabled()
