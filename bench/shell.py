"""A model from the shell, start-up included, beside CTranslate2's Python client. `python -m bench.shell tiny`.

Both are programs that read lines, tokenize them (with the same tokenizer.json), translate with all cores, and write lines; the
client imports ctranslate2 and tokenizers and nothing else. Cases: one line, and a test set. The model has random weights, so
outputs are cut after as many tokens. `import torch` alone is measured in the same turns: what `regard run` no longer waits for.
Peak memory is that of each program.
"""

from __future__ import annotations

import argparse
import compileall
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import regard
from bench.entry import Mode, choose, parse
from bench.peers import SHAPES, shape_of
from bench.results import write
from regard.api import Model
from regard.conversion.convert import convert
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.families import transformer
from regard.files.folder import read_folder
from regard.report.table import Table
from regard.tasks.translate import Translate, TranslateData
from regard.text import Bpe, Tokenizer

LINES, WRITTEN, WORDS = 1000, 20, 4000
KINDS = ("float32", "int8")
CONTENDERS = ("import torch", *(f"{name} {kind}" for kind in KINDS for name in ("regard", "ctranslate2")))
CLIENT = """
import sys
import ctranslate2, tokenizers

folder, kind, threads, beam, written = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
end = tokenizer.token_to_id("</s>")
lines = sys.stdin.read().splitlines()
inter, intra = (threads, 1) if len(lines) > threads else (1, threads)
model = ctranslate2.Translator(folder, inter_threads=inter, intra_threads=intra, compute_type=kind)
rows = [[*(f"t{i}" for i in found.ids), f"t{end}"] for found in tokenizer.encode_batch(lines, add_special_tokens=False)]
found = model.translate_batch(rows, beam_size=beam, max_decoding_length=written, max_batch_size=32)
for each in found:
    print(tokenizer.decode([int(token[1:]) for token in each.hypotheses[0]]))
"""


def make_text(lines: int) -> list[str]:
    """Sentences of made words."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abdegiklmnoprstu", k=draw.randrange(2, 8))) for _ in range(WORDS)]
    return [" ".join(draw.choices(words, k=draw.randrange(5, 18))) for _ in range(lines)]


def make_folders(home: Path, shape: str, beam: int, names: Sequence[str]) -> None:
    """The same model for all: ours as it is and in int8, theirs in both."""
    tokenizer = Tokenizer.train(make_text(100 if Mode.smoke else 2000), Bpe(vocab=500 if Mode.smoke else 8000))
    net = transformer.spec(**shape_of(shape), vocab=tokenizer.size, dropout=0.0, length=128).build(seed=1).eval()  # type: ignore[arg-type]
    task = Translate(TranslateData(max_length=128), tokenizer)
    search = Search(beam=beam, max_length=WRITTEN, length_penalty="power", alpha=1.0, repetition_guard=False)
    ours = Model(TorchEngine(net), task, search, home).save(home / "float32")
    convert(ours, home / "int8", to="int8")
    for kind in (kind for kind in KINDS if f"ctranslate2 {kind}" in names):
        from bench.ctranslate2_engine import convert as to_ctranslate2
        from bench.ctranslate2_engine import name_token

        spec = to_ctranslate2(net)
        spec.config.bos_token = spec.config.decoder_start_token = name_token(tokenizer.bos)
        spec.config.eos_token, spec.config.unk_token = name_token(tokenizer.eos), name_token(tokenizer.pad)
        spec.validate()
        spec.optimize(quantization=kind)
        place = home / f"ctranslate2-{kind}"
        place.mkdir()
        spec.save(str(place))
        (place / "tokenizer.json").write_bytes(read_folder(ours)["tokenizer.json"])


LAUNCHER = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
code = subprocess.run(sys.argv[1:]).returncode
took = time.perf_counter() - began
print(json.dumps([code, took, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]), file=sys.stderr)
"""
"""Starts a program from a small process: the memory of the process that starts it counts as the program's own."""


def run_program(name: str, command: Sequence[str], text: Path, out: Path) -> dict[str, float]:
    """Seconds and peak memory of a program that reads a text."""
    with text.open("rb") as read, out.open("wb") as wrote:
        launch = [sys.executable, "-S", "-c", LAUNCHER, *command]
        done = subprocess.run(launch, stdin=read, stdout=wrote, stderr=subprocess.PIPE, text=True, check=True)
    *said, told = done.stderr.splitlines()
    code, seconds, peak = json.loads(told)
    if code:
        raise SystemExit(f"{name} failed with {code}: {chr(10).join(said)}. Nothing is recorded")
    return {"seconds": seconds, "peak_mb": peak / 1024}


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.shell", description=__doc__)
    arguments.add_argument("shape", choices=SHAPES)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--lines", type=int, default=LINES)
    arguments.add_argument("--beam", type=int, default=1)
    said = parse(arguments, contenders=CONTENDERS)
    names, threads = choose(said, CONTENDERS), torch.get_num_threads()
    rounds, many = (1, 4) if said.smoke else (said.rounds, said.lines)
    compileall.compile_dir(Path(regard.__file__).parent, quiet=1)  # as an installed package is
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_folders(home, said.shape, said.beam, names)
        cases = {"one line": 1, f"{said.lines:,} lines": many}
        for case, lines in cases.items():
            (home / case).write_text("\n".join(make_text(lines)) + "\n")
        commands = {"import torch": [sys.executable, "-c", "import torch"]}
        for kind in KINDS:
            commands[f"regard {kind}"] = [sys.executable, "-m", "regard", "run", str(home / kind), "--engine", "native"]
            numbers = [str(number) for number in (threads, said.beam, WRITTEN)]
            place = str(home / f"ctranslate2-{kind}")
            commands[f"ctranslate2 {kind}"] = [sys.executable, "-c", CLIENT, place, kind, *numbers]
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        for turn in range(rounds):  # in turn, so that a busy moment hits all
            for case, lines in cases.items():
                for name in names:
                    if name == "import torch" and case != "one line":
                        continue
                    answer = run_program(name, commands[name], home / case, home / "out")
                    if name != "import torch" and (home / "out").read_bytes().count(b"\n") != lines:
                        raise SystemExit(f"{name} wrote another number of lines")
                    found.setdefault((case, name), []).append(answer)
                    print(f"  round {turn + 1} {case} {name}: {answer}", file=sys.stderr)
    table, figures = summary(found, cases)
    print(table.markdown())
    if said.lines == LINES and said.beam == 1 and not said.only:
        title = f"Lines from the shell, {said.shape}"
        path = write(f"bench-shell-{said.shape}", title=title, figures=figures, threads=threads)
        print(path, file=sys.stderr)


def summary(
    found: dict[tuple[str, str], list[dict[str, float]]], cases: Sequence[str] | dict[str, int]
) -> tuple[Table, dict[str, Any]]:
    """A row a case and program: its best time, how many times faster ours of the same precision is, and its peak memory."""
    best = {key: min(row["seconds"] for row in rows) for key, rows in found.items()}
    rows = []
    for (case, name), seconds in best.items():
        ours = f"regard {'int8' if name.endswith('int8') else 'float32'}"
        peak = round(max(row["peak_mb"] for row in found[case, name]))
        faster = round(seconds / best[case, ours], 2) if (case, ours) in best else None
        rows.append((case, name, round(seconds, 3), faster, peak))
    head = ("case", "program", "best seconds", "regard is faster by", "peak MB")
    return Table(head, tuple(rows)), {f"{row[0]}, {row[1]}": dict(zip(head[2:], row[2:], strict=True)) for row in rows}


if __name__ == "__main__":
    main()
