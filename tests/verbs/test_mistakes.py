"""Mistakes on a command line, and limits of a system, are named in words that say what to do."""

from __future__ import annotations

import errno
import io
import os
import socket
import sys
from pathlib import Path

import pytest

from regard.engine.native_engine import read_threads
from regard.errors import RegardError, SpecError
from regard.text.native_calls import translate_errors
from regard.verbs.lines import read_stdin
from tests.verbs.calling import call


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "/", "a"], 3, "/ has no manifest.json: it is not a Regard model folder, or was not finished"),
        (
            ["run", "http://[", "x"],
            2,
            "http://[ is not the address of a server (Invalid IPv6 URL); it should be like http://",
        ),
        (
            ["run", "http://127.0.0.1:x", "x"],
            2,
            "http://127.0.0.1:x is not the address of a server (Port could not be cast",
        ),
        (["run", "http:///x", "x"], 2, "http:///x names no server; it should be like http://127.0.0.1:8000"),
        (["serve", "m", "--limit", "seconds=nan"], 2, "the limit seconds should be above 0 and finite, got nan"),
        (["serve", "m", "--limit", "seconds=inf"], 2, "the limit seconds should be above 0 and finite, got inf"),
        (
            ["serve", "m", "--key-file", "/dev/zero"],
            2,
            "the key file /dev/zero is refused: it has more than 1,000,000 bytes",
        ),
        (["train", "copy", "--set", "train.steps=true"], 2, "train.steps: should be a whole number, got True"),
        (["train", "copy", "--set", 'train.steps="5"'], 2, "train.steps: should be a whole number, got '5'"),
    ],
)
def test_mistakes_on_a_command_line_are_named(
    words: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = call(*words)
    assert (found.code, found.err[: len(said) + 8]) == (code, f"regard: {said}")


def test_standard_input_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with io.TextIOWrapper(io.BufferedReader(io.FileIO(os.open(os.devnull, os.O_WRONLY)))) as for_writing:
        monkeypatch.setattr(sys, "stdin", for_writing)
        with pytest.raises(
            SpecError, match=r"standard input cannot be read \(.+\); give texts as arguments, or lines with <"
        ):
            list(read_stdin())


@pytest.mark.parametrize(("given", "threads"), [("2", 2), ("²", None), ("1" * 5000, None), ("0", None), ("", None)])
def test_numbers_of_threads_that_are_none_are_ignored(
    given: str, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert read_threads() == threads


def test_a_library_without_threads_is_not_the_fault_of_the_vocabulary() -> None:
    with (
        pytest.raises(
            RegardError, match=r"^the tokenizers library cannot start its threads; free memory, or allow"
        ) as caught,
        translate_errors(SpecError, "vocab=1000 does not suit this corpus"),
    ):
        raise Exception("The global thread pool has not been initialized.")
    assert caught.value.exit_code == 1


def test_serve_names_a_port_that_is_taken(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = call("serve", model, "--port", port)
    assert said.code == 2
    assert (
        said.err
        == f"regard: cannot listen on 127.0.0.1, port {port}: {os.strerror(errno.EADDRINUSE)}; choose another --port\n"
    )
