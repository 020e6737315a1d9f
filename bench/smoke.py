"""Every command that made a result, tiny: does it still run? `python -m bench.smoke`, or `make smoke`.

The commands are those that `results/*.json` name. Each runs as it stands with `--smoke`, in a process of its own, copied from
one that has imported torch (`bench/launch.py`), two at a time. One that lacks data or a package is skipped, with the reason. A
result whose command has no such form is an error, and so is one that fails, takes too long, or touches `results/`.
"""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import IO

from bench.entry import ROOT, SKIPPED
from bench.launch import Process, serve_forks, start
from bench.study_commands import COMMANDS
from bench.trained import NAMES

RESULTS = ROOT / "results"
LIMIT = 300.0
"""Seconds that one may take; a machine may be slow."""
MODULES = (
    "transformers.models.gpt2.modeling_gpt2", "transformers.models.marian.modeling_marian", "x_transformers", "ctranslate2",
    "ctranslate2.converters.transformers", "uvicorn", "regard.training.train", "regard.api", "regard.cli",
    "regard.families.gpt", "regard.engine.choose_engine", "bench.results", "bench.peers",
)  # fmt: skip
"""What is imported before, as far as it is installed."""
MORE = {"seq2seq": ["gru-attention"]}
"""Words without which the command of a result only prints what was measured before."""
LONG = ("bench.study", "bench.mixers", "bench.large_corpora", "bench.serve", "bench.train", "bench.decode")
"""Those that take longest begin first."""


@dataclass
class Call:
    """One smoke run, and the results whose command it stands for."""

    words: tuple[str, ...]
    names: list[str] = field(default_factory=list)
    process: Process | None = None
    output: IO[str] | None = None
    began: float = 0.0


def find_call(name: str, command: str) -> tuple[str, ...]:
    """The module and arguments of a result's smoke run; an error if its command has none."""
    program, *words = shlex.split(command.rpartition("&&")[2])
    study = name.removeprefix("study-")
    if name.startswith("study-") and COMMANDS.get(study) == command:
        return "bench.study", study, "--smoke"
    if name == "complexity" and command.startswith("regard study complexity "):
        return "bench.complexity", "--smoke"
    if name in NAMES and command.startswith("regard train "):
        return "bench.trained", name, "--smoke"
    if program == "python" and words[0] == "-m" and words[1].startswith("bench.") and find_spec(words[1]) is not None:
        return (*words[1:], *MORE.get(name, []), "--smoke")
    raise SystemExit(
        f"results/{name}.json: `{command}` has no smoke form; expected `python -m bench.NAME …`, a command of "
        f"bench/study_commands.py, or a training that bench/trained.py names"
    )


def list_calls(only: Iterable[str] = ()) -> list[Call]:
    """All smoke runs, or those of these results; two results of one command share a run."""
    calls: dict[tuple[str, ...], Call] = {}
    for path in sorted(RESULTS.glob("*.json")):
        if not only or path.stem in only:
            words = find_call(path.stem, json.loads(path.read_text(encoding="utf-8"))["command"])
            calls.setdefault(words, Call(words)).names.append(path.stem)
    if unknown := set(only) - {name for call in calls.values() for name in call.names}:
        raise SystemExit(f"there is no result {', '.join(sorted(unknown))} in results/")
    return sorted(calls.values(), key=lambda call: call.words[0] not in LONG)


def run_calls(calls: list[Call], processes: int, limit: float) -> dict[str, list[str]]:
    """Run all; the results by what became of theirs: "ok", "skipped" or "failed"."""
    waiting, running = list(reversed(calls)), list[Call]()
    ended: dict[str, list[str]] = {"ok": [], "skipped": [], "failed": []}
    while waiting or running:
        while waiting and len(running) < processes:
            call = waiting.pop()
            call.output, call.began = tempfile.TemporaryFile("w+", encoding="utf-8"), time.monotonic()  # noqa: SIM115
            call.process = start(call.words, stdin=subprocess.DEVNULL, stdout=call.output, stderr=call.output)
            running.append(call)
        time.sleep(0.05)
        for call in list(running):
            assert call.process is not None and call.output is not None
            seconds, code = time.monotonic() - call.began, call.process.poll()
            if code is None and seconds < limit:
                continue
            call.process.kill()
            code = call.process.wait()
            running.remove(call)
            call.output.seek(0)
            lines = call.output.read().strip().splitlines()
            call.output.close()
            word = {0: "ok", SKIPPED: "skipped"}.get(code, "failed")
            ended[word] += call.names
            print(f"{word:8}{seconds:6.1f} s  python -m {shlex.join(call.words)}", flush=True)
            if word == "skipped":
                print(f"          {lines[-1] if lines else 'it gave no reason'}", flush=True)
            if word == "failed":
                why = f"longer than {limit:g} s" if seconds >= limit else f"exit code {code}"
                print("\n".join(["", *lines[-40:], f"          {', '.join(call.names)}: {why}", ""]), flush=True)
            for line in lines:
                if line.startswith("without "):
                    print(f"          {line}", flush=True)
    return ended


def read_results() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in RESULTS.iterdir()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.smoke", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="RESULT", help="only these results; all by default")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that one may take")
    asked = parser.parse_args()
    calls, before, began = list_calls(asked.names), read_results(), time.monotonic()
    with serve_forks([module for module in MODULES if _is_installed(module)]):
        ended = run_calls(calls, asked.processes, asked.limit)
    counts = ", ".join(f"{len(names)} {word}" for word, names in ended.items())
    seconds, used = time.monotonic() - began, sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    total = sum(map(len, ended.values()))
    print(f"{total} results, {len(calls)} commands: {counts}; {seconds:.0f} s, {used:.0f} s of processor time")
    if touched := sorted(name for name, raw in read_results().items() if before.get(name) != raw):
        print(f"a smoke run wrote into results/: {', '.join(touched)}", file=sys.stderr)
        return 1
    return 1 if ended["failed"] else 0


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
