"""What is mutated, and what reads it: every kind of file, with the commands that open it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.headers import (
    inside_gzip,
    inside_xz,
    mutate_gguf,
    mutate_idx,
    mutate_png,
    mutate_safetensors,
    mutate_tar,
)
from tests.fuzz.mutate import (
    NUMBERS,
    TEXTS,
    Mutator,
    mutate_bytes,
    mutate_json,
    mutate_json_lines,
    mutate_rows,
    mutate_yaml,
)
from tests.fuzz.seeds import TASKS

EVAL = {
    "translate": "pairs.tsv", "summarize": "texts.tsv", "pronounce": "words.dict", "lm": "play.txt", "code": "sources",
    "mlm": "play.txt", "span": "play.txt", "denoise": "play.txt",
    "classify": "labels.tsv", "tag": "tagged.tsv", "embed": "pairs.tsv", "image": "digits",
    "babi": "babi/qa.txt", "frames": "frames/x.json", "music": "music/x.json", "recommend": "recommend/x.txt",
}  # fmt: skip
SHORT = "--set train.steps=1"


@dataclass(frozen=True)
class Kind:
    """A file in a folder of seeds, its mutator, and commands that read it."""

    name: str
    seed: str
    file: str
    mutate: Mutator
    commands: tuple[str, ...]
    folder: str = ""
    """The folder with a manifest that the file is part of: half of its mutants get a manifest that fits."""
    strict: bool = False
    """Whether a mutant without a manifest that fits must be refused; a run falls back to what is whole."""
    weight: float = 1.0


def list_kinds(root: Path) -> list[Kind]:
    """All of them; files that a model or run has are found in its folder."""
    found = [*_data(root), *_recipes(root), *_models(root), *_runs(root), *_foreign(root), *_pictures(), *_arguments()]
    return [kind for kind in found if (root / kind.seed).exists()]


def _data(root: Path) -> Iterator[Kind]:
    def of(name: str, mutate: Mutator, *commands: str, weight: float = 1.0) -> Kind:
        return Kind(f"data {name}", "model-translate", name, mutate, commands, weight=weight)

    translate = (
        "train translate {} --out new --quiet --set data.tokenizer=chars --set model.width=8 --set model.depth=1 "
        f"--set model.heads=2 {SHORT}"
    )
    for name, mutate in (("pairs.tsv", mutate_rows), ("pairs.csv", mutate_rows), ("pairs.jsonl", mutate_json_lines),
                         ("pairs.tsv.gz", inside_gzip(mutate_rows))):  # fmt: skip
        drop = "eval model {} --samples 5 --on-bad drop"
        train = f"train corpora.yaml {name} --out new --quiet {SHORT}"
        yield of(name, mutate, f"eval model {name} --samples 5", drop.format(name), train, translate.format(name))
    for name in ("source.txt", "target.txt"):
        yield of(
            name,
            mutate_rows,
            "eval model source.txt target.txt --samples 5",
            f"train corpora.yaml --out new --quiet {SHORT}",
        )
    yield of(
        "play.txt",
        mutate_rows,
        *(f"train {task}.yaml --out new --quiet {SHORT}" for task in ("lm", "mlm", "span", "denoise")),
        weight=2,
    )
    yield of("texts.tsv", mutate_rows, f"train summarize.yaml --out new --quiet {SHORT}")
    for path in sorted((root / "data" / "sources").glob("*.py"))[:1]:
        yield of(f"sources/{path.name}", mutate_rows, f"train code.yaml --out new --quiet {SHORT}")
    yield of("words.dict", mutate_rows, f"train pronounce.yaml --out new --quiet {SHORT}")
    yield of("classify/x.tsv", mutate_rows, f"train classify.yaml --out new --quiet {SHORT}")
    yield of("labels.jsonl", mutate_json_lines, f"train classify.yaml labels.jsonl --out new --quiet {SHORT}")
    yield of("tag/x.tsv", mutate_rows, f"train tag.yaml --out new --quiet {SHORT}")
    yield of("tagged.conll", mutate_rows, f"train tag.yaml tagged.conll --out new --quiet {SHORT}")
    yield of("embed/x.tsv", mutate_rows, f"train embed.yaml --out new --quiet {SHORT}")
    yield of("babi/qa.txt", mutate_rows, f"train babi.yaml --out new --quiet {SHORT}")
    yield of("frames/x.json", mutate_json, f"train frames.yaml --out new --quiet {SHORT}")
    yield of("music/x.json", mutate_json, f"train music.yaml --out new --quiet {SHORT}")
    yield of("tune.mid", mutate_bytes, f"train events.yaml --out new --quiet {SHORT}")
    yield of("recommend/x.txt", mutate_rows, f"train recommend.yaml --out new --quiet {SHORT}")
    yield of("glossary.tsv", mutate_rows, "run model --glossary glossary.tsv")
    yield of("their.model", mutate_bytes, f"train imported.yaml --out new --quiet {SHORT}")
    yield of("codes.txt", mutate_rows, f"train codes.yaml --out new --quiet {SHORT}")
    for task in (name for name in TASKS if name != "image"):
        yield Kind(
            f"input {task}", f"model-{task}", "input.txt", mutate_rows, ("run model", "run model --json"), weight=0.5
        )


def _recipes(root: Path) -> Iterator[Kind]:
    for path in sorted((root / "data").glob("*.yaml")):
        commands = (
            f"train {path.name} --out new --quiet",
            f"train {path.name} --out new --quiet {SHORT}",
            f"show {path.name}",
        )
        yield Kind(f"recipe {path.stem}", "data", path.name, mutate_yaml, commands, weight=1.5)


def _of_suffix(name: str) -> Mutator:
    if name.endswith(".jsonl"):
        return mutate_json_lines
    suffixes = {".json": mutate_json, ".safetensors": mutate_safetensors, ".yaml": mutate_yaml}
    return suffixes.get(Path(name).suffix, mutate_rows if name.endswith((".txt", ".md", ".html")) else mutate_bytes)


def _models(root: Path) -> Iterator[Kind]:
    for task in TASKS:
        commands = (
            "run model",
            "run model --json",
            "show model",
            f"eval model {EVAL[task]} --samples 5",
            "convert model out --to hf",
            f"train {task}.yaml --from model --out new --quiet {SHORT}",
        )
        if task == "image":
            commands = (*commands[2:4], "run model one.png")
        for path in sorted((root / f"model-{task}" / "model").glob("*")):
            weight = 0.2 if path.suffix == ".md" else 1.5 if path.name in ("config.json", "tokenizer.json") else 1.0
            yield Kind(
                f"model {task} {path.name}",
                f"model-{task}",
                f"model/{path.name}",
                _of_suffix(path.name),
                commands,
                "model",
                True,
                weight,
            )


def _runs(root: Path) -> Iterator[Kind]:
    for task in ("translate", "lm", "classify", "image"):
        again = f"train {task}.yaml --out run --quiet"
        commands = (
            again,
            f"{again} --set train.steps=3",
            f"{again} --anyway",
            f"{again} --fresh",
            "run run",
            f"eval run {EVAL[task]} --samples 5",
        )
        commands = tuple(f"{c} one.png" if c == "run run" and task == "image" else c for c in commands)
        run = root / f"run-{task}" / "run"
        for path in sorted(p for p in run.rglob("*") if p.is_file()):
            place = path.relative_to(run)
            if place.parts[0] in ("final", "best") and path.name not in ("manifest.json", "model.safetensors"):
                continue  # a model folder like any other
            if path.suffix in (".html", ".lock", ".md"):
                continue
            sealed = f"run/{place.parent}" if (path.parent / "manifest.json").exists() else ""
            name = f"run {task} {place}"
            yield Kind(name, f"run-{task}", f"run/{place}", _of_suffix(path.name), commands, sealed, weight=0.4)


def _foreign(root: Path) -> Iterator[Kind]:
    for folder in sorted(root.glob("hf-*")):
        for path in sorted((folder / "hf").iterdir()):
            if path.suffix in (".md",):
                continue
            weight = 0.3 if path.name in ("generation_config.json", "manifest.json") else 1.0
            yield Kind(
                f"{folder.name} {path.name}",
                folder.name,
                f"hf/{path.name}",
                _of_suffix(path.name),
                ("convert hf out",),
                weight=weight,
            )
    yield Kind("gguf", "gguf", "model.gguf", mutate_gguf, ("convert model.gguf out",), weight=4)


def _pictures() -> Iterator[Kind]:
    def of(file: str, mutate: Mutator, *commands: str) -> Kind:
        return Kind(f"picture {file}", "pictures", file, mutate, commands)

    train = f"train flowers.yaml {{}} --out new --quiet {SHORT}"
    for number, ending in enumerate(("png", "jpg", "gif", "bmp", "webp")):
        file = f"flowers/{'rose' if number % 2 else 'tulip'}/{number}.{ending}"
        mutate = mutate_png if ending == "png" else mutate_bytes
        yield of(
            file,
            mutate,
            train.format("flowers"),
            f"run model {file}",
            f"run model flowers/rose/5.png {file}",
            "eval model flowers --samples 5",
        )
    yield of("flowers.tar", mutate_tar, train.format("flowers.tar"))
    yield of("flowers.tar.gz", inside_gzip(mutate_tar), train.format("flowers.tar.gz"))
    yield of("flowers.tar.xz", inside_xz(mutate_tar), train.format("flowers.tar.xz"))
    for part in ("images-idx3", "labels-idx1"):
        file = f"digits/train-{part}-ubyte.gz"
        commands = (f"train image.yaml --out new --quiet {SHORT}", "eval model digits --samples 5")
        yield Kind(f"picture {file}", "model-image", file, inside_gzip(mutate_idx), commands)


ARGUMENTS = """
show {}
show tiny --set {}
show tiny --set model.width={}
show tiny --set model.{}=1
show gpt2 --length {}
show tiny --set model.spec.{}=1
show everything --set model.heads={}
show transformer_xl --set model.memory={}
recipes {}
check {}
doctor --{}
run model {}
run model --beam {}
run model --beam 2 --alpha {}
run model --sample --temperature {}
run model --sample --top-k {}
run model --sample --top-p {}
run model --sample --min-p {}
run model --sample --seed {}
run model --to {}
run model --prefix {}
run model --glossary {}
run model --long {}
run model --with {}
run model --batch {}
run model --n-best {} --json
run model --device {}
run {}
eval model {}
eval model pairs.tsv --metric {}
eval model pairs.tsv --samples {}
eval model pairs.tsv --set {}
eval model pairs.tsv --set data.max_length={}
eval model pairs.tsv --on-bad {}
train {} --out new
train copy {} --out new --set train.steps=1
train translate.yaml --out new --set {}
train translate.yaml --out new --set data.tokenizer={}
train translate.yaml --out new --set model.width={}
train translate.yaml --out new --set train.batch_tokens={}
train translate.yaml --out new --set train.schedule={}
train translate.yaml --out new --set decode.beam={}
train translate.yaml --out new --set train.optimizer.{}=1
train translate.yaml --out new --set data.generate.count={}
train translate.yaml --out new --set model.depth={}
train translate.yaml --out new --set data.generate.max_length={}
train translate.yaml --out new --from {}
train translate.yaml --out new --valid {}
train translate.yaml --out new --device {}
train translate.yaml --out new --plugin {}
convert {} out
convert model out --to {}
study complexity --lengths {} --minutes 0
study complexity --mixers {} --minutes 0
""".strip().split("\n")
"""Commands with a place for a value that makes no sense; never one that names where to write."""
VALUES = [
    "-1",
    "0.5",
    "1e400",
    "{",
    "[1,2",
    "a.b.c",
    "=",
    "kind=x",
    "model",
    "pairs.tsv",
    "data",
    "input.txt",
    "lm",
    "cuda",
    "cuda:99",
    "512",
    "[512]",
    "{kind:full}",
    "null",
]


def _as_passed(word: str) -> str:
    """An argument as a shell can pass it: bytes without NUL, of which Python makes a text."""
    return os.fsdecode(word.replace("\0", "")[:50_000].encode("utf-8", errors="surrogatepass"))


def _arguments() -> Iterator[Kind]:
    def mutate(data: bytes, draw: random.Random) -> bytes:
        value = draw.choice((*map(str, NUMBERS), *TEXTS, *VALUES))
        words = [word.replace("{}", value) for word in draw.choice(ARGUMENTS).split()]
        return json.dumps([_as_passed(word) for word in words]).encode()

    yield Kind("arguments", "model-translate", "arguments.json", mutate, ("",), weight=6)
