"""Comparing with `transformers` gives it what we read of a folder, never the folder: it would follow whatever that names."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.conversion import hf, verify
from regard.conversion.task_config import make_task
from regard.conversion.text_proof import MAX_CHARACTERS, TextProof, make_texts
from regard.text import Tokenizer, Words
from tests.conversion.test_convert import folder as with_tokenizer
from tests.conversion.tiny import MODELS, make, put, saved

pytestmark = pytest.mark.numeric

HEARD: list[list[str]] = []
"""What Python opens, by those who listen."""


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        for opened in HEARD:
            opened.append(os.path.realpath(os.fsdecode(arguments[0])))


sys.addaudithook(_heard)


@contextmanager
def listening() -> Iterator[list[str]]:
    HEARD.append(opened := [])
    try:
        yield opened
    finally:
        HEARD.remove(opened)


def says(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def other(folder: Path, place: Path) -> None:
    """The same weights, only larger."""
    save_file({name: 3 * x for name, x in load_file(folder / "model.safetensors").items()}, place, {"format": "pt"})


def _elsewhere(folder: Path) -> None:
    other(folder, folder.parent / "other.safetensors")
    names = dict.fromkeys(load_file(folder / "model.safetensors"), "../other.safetensors")
    (folder / "x.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    says(folder, transformers_weights="x.safetensors.index.json")


def _linked(folder: Path) -> None:
    other(folder, folder.parent / "other.safetensors")
    (folder / "x.safetensors").symlink_to(folder.parent / "other.safetensors")
    says(folder, transformers_weights="x.safetensors")


def _pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "adapter_model.bin")
    says(folder, transformers_weights="adapter_model.bin")


def _generates(folder: Path) -> None:
    (folder.parent / "secret.json").write_text('{"max_length": 7}')
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "generation_config.json").symlink_to(folder.parent / "secret.json")


HARMS: dict[str, Callable[[Path], object]] = {
    "an index of a file elsewhere": _elsewhere,
    "a link that leads out": _linked,
    "a pickle": _pickled,
    "a link beside the weights": _generates,
    "a pipe among the weights": lambda f: os.mkfifo(f / "shard-00001-model-00001-of-00001.safetensors"),
    "code to import": lambda f: says(f, auto_map={"AutoModelForCausalLM": "evil.Model"}),
    "10^9 labels": lambda f: says(f, num_labels=10**9),
    "a width by another name": lambda f: says(f, hidden_size=10**9),
    "kernels from elsewhere": lambda f: says(f, _attn_implementation="somebody/kernel", attn_implementation="x/y"),
    "a padding that is none": lambda f: says(f, pad_token_id=[1]),
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_a_folder_says_beside_is_not_followed(harm: str, tmp_path: Path) -> None:
    folder = saved(make("gpt2"), tmp_path / "theirs")
    HARMS[harm](folder)
    found = hf.read(folder)
    net = put(found.spec.build(), found.weights)
    with listening() as opened:
        assert verify.compare(found, net) <= 1e-5
    assert [path for path in opened if path.startswith(os.path.realpath(tmp_path))] == []


@pytest.mark.parametrize("harm", HARMS)
def test_texts_are_read_from_clean_copies(harm: str, tmp_path: Path) -> None:
    """Their tokenizer gets files that we read and copied, and a configuration that names no code."""
    folder = with_tokenizer("gpt2", tmp_path / "theirs")
    config = {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}, "tokenizer_file": "../secret.json"}
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    if harm != "a link beside the weights":  # which is refused when it is read
        HARMS[harm](folder)
    found = hf.read(folder)
    net = put(found.spec.build(), found.weights)
    _, task, _ = make_task(found, folder)
    with listening() as opened:
        _, proof = verify.compare_all(found, net, folder, task, net, ["a cab", "bad dad", "abba"])
    assert isinstance(proof, TextProof) and proof.texts == 3
    inside = {Path(path).name for path in opened if path.startswith(os.path.realpath(tmp_path))}
    assert inside <= {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"}


def test_a_tokenizer_that_reads_otherwise_is_seen(tmp_path: Path) -> None:
    """Weights agree to the last digit, but theirs reads no first token: that is what texts show."""
    folder = with_tokenizer("bert, classes", tmp_path / "theirs")
    found = hf.read(folder)
    net = put(found.spec.build(), found.weights)
    _, task, _ = make_task(found, folder)
    state = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(state | {"post_processor": None}))
    texts = ["a cab", "bad dad", "abba", "cd", "dab", "a", "b", "dad cab"]
    difference, proof = verify.compare_all(found, net, folder, task, net, texts)
    assert difference <= 1e-5 and isinstance(proof, TextProof)
    assert proof.alike < proof.texts and proof.first.startswith("for '")


TORN = ("bart, untied", "marian, untied")
"""Their own library, told not to tie, does not read these as it wrote them."""


@pytest.mark.parametrize("name", [name for name in MODELS if name not in TORN])
def test_both_sides_say_the_same(name: str, tmp_path: Path) -> None:
    found = hf.read(saved(make(name), tmp_path / "theirs"))
    net = put(found.spec.build(), found.weights)
    assert verify.compare(found, net) <= 1e-5


def test_what_they_make_nothing_of_is_said(tmp_path: Path) -> None:
    """To us no hidden width means the usual one."""
    folder = saved(make("gpt2"), tmp_path / "theirs")
    says(folder, n_inner=0)
    with pytest.raises(hf.CheckpointError, match="transformers cannot build a model from this"):
        verify.compare(found := hf.read(folder), put(found.spec.build(), found.weights))


def test_texts_are_short_whatever_the_vocabulary_has() -> None:
    """A token of 100,000 characters may be cut into as many tokens when its text is read again."""
    tokenizer = Tokenizer.train([f"a b c {'x' * 100_000}"], Words(min_count=1))
    found = make_texts(tokenizer)
    assert "x" not in "".join(found)
    assert found
    assert all(len(text) <= MAX_CHARACTERS for text in found)
