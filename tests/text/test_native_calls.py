"""Panics of the tokenizer library become one line, and whatever else is written to stderr gets there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.text import Tokenizer
from regard.text.native_calls import translate_errors
from regard.text.tokenizer_specs import Words
from tests.hostile import whole
from tests.hostile.place import Place
from tests.verbs.calling import ENVIRONMENT

TRAP = "ab" * 40 + "!"
PATTERN = {"type": "Split", "pattern": {"Regex": "((?:ab)+)+Z"}, "behavior": "Isolated", "invert": False}
SAID = "the tokenizer failed on this text: one of its patterns takes too many steps to match"


@pytest.fixture(scope="module")
def trap() -> Tokenizer:
    """A tokenizer that passes its trial, and gives up on other text."""
    made = json.loads(Tokenizer.train(["a b"], Words(min_count=1)).to_bytes())
    made["pre_tokenizer"] = PATTERN
    return Tokenizer.from_bytes(json.dumps(made).encode(), "trap")


@pytest.mark.parametrize("way", ["encode", "encode_all", "encode_with_offsets", "decode"])
def test_a_panic_is_an_error_and_nothing_is_printed(
    trap: Tokenizer, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if way == "decode":
        trap.decode(trap.encode("a b"))
    else:
        with pytest.raises(DataError, match=f"^{SAID}$"):
            getattr(trap, way)(TRAP if way == "encode" else ["a", TRAP])
    assert capfd.readouterr().err == ""
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "later\n"


def test_what_others_write_meanwhile_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with translate_errors(DataError, "failed"):
        os.write(2, b"first\n")
        with translate_errors(DataError, "failed"):
            os.write(2, b"second\n")
        assert "first" not in capfd.readouterr().err
    assert capfd.readouterr().err == "first\nsecond\n"


def test_progress_is_shown_while_lines_are_read(capfd: pytest.CaptureFixture[str]) -> None:
    with translate_errors(DataError, "failed", quiet=False) as call:
        for _ in call.quiet_after("abc"):
            os.write(2, b".")
            assert capfd.readouterr().err == "."
        os.write(2, b"late")
        assert capfd.readouterr().err == ""
    assert capfd.readouterr().err == "late"


def test_a_forked_child_has_a_file_of_its_own(trap: Tokenizer, capfd: pytest.CaptureFixture[str]) -> None:
    code = "import os, sys\nfrom regard.text.native_calls import translate_errors as t\nfrom regard.errors import DataError\n"
    code += "with t(DataError, 'x'): os.write(2, b'one ')\n"
    code += "pid = os.fork()\nwith t(DataError, 'x'): os.write(2, b'two ')\nif pid: os.waitpid(pid, 0)\n"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "one two two ")


def test_stderr_may_be_closed(trap: Tokenizer) -> None:
    code = (
        "import os\nfrom regard.text.native_calls import translate_errors as t\nfrom regard.errors import DataError\n"
    )
    code += "os.close(2)\nwith t(DataError, 'x'): pass\nprint('fine')"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "fine\n")


def test_the_command_line_says_one_line(tmp_path: Path) -> None:
    whole.make(tmp_path / "ours", tmp_path / "hf")
    shutil.rmtree(tmp_path / "hf")
    place = Place(tmp_path / "ours", tmp_path, tmp_path)
    place.change("tokenizer.json", "pre_tokenizer", PATTERN)
    place.seal()
    done = subprocess.run(
        [sys.executable, "-m", "regard", "run", str(tmp_path / "ours"), TRAP],
        env={**ENVIRONMENT, "RUST_BACKTRACE": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    notes = [f"input 1 has no output: {SAID}", "1 of 1 inputs could not be read; their lines are empty"]
    assert (done.returncode, done.stdout) == (2, "\n")
    assert done.stderr.splitlines() == [f"regard: {note}" for note in notes]
