"""The command line, called as a shell would: in this process, which is quick, or in one of its own, which is real."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from regard.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
UNKNOWN = (
    "is largely unknown to the model's vocabulary: another language, script or tokenizer? Later ones are not mentioned"
)
"""What `run` says of the first such line."""


@dataclass(frozen=True)
class Said:
    """What a call left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout; only a newline ends one."""
        assert self.out == "" or self.out.endswith("\n")
        return self.out.split("\n")[:-1]


class Terminal(io.BytesIO):
    """Bytes that come from a person."""

    def isatty(self) -> bool:
        return True


def call(*words: object, stdin: bytes = b"", terminal: bool = False) -> Said:
    """`regard WORDS` in this process."""
    given = io.TextIOWrapper(Terminal(stdin) if terminal else io.BytesIO(stdin))
    out, err = (io.TextIOWrapper(io.BytesIO()) for _ in range(2))
    argv = ["regard", *map(str, words)]
    code: object = 0
    with mock.patch.multiple(sys, argv=argv, stdin=given, stdout=out, stderr=err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int)
    return Said(code, *(_text(stream) for stream in (out, err)))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


def start(*words: object, **how: object) -> subprocess.Popen[bytes]:
    """`regard WORDS` in a process of its own, with all three streams in our hands."""
    command = [sys.executable, "-m", "regard", *map(str, words)]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, env=ENVIRONMENT, **{**streams, **how})  # type: ignore[call-overload, no-any-return]


def shell(*words: object, stdin: bytes = b"") -> Said:
    """The same, to its end."""
    with start(*words) as process:
        out, err = process.communicate(stdin, timeout=120)
    return Said(process.returncode, out.decode(), err.decode())
