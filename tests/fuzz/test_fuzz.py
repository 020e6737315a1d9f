"""Mutants of many kinds of files: none is unexpected, none hangs, none takes much memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import headers, mutate
from tests.fuzz.server import Outcome, _judge
from tests.hostile.whole import safetensors
from tests.verbs.calling import ENVIRONMENT, ROOT

COUNT = 50


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_mutants_are_done_or_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", str(COUNT), "--quick"]
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-5000:]}"


@pytest.mark.parametrize(
    ("mutator", "honest"),
    [
        (mutate.mutate_bytes, b"abc\n" * 9),
        (mutate.mutate_json, b'{"a": [1, {"b": "c"}], "d": null}'),
        (mutate.mutate_json_lines, b'{"a": 1}\n{"b": 2}'),
        (mutate.mutate_yaml, b"task: lm\ndata: {train: [a.txt]}\n"),
        (mutate.mutate_rows, b"a\tb\nc\td\n"),
        (headers.mutate_safetensors, safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8))),
        (headers.mutate_idx, bytes([0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3, 4])),
    ],
)  # fmt: skip
def test_mutants_follow_from_the_seed_and_differ(mutator: mutate.Mutator, honest: bytes) -> None:
    made = [mutator(honest, random.Random(i)) for i in range(200)]
    assert made == [mutator(honest, random.Random(i)) for i in range(200)]
    assert len({*made}) > 40
    assert sum(mutant == honest for mutant in made) < 20


def test_json_can_hold_what_json_cannot() -> None:
    text = mutate.dump({"a": mutate.Raw("9" * 6000), "b": 10**400, "c": "\ud800", "d": [None, True, 1.5]})
    assert text == f'{{"a": {"9" * 6000}, "b": 1{"0" * 400}, "c": "\\ud800", "d": [null, true, 1.5]}}'
    assert json.loads(mutate.dump([1, {"x": []}])) == [1, {"x": []}]


@pytest.mark.parametrize(
    ("code", "err", "fault"),
    [
        (0, "", ""),
        (2, "regard: no file\n", ""),
        (1, "regard: unexpected KeyError: 'a'; run again\n", "unexpected"),
        (1, "Traceback (most recent call last):\n", "traceback"),
        (2, "thread '<unnamed>' panicked at x\n", "panic"),
        (2, "", "silent"),
        (2, "regard: \x1b[2J\n", "raw text"),
        (77, "regard: x\n", "code 77"),
        (-6, "", "signal 6"),
        (-24, "", "hang"),
    ],
)
def test_what_is_a_fault(code: int, err: str, fault: str) -> None:
    assert _judge(code, "", err, 0, False, False) == fault
    assert Outcome(fault, code, "", err, 0.0, 0).word == (fault or ("done" if code == 0 else f"refused ({code})"))


def test_limits_are_faults() -> None:
    assert _judge(2, "", "regard: x\n", 2 << 30, False, False) == "memory"
    assert _judge(0, "", "", 0, True, False) == "accepted"
    assert _judge(-24, "", "", 0, False, True) == ""


def test_mutants_stay_small() -> None:
    """A change of a change of a change must not fill the memory of the fuzzer itself."""
    rows = b"\n".join([b"a\tb" * 100] * 5)
    for i in range(300):
        mutant = mutate.mutate_rows(rows, random.Random(i))
        assert len(mutate.mutate_rows(mutant, random.Random(i))) < 50_000_000
