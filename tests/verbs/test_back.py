"""Corpora that models write: back-translation (Sennrich et al. 2016; tagged, Caswell et al. 2019) and distillation
(Kim & Rush 2016), by the same commands a user types."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import regard
from tests.verbs.calling import Said, call

pytestmark = pytest.mark.numeric

WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf"}
RECIPE = """\
task: translate
data: {{train: [{train}], tokenizer: words, max_length: 16, metrics: [exact]}}
model: {{width: 24, depth: 1, heads: 2, hidden: 48, dropout: 0.0, norm: pre}}
train: {{steps: {steps}, batch_tokens: 512, schedule: {{kind: cosine, lr: 6.0e-3, warmup: 20}}, threads: 1, \
validate_every: 1000}}
decode: {{beam: 2}}
"""


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def train(here: Path, name: str, *corpora: str, steps: int = 150) -> Path:
    recipe = here / f"{name}.yaml"
    recipe.write_text(RECIPE.format(train=", ".join(corpora), steps=steps), encoding="utf-8")
    said = call("train", recipe, "--out", here / name, "--quiet")
    assert said.code == 0, said
    return here / name


def lines_of(said: Said, count: int) -> list[str]:
    assert said.code == 0, said
    assert len(said.lines) == count
    return said.lines


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few pairs, and more text in the target language alone."""
    here, draw = tmp_path_factory.mktemp("back"), random.Random(3)
    english = [" ".join(draw.choices(list(WORDS), k=draw.randint(1, 4))) for _ in range(300)]
    german = [" ".join(WORDS[word] for word in line.split()) for line in english]
    write(here / "train.en", english)
    write(here / "train.de", german)
    write(here / "mono.de", [" ".join(draw.choices(list(WORDS.values()), k=draw.randint(1, 4))) for _ in range(60)])
    return here


def test_back_translation(here: Path) -> None:
    back = train(here, "back", f"{{paths: [{here}/train.de, {here}/train.en]}}")
    mono = (here / "mono.de").read_bytes()
    drawn = lines_of(call("run", back, "--sample", "--seed", 1, stdin=mono), 60)
    assert drawn != lines_of(call("run", back, stdin=mono), 60), "what is drawn is not what is likeliest"
    drawn[7] = ""  # a model may have nothing to say
    write(here / "mono.en", drawn)
    real = f"{{paths: [{here}/train.en, {here}/train.de]}}"
    made = f"{{paths: [{here}/mono.en, {here}/mono.de], prefix: '<BT> ', weight: 0.5, on_bad: %s}}"
    recipe = write(here / "x.yaml", [RECIPE.format(train=f"{real}, {made % 'error'}", steps=1)])
    refused = call("train", recipe, "--out", here / "x", "--quiet")
    assert refused.code == 2
    assert f"{here}/mono.en, line 8: the source is empty" in refused.err
    forward = train(here, "forward", real, made % "drop", steps=200)
    model = regard.load(forward)
    assert {"▁<", "BT", ">"} & set(model.tokenizer.tokens(range(model.tokenizer.size)))
    assert call("run", forward, "two three").out == "zwei drei\n"
    log = (forward / "log.jsonl").read_text()
    assert "mono.en + mono.de" in log


def test_distillation(here: Path) -> None:
    teacher = train(here, "teacher", f"{{paths: [{here}/train.en, {here}/train.de]}}")
    taught = lines_of(call("run", teacher, stdin=(here / "train.en").read_bytes()), 300)
    write(here / "distilled.de", taught)
    pupil = train(here, "pupil", f"{{paths: [{here}/train.en, {here}/distilled.de], on_bad: drop}}")
    learned = lines_of(call("run", pupil, stdin=(here / "train.en").read_bytes()), 300)
    assert sum(a == b for a, b in zip(taught, learned, strict=True)) > 200
