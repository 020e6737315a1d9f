"""Compare both versions from text to text.

`transformers` reads a text with its own tokenizer and continues, translates or classifies it; Regard does the same. Weights
that agree prove little if one side reads other tokens.
"""

from __future__ import annotations

import dataclasses
import json
import random
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.conversion.hf import HfModel
from regard.conversion.hf_origin import GENERATION, GENERATION_SETTINGS, TOKENIZER, read_settings
from regard.decode import Engine, Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import RegardError
from regard.files.folder import read_file
from regard.files.storage import is_lack
from regard.model.net import Net
from regard.tasks.common.capabilities import FramesText, Generates, find_too_long, require, supports
from regard.tasks.common.task import Task
from regard.text import Tokenizer
from regard.text.sandbox import MAX_FILE_BYTES

MAX_CHARACTERS = 1000
"""Maximum length of a text that both sides are compared on; a vocabulary may have a token of a megabyte."""
TEXTS = 12
"""Number of texts that are made from the vocabulary."""
NEW_TOKENS = 16
"""Number of tokens that are written for each text."""
FILES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json",
    "source.spm", "target.spm", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model",
)  # fmt: skip
"""The files of a tokenizer that `transformers` gets to see, besides a cleaned configuration."""
_HIDDEN = ("auto_map", "chat_template", "name_or_path", "tokenizer_file", "processor_class")


@dataclasses.dataclass(frozen=True)
class TextProof:
    """Number of texts that give the same on both sides."""

    what: str
    """Subject of comparison: generated texts, classes, or the tokens that are read."""
    texts: int
    alike: int
    first: str = ""
    """The first difference."""

    def render(self) -> str:
        """The result for people."""
        return f"{self.what}: {self.alike} of {self.texts} texts give the same"


def compare_outputs(task: Generates, one: Engine, other: Engine, texts: Sequence[str], search: Search) -> TextProof:
    """Count the texts that give the same output with both of two engines."""
    outputs = [[each[0].text for each in task.run(engine, texts, search)] for engine in (one, other)]
    differ = [(text, *pair) for text, *pair in zip(texts, *outputs, strict=True) if pair[0] != pair[1]]
    first = f"{differ[0][0]!r} gives {differ[0][1]!r} and {differ[0][2]!r}" if differ else ""
    return TextProof("outputs", len(texts), len(texts) - len(differ), first)


def make_texts(tokenizer: Tokenizer, count: int = TEXTS) -> list[str]:
    """Texts of random tokens of a vocabulary, none of them long."""
    draw, marks = random.Random(0), tokenizer.marks
    ids = [i for i in range(tokenizer.size) if i not in marks]
    made = [tokenizer.decode(draw.choices(ids, k=draw.randint(2, 9))).strip() for _ in range(4 * count)] if ids else []
    return [text for text in dict.fromkeys(made) if text.isprintable() and 0 < len(text) <= MAX_CHARACTERS][:count]


def compare_texts(
    library: Any, other: Any, folder: Path, found: HfModel, net: Net, task: Task, texts: Sequence[str]
) -> TextProof | str:
    """Compare both sides on texts, or say why that is not possible; `other` is the model of `transformers`."""
    template, reads = task.input_template if supports(task, FramesText) else None, task.tokenizer
    able = supports(task, Generates)
    if template is None or reads is None or not able:
        return "" if reads is None else "texts were not compared: the task gives no outputs"
    if getattr(task.settings, "pair", False):
        return "texts were not compared: the model reads pairs of texts"
    runs, options = require(task, Generates), require(task, Generates).Options()
    long = {*find_too_long(task, texts, options)}
    texts = [text for i, text in enumerate(texts) if i not in long]
    with tempfile.TemporaryDirectory() as clean, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _copy_tokenizer(folder, Path(clean), found)
            tokenizer = library.AutoTokenizer.from_pretrained(clean)
            rows = [tokenizer(text)["input_ids"] for text in texts]
        except RegardError:
            raise
        except BaseException as error:  # whatever it raises for files that it interprets differently, panics included
            if isinstance(error, KeyboardInterrupt | SystemExit) or is_lack(error):
                raise
            return f"texts were not compared: transformers cannot use this tokenizer ({_first_line(error)})"
    known = other.get_input_embeddings().weight.shape[0]
    if beyond := [i for row in rows for i in row if i >= known]:
        return (
            f"texts were not compared: the tokenizer of transformers gives token {beyond[0]}, and the model has {known}"
        )
    kind = found.form.uses[found.use].task
    if kind in ("lm", "translate"):
        new = NEW_TOKENS
        if kind == "lm" and net.spec.room is not None:  # what they read and write must fit into the context
            short = [i for i, row in enumerate(rows) if 2 * len(row) <= net.spec.room]
            texts, rows = [texts[i] for i in short], [rows[i] for i in short]
            new = min(new, net.spec.room // 2)
        search = Search(beam=1, max_length=new, max_extra=new, repetition_guard=False)
        ours = [each[0].text.strip() for each in runs.run(TorchEngine(net), texts, search, options)]
        settings = {**_settings(folder, found), "max_new_tokens": new, "num_beams": 1, "do_sample": False}
        try:
            other.generation_config = library.GenerationConfig(**settings)  # nothing from the defaults of its class
            theirs = [_generate(other, tokenizer, row, kind) for row in rows]
        except Exception as error:  # settings of generation that contradict each other
            return f"texts were not compared: transformers does not generate ({_first_line(error)})"
        return _count("generated text", texts, theirs, ours)
    if kind == "classify":
        labels = found.config.get("id2label")
        labels = labels if isinstance(labels, Mapping) else {}
        try:
            chosen = [int(other(input_ids=torch.tensor([row])).logits.argmax()) for row in rows]
        except (IndexError, RuntimeError, ValueError) as error:  # texts that its tokenizer makes longer than ours
            return f"texts were not compared: transformers does not classify them ({_first_line(error)})"
        ours = [each[0].text for each in runs.run(TorchEngine(net), texts, Search(), options)]
        return _count("class", texts, [str(labels.get(str(i), labels.get(i, f"LABEL_{i}"))) for i in chosen], ours)
    read = [template.fill(ids, None)[0] for ids in reads.encode_all(texts)]
    return _count("tokens read", texts, rows, read)


def _count(what: str, texts: Sequence[str], theirs: Sequence[object], ours: Sequence[object]) -> TextProof:
    wrong = [i for i, (a, b) in enumerate(zip(theirs, ours, strict=True)) if a != b]
    first = ""
    if wrong:
        i = wrong[0]
        first = f"for {texts[i]!r:.80} transformers gives {theirs[i]!r:.120}, Regard {ours[i]!r:.120}"
    return TextProof(what, len(texts), len(texts) - len(wrong), first)


def _generate(other: Any, tokenizer: Any, row: list[int], kind: str) -> str:
    """Return what `transformers` writes for the tokens of a text."""
    given = torch.tensor([row])
    if not row:
        return ""
    found = other.generate(input_ids=given, attention_mask=torch.ones_like(given))[0].tolist()
    return str(
        tokenizer.decode(found[1:] if kind == "translate" else found[len(row) :], skip_special_tokens=True)
    ).strip()


def _settings(folder: Path, found: HfModel) -> dict[str, Any]:
    """The settings of generation that choose tokens, as numbers and lists of numbers; nothing else is passed on."""
    said = {**found.config, **read_settings(folder, GENERATION)}
    names = [name for name in GENERATION_SETTINGS if "token" in name or name == "bad_words_ids"]
    return {name: said[name] for name in names if said.get(name) is not None and _is_tokens(said[name], name in _LISTS)}


_LISTS = ("eos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids")
"""Settings that may be lists."""


def _is_tokens(value: object, listed: bool) -> bool:
    if isinstance(value, list):
        return listed and bool(value) and all(_is_tokens(item, listed) for item in value)
    return type(value) is int


def _copy_tokenizer(folder: Path, clean: Path, found: HfModel) -> None:
    """The files of a tokenizer, without any setting that names code or other files."""
    for name in FILES:
        if (folder / name).exists():
            (clean / name).write_bytes(read_file(folder, name, MAX_FILE_BYTES))
    said = read_settings(folder, TOKENIZER)
    kept = {k: v for k, v in said.items() if k not in _HIDDEN and not k.endswith("_file")}
    (clean / TOKENIZER).write_text(json.dumps(kept), encoding="utf-8")
    (clean / "config.json").write_text(json.dumps({"model_type": found.form.kind}), encoding="utf-8")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:200]
