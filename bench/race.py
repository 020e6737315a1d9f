"""Contenders side by side: one process each, warmed up, then taking turns, so that a noisy machine is noisy for all.

A worker reads the name of a case on its standard input, does one turn of it, and answers with a line of JSON.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

Answers = list[dict[str, Any]]


def serve(turn: Callable[[str], dict[str, float]]) -> None:
    """The worker's side."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        answer = turn(line.strip())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps(answer | {"peak_mb": peak / 1024}), flush=True)


def race(workers: dict[str, Sequence[str]], rounds: int, cases: Sequence[str] = ("",)) -> dict[str, Answers]:
    """Start all workers (module and arguments each), then let them take turns, case by case; what each answered."""
    running: dict[str, subprocess.Popen[str]] = {}
    out: dict[str, Answers] = {}
    try:
        for name, words in workers.items():
            running[name] = subprocess.Popen(
                [sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            if _answer(running[name]) is None:
                print(f"  {name}: did not start", file=sys.stderr)
                del running[name]
        for turn in range(rounds):
            for case in cases:
                for name, process in list(running.items()):
                    assert process.stdin is not None
                    process.stdin.write(f"{case}\n")
                    process.stdin.flush()
                    answer = _answer(process)
                    if answer is None:
                        print(f"  {name}: stopped", file=sys.stderr)
                        del running[name]
                        continue
                    out.setdefault(name, []).append(answer | {"case": case})
                    print(f"  round {turn + 1} {case} {name}: {answer}", file=sys.stderr)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return out


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
