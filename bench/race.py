"""Contenders side by side: one process each, warmed up, then taking turns, so that a noisy machine is noisy for all.

A worker reads the name of a case on its standard input, does one turn of it, and answers with a line of JSON. If a worker does
not start or stops, the race ends with its name: a table without one of the contenders is no comparison.
"""

from __future__ import annotations

import json
import math
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.launch import Process, start
from regard.machine import peak_memory

Answers = list[dict[str, Any]]


def serve(turn: Callable[[str], dict[str, float]]) -> None:
    """The worker's side."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(turn(line.strip()) | {"peak_mb": peak_memory() / 2**20}), flush=True)


def race(
    workers: Mapping[str, Sequence[str]], rounds: int, cases: Sequence[str] = ("",), *, apart: bool = False
) -> dict[str, Answers]:
    """Start all workers (module and arguments each), then let them take turns, case by case; what each answered.

    Where they do not fit into memory side by side, `apart` begins each anew for its turn.
    """
    running: dict[str, Process] = {}
    out: dict[str, Answers] = {name: [] for name in workers}
    try:
        for name in () if apart else workers:
            _begin(running, name, workers[name])
        for turn in range(rounds):
            for case in cases:
                for name in workers:
                    if apart:
                        _begin(running, name, workers[name])
                    answer = _ask(running[name], name, case)
                    out[name].append(answer | {"case": case})
                    print(f"  round {turn + 1} {case} {name}: {answer}", file=sys.stderr)
                    if apart:
                        _end(running.pop(name))
    finally:
        for process in running.values():
            _end(process)
    return out


def _begin(running: dict[str, Process], name: str, words: Sequence[str]) -> None:
    running[name] = process = start(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if _read_answer(process) is None:
        raise SystemExit(_describe_failure(name, "did not start", process))


def _end(process: Process) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def _ask(process: Process, name: str, case: str) -> dict[str, Any]:
    assert process.stdin is not None
    answer = None
    try:
        process.stdin.write(f"{case}\n")
        process.stdin.flush()
        answer = _read_answer(process)
    except BrokenPipeError:  # it is gone, perhaps for want of memory
        pass
    if answer is None:
        raise SystemExit(_describe_failure(name, f"stopped{f' at {case}' if case else ''}", process))
    for key, value in answer.items():
        if not math.isfinite(value):
            raise SystemExit(_describe_failure(name, f"answered {key} = {value}", process))
    return answer


def _describe_failure(name: str, what: str, process: Process) -> str:
    code = process.poll()
    return (
        f"{name} {what}{'' if code is None else f' (exit code {code})'}; its own message stands above. Nothing is recorded. "
        f"To race without it: --without {shlex.quote(name)}"
    )


def _read_answer(process: Process) -> dict[str, Any] | None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    process.wait()  # it closed its output
    return None


def best_and_median(rows: Sequence[dict[str, Any]], key: str) -> tuple[float, float]:
    values = [row[key] for row in rows]
    return max(values), statistics.median(values)


def divide(numerator: float | None, denominator: float) -> float | None:
    """A ratio of two decimals; nothing if there is nothing to divide."""
    return None if numerator is None else round(numerator / denominator, 2)
