"""Contenders side by side: one process each, warmed up, then taking turns, so that a noisy machine is noisy for all.

A worker reads the name of a case on its standard input, does one turn of it, and answers with a line of JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from regard.machine import peak_memory

Answers = list[dict[str, Any]]


def serve(turn: Callable[[str], dict[str, float]]) -> None:
    """The worker's side."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(turn(line.strip()) | {"peak_mb": peak_memory() / 2**20}), flush=True)


def race(
    workers: dict[str, Sequence[str]], rounds: int, cases: Sequence[str] = ("",), *, apart: bool = False
) -> dict[str, Answers]:
    """Start all workers (module and arguments each), then let them take turns, case by case; what each answered.

    Where they do not fit into memory side by side, `apart` begins each anew for its turn.
    """
    running: dict[str, subprocess.Popen[str]] = {}
    out: dict[str, Answers] = {}
    failed: set[str] = set()
    try:
        for name in () if apart else workers:
            _begin(running, name, workers[name], failed)
        for turn in range(rounds):
            for case in cases:
                for name in workers:
                    if apart and name not in failed:
                        _begin(running, name, workers[name], failed)
                    if name not in running:
                        continue
                    answer = _asked(running[name], case)
                    if answer is None:
                        print(f"  {name}: stopped", file=sys.stderr)
                        failed.add(name)
                    else:
                        out.setdefault(name, []).append(answer | {"case": case})
                        print(f"  round {turn + 1} {case} {name}: {answer}", file=sys.stderr)
                    if apart or answer is None:
                        _end(running.pop(name))
    finally:
        for process in running.values():
            _end(process)
    return out


def _begin(running: dict[str, subprocess.Popen[str]], name: str, words: Sequence[str], failed: set[str]) -> None:
    command = [sys.executable, "-m", *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if _answer(process) is None:
        print(f"  {name}: did not start", file=sys.stderr)
        failed.add(name)
        _end(process)
    else:
        running[name] = process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def _asked(process: subprocess.Popen[str], case: str) -> dict[str, Any] | None:
    assert process.stdin is not None
    try:
        process.stdin.write(f"{case}\n")
        process.stdin.flush()
    except BrokenPipeError:  # it is gone, perhaps for want of memory
        return None
    return _answer(process)


def _answer(process: subprocess.Popen[str]) -> dict[str, Any] | None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    return None


def best_and_median(rows: Sequence[dict[str, Any]], key: str) -> tuple[float, float]:
    values = [row[key] for row in rows]
    return max(values), statistics.median(values)
