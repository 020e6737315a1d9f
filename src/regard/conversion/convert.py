"""Convert models from and to other formats, and compare both.

A Hugging Face folder or GGUF file becomes a model folder, or a model folder becomes a Hugging Face folder. Then both versions
read the same input, and the largest difference of their outputs is reported.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from regard.conversion import hf, task_config, verify
from regard.conversion.hf_tokenizer import to_hf
from regard.conversion.marian_tokenizer import marian_files
from regard.decode import Search
from regard.errors import SpecError
from regard.files.folder import write_folder
from regard.files.storage import explain_errors
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.serialization.load import load_model
from regard.serialization.model_folder import find_model, identify_folder, write_model
from regard.tasks.common.capabilities import Classifies, ReadsImages, supports
from regard.tasks.common.task import Task
from regard.text import Tokenizer

Format = Literal["hf", "regard"]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion."""

    model: Path
    """The folder that was written."""
    source: str
    """What it was converted from."""
    kind: str
    """What it is now."""
    parameters: int
    difference: float | None
    """The largest difference of the outputs to those of `transformers`; None if they were not compared."""
    reason: str = ""
    """Why they were not compared."""

    def plain(self) -> dict[str, object]:
        """All fields, ready for JSON."""
        return {
            "model": str(self.model),
            "from": self.source,
            "as": self.kind,
            "parameters": self.parameters,
            "difference": self.difference,
            "reason": self.reason,
        }

    def render(self) -> str:
        """The result for people."""
        gap = self.reason if self.difference is None else f"largest difference to transformers: {self.difference:.2g}"
        return f"{self.model}\n{self.source} as {self.kind}, {self.parameters:,} parameters\n{gap}"


def convert(
    src: str | Path,
    dst: str | Path,
    *,
    to: Format | None = None,
    trust_pickle: bool = False,
    notify: Tell | None = None,
) -> Conversion:
    """Convert a Hugging Face folder, a GGUF file or a model folder, and write the result to `dst`.

    to            "hf" or "regard"; by default the format that `src` does not have
    trust_pickle  open pickled weights (.bin), as weights only, in a separate process
    notify        called with notes such as settings that were not converted
    """
    source, place = Path(src), Path(dst)
    if not source.exists():
        raise SpecError(f"there is no file or folder {src}")
    if source.is_file() and source.suffix != ".gguf":
        raise SpecError(
            f"{src} is one file; convert takes a folder with a config.json beside the weights, or a .gguf file"
        )
    own = identify_folder(source) is not None
    wanted = to or ("hf" if own else "regard")
    if wanted not in ("hf", "regard"):
        raise SpecError(f"to should be hf or regard, got {wanted!r}")
    if wanted == "regard" and own:
        raise SpecError(f"{src} is a model folder already; convert it to hf instead")
    if source.is_file():
        return _from_gguf(source, place, wanted)
    return _to_hf(source, place) if own else _from_hf(source, place, wanted, trust_pickle, notify or (lambda _: None))


def _from_hf(source: Path, place: Path, wanted: str, trust: bool, notify: Tell) -> Conversion:
    found = hf.read(source, trust=trust)
    if wanted == "hf":
        raise SpecError(f"{source} is a Hugging Face folder already; convert it to regard instead")
    name, task, search = task_config.make_task(found, source)
    if left := task_config.find_unsupported(found, source):
        notify(f"{source} generates with {', '.join(left)}, which Regard does not support: outputs may differ")
    net = _build(found.spec, found.weights)
    what = f"{found.form.kind} ({found.use})"
    _export(place, name, task, search, found.spec, found.weights, what)
    return _report(place, what, name, net, *_compare(found, net))


def _from_gguf(source: Path, place: Path, wanted: str) -> Conversion:
    from regard.conversion.gguf import read

    spec, weights, tokenizer = read(source)
    name, task, search = task_config.make_lm(spec, tokenizer)
    net = _build(spec, weights)
    if wanted == "hf":
        write_folder(place, _hf_files(spec, weights, task, search))
    else:
        _export(place, name, task, search, spec, weights, source.name)
    return _report(place, source.name, name, net, *_compare_via_hf(net, task))


def _to_hf(source: Path, place: Path) -> Conversion:
    folder = find_model(source)
    net, task, search = load_model(folder)
    write_folder(place, _hf_files(net.spec, net.state_dict(), task, search))
    config = hf.read_config(place)
    name = f"{config['model_type']} ({config['architectures'][0]})"
    return _report(place, str(folder.path), name, net, *_compare(hf.read(place), net))


def _export(
    place: Path, name: str, task: Task, search: Search, spec: ModelSpec, weights: Mapping[str, Tensor], what: str
) -> None:
    """Write a model folder."""
    with torch.device("meta"):
        net = spec.build()
    card = f"# {place.name}\n\nConverted with Regard from {what}; its task is {name}.\n"
    write_model(place, task=task, name=name, net=net, search=search, weights=weights, card=card)


def _hf_files(spec: ModelSpec, weights: Mapping[str, Tensor], task: Task, search: Search) -> dict[str, bytes]:
    """All files of a Hugging Face folder."""
    facts: dict[str, object] = (
        {}
        if task.tokenizer is None
        else {**hf.convert_special_tokens(spec, task.tokenizer), **hf.convert_search(spec, search)}
    )
    if supports(task, Classifies):
        classes = task.classes
        facts |= {"id2label": dict(enumerate(classes)), "label2id": {name: i for i, name in enumerate(classes)}}
    files = _token_files(getattr(task, "source_tokenizer", task.tokenizer), task.tokenizer) | hf.write(
        spec, weights, facts
    )
    if supports(task, ReadsImages):
        files["preprocessor_config.json"] = json.dumps(_pixels(task), indent=2).encode()
    return files


def _token_files(source: Tokenizer | None, target: Tokenizer | None) -> dict[str, bytes]:
    """The files of the tokenizer, or of both tokenizers."""
    if source is None or target is None:
        return {}
    if source is not target:
        return marian_files(source, target)
    with tempfile.TemporaryDirectory() as made, explain_errors("write the tokenizer", Path(made)):
        to_hf(target, Path(made))
        return {path.name: path.read_bytes() for path in Path(made).iterdir()}


def _pixels(task: ReadsImages) -> dict[str, object]:
    """How images become numbers, as a preprocessor configuration."""
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": task.side, "width": task.side},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(task.mean),
        "image_std": list(task.deviation),
    }


def _build(spec: ModelSpec, weights: Mapping[str, Tensor]) -> Net:
    return spec.build_with(weights).eval()


def _compare_via_hf(net: Net, task: Task) -> tuple[float | None, str]:
    """The difference to the same weights in a Hugging Face folder, for files that `transformers` does not read."""
    with tempfile.TemporaryDirectory() as made:
        for name, data in _hf_files(net.spec, net.state_dict(), task, Search()).items():
            (Path(made) / name).write_bytes(data)
        return _compare(hf.read(Path(made)), net)


def _compare(found: hf.HfModel, net: Net) -> tuple[float | None, str]:
    """The largest difference of the outputs, or why they were not compared."""
    if not verify.is_available():
        return None, "not compared: transformers is not installed (pip install transformers)"
    return verify.compare(found, net), ""


def _report(place: Path, source: str, kind: str, net: Net, difference: float | None, reason: str) -> Conversion:
    return Conversion(place, source, kind, sum(p.numel() for p in net.parameters()), difference, reason)
