"""Code blocks of Markdown pages, and how they are executed: in a folder with small made data and a small model."""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import runpy
import shlex
import sys
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from ruamel.yaml import YAML

from regard.metrics import METRICS
from regard.nn.blocks.body import BODIES
from regard.nn.mixers import MIXERS
from regard.tasks.common.task import TASKS
from tests.verbs.calling import ROOT, call

FENCE = re.compile(r"(?:^<!-- not run: (?P<reason>[^>]+) -->\n)?^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.S | re.M)
FILE = re.compile(r"# (\w[\w.-]*\.(?:py|yaml))\n")
"""A first line that names the file a block is."""
TINY = (
    "train.steps=2", "train.schedule={kind: constant, lr: 1.0e-3}", "train.batch_tokens=512", "train.validate_every=2",
    "train.precision=float32", "train.threads=1",
)  # fmt: skip
"""Laid over every `regard train` of a page."""
SIZES = ("model.width=16", "model.hidden=16")
PREDECESSORS = ("rnn", "lstm", "gru", "convs2s", "bytenet", "neural_gpu", "extended_neural_gpu")
"""Families without `model.hidden`."""
OUTPUT = "text"
"""The language of what a program prints, and of drawings."""


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block; `reason` says why it is not executed."""

    place: str
    language: str
    text: str
    reason: str | None

    @property
    def file(self) -> str | None:
        """The file that this block is, if its first line says so."""
        named = FILE.match(self.text)
        return named[1] if named else None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        found.append(Block(f"{page.name}:{line}", match["language"], match["text"], match["reason"]))
    assert len(found) * 2 == len(re.findall(r"^ *```", text, re.M)), f"{page.name}: a fence is indented or not closed"
    return found


class Runner:
    """Runs the blocks of one page, one after another; Python blocks share their names."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.checked = 0

    def run(self, block: Block) -> None:
        if block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
        if block.language == "yaml":
            check_recipe(block)
        elif block.language == "sh":
            for line in shell_lines(block.text):
                self.shell(line, block.place)
        elif block.language == "python" and block.file is None:
            self.python(block)

    def python(self, block: Block) -> None:
        """Each statement runs; where a comment behind an expression is a value, that is the value."""
        comments = {
            token.start[0]: token.string.removeprefix("#").strip()
            for token in tokenize.generate_tokens(io.StringIO(block.text).readline)
            if token.type == tokenize.COMMENT
        }
        for statement in ast.parse(block.text).body:
            code = ast.get_source_segment(block.text, statement)
            assert code is not None
            if not isinstance(statement, ast.Expr):
                exec(compile(code, block.place, "exec"), self.names)
                continue
            value = eval(code, self.names)
            comment = comments.get(statement.end_lineno or 0, "")
            if comment.startswith("torch.Size"):
                assert repr(value) == comment, f"{block.place}: {code}"
            elif (wanted := literal(comment)) is not NOTHING:
                assert value == wanted, f"{block.place}: {code} gives {value!r}"
            else:
                continue
            self.checked += 1

    def shell(self, line: str, place: str) -> None:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>&;")
        lexer.whitespace_split = True
        words, given, target = list(lexer), b"", None
        if words[0] in ("echo", "cat") and "|" in words:
            bar = words.index("|")
            given = f"{words[1]}\n".encode() if words[0] == "echo" else Path(words[1]).read_bytes()
            words = words[bar + 1 :]
        if ">" in words:
            target = words.pop(words.index(">") + 1)
            words.remove(">")
        if "<" in words:
            given = Path(words.pop(words.index("<") + 1)).read_bytes()
            words.remove("<")
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), f"{place}: no target {words[1]}"
            return
        if words[0] == "python":
            with mock.patch.object(sys, "argv", words[1:]):
                runpy.run_path(str(ROOT / words[1]), run_name="__main__")
            return
        assert words[0] == "regard", f"{place}: cannot run {line!r}"
        with plugins_forgotten():
            done = call(*words[1:], *extra(words), stdin=given)
        assert done.code == 0, f"{place}: {line}\n{done.err}"
        if target is not None:
            Path(target).write_text(done.out, encoding="utf-8")
        if words[1] == "run" and given:
            assert len(done.lines) == given.count(b"\n"), f"{place}: {line}"


@contextmanager
def plugins_forgotten() -> Iterator[None]:
    """What a plugin adds is gone afterwards, as it is when a process ends."""
    try:
        yield
    finally:
        for registry in (BODIES, METRICS, MIXERS, TASKS):
            for name, part in list(registry.items()):
                home = part if isinstance(part, type) else getattr(part, "score", part)
                if str(getattr(home, "__module__", "")).startswith("regard_plugin_"):
                    del registry._parts[name]


NOTHING = object()


def literal(comment: str) -> Any:
    try:
        return ast.literal_eval(comment)
    except (ValueError, SyntaxError):
        return NOTHING


def extra(words: list[str]) -> list[str]:
    """Settings that make a training of the pages short."""
    if words[1] != "train":
        return []
    before = {f"model.family={name}" for name in PREDECESSORS} & {*words} or words[2] == "algorithm"
    sizes = [one for one in SIZES if not before or one.startswith("model.width")]
    small = [*TINY, *(() if "--from" in words else sizes)]
    if words[2] in ("dates", "copy", "algorithm"):
        small += ["data.generate.count=200", "data.generate.valid=4"]
    if words[2] in ("babi", "frames", "recommend"):
        small = [one for one in small if not one.startswith("model.hidden")]
    if words[2] == "vit":
        small += ["model.depth=1"]
    return [word for one in small for word in ("--set", one)]


def shell_lines(text: str) -> Iterator[str]:
    """Commands without comments, continued lines joined."""
    for line in text.replace("\\\n", " ").splitlines():
        code = re.sub(r"(^|\s)#.*", "", line).strip()
        if code:
            yield code


def run_folder(line: str) -> str | None:
    """Where a command trains, if it does."""
    words = line.split()
    if words[:2] != ["regard", "train"]:
        return None
    return words[words.index("--out") + 1] if "--out" in words else f"runs/{Path(words[2]).stem}"


def check_recipe(block: Block) -> None:
    """A recipe as `regard train` reads it, or part of one laid over `translate`."""
    from regard.tasks import find
    from regard.training.recipe import Recipe

    recipe = YAML(typ="safe", pure=True).load(block.text)
    whole = {"task": "translate", **recipe}
    train = {"steps": 1, **whole.get("train", {})}
    settings = find(whole["task"]).Settings.parse(whole.get("data", {}))
    parsed = Recipe.parse({**{k: v for k, v in whole.items() if k != "auto"}, "train": train})
    assert settings is not None
    assert parsed.task == whole["task"]
