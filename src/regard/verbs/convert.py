"""`regard convert`: a model of others becomes a model folder of ours, or one of ours a Hugging Face folder, and both are asked
the same question afterwards.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from regard.verbs.command import say


def convert(src: str, dst: str, *, to: str | None = None, trust: bool = False) -> dict[str, Any]:
    """Convert a folder or GGUF file; what was made of it, as plain data."""
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
        raise SpecError(f"--to should be hf or regard, got {wanted!r}")
    if wanted == "regard" and own:
        raise SpecError(f"{src} is a model folder of ours already; --to hf makes one for Hugging Face of it")
    if source.is_file():
        return _from_gguf(source, place, wanted)
    return _to_hf(source, place) if own else _from_hf(source, place, wanted, trust)


def _from_hf(source: Path, place: Path, wanted: str, trust: bool) -> dict[str, Any]:
    found = hf.read(source, trust=trust)
    if wanted == "hf":
        raise SpecError(f"{source} is a Hugging Face folder already; leave out --to")
    name, task, search = task_config.carried(found, source)
    if left := task_config.unfollowed(found, source):
        say(f"{source} writes with {', '.join(left)}, and `regard run` will not: its outputs may differ from theirs")
    net = _net(found.spec, found.weights)
    what = f"{found.form.kind} ({found.use})"
    _export(place, name, task, search, found.spec, found.weights, what)
    return _report(place, what, name, net, *_asked(found, net))


def _from_gguf(source: Path, place: Path, wanted: str) -> dict[str, Any]:
    from regard.conversion.gguf import read

    spec, weights, tokenizer = read(source)
    name, task, search = task_config.lm(spec, tokenizer)
    net = _net(spec, weights)
    if wanted == "hf":
        write_folder(place, _hf_files(spec, weights, task, search))
    else:
        _export(place, name, task, search, spec, weights, source.name)
    return _report(place, source.name, name, net, *_again(net, task))


def _to_hf(source: Path, place: Path) -> dict[str, Any]:
    folder = find_model(source)
    net, task, search = load_model(folder)
    write_folder(place, _hf_files(net.spec, net.state_dict(), task, search))
    config = hf.read_config(place)
    name = f"{config['model_type']} ({config['architectures'][0]})"
    return _report(place, str(folder.path), name, net, *_asked(hf.read(place), net))


def _export(
    place: Path, name: str, task: Task, search: Any, spec: ModelSpec, weights: Mapping[str, Tensor], what: str
) -> None:
    """Write a model folder of ours."""
    with torch.device("meta"):
        net = spec.build()
    card = f"# {place.name}\n\nConverted with Regard from {what}; its task is {name}.\n"
    write_model(place, task=task, name=name, net=net, search=search, weights=weights, card=card)


def _hf_files(spec: ModelSpec, weights: Mapping[str, Tensor], task: Any, search: Search) -> dict[str, bytes]:
    """All files of a Hugging Face folder."""
    facts: dict[str, Any] = {} if task.target is None else {**hf.roles(spec, task.target), **hf.searched(spec, search)}
    if supports(task, Classifies):
        classes = task.classes
        facts |= {"id2label": dict(enumerate(classes)), "label2id": {name: i for i, name in enumerate(classes)}}
    files = _token_files(getattr(task, "source", task.target), task.target) | hf.write(spec, weights, facts)
    if supports(task, ReadsImages):
        files["preprocessor_config.json"] = json.dumps(_pixels(task), indent=2).encode()
    return files


def _token_files(source: Tokenizer | None, target: Tokenizer | None) -> dict[str, bytes]:
    """The files of the tokenizer, or of both."""
    if source is None or target is None:
        return {}
    if source is not target:
        return marian_files(source, target)
    with tempfile.TemporaryDirectory() as made, explain_errors("write the tokenizer", Path(made)):
        to_hf(target, Path(made))
        return {path.name: path.read_bytes() for path in Path(made).iterdir()}


def _pixels(task: ReadsImages) -> dict[str, Any]:
    """How pictures become numbers, in their words."""
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


def _net(spec: ModelSpec, weights: Mapping[str, Tensor]) -> Net:
    return spec.filled(weights).eval()


def _again(net: Net, task: Task) -> tuple[float | None, str]:
    """The difference to the same weights in a folder for Hugging Face, where they do not read the file itself."""
    with tempfile.TemporaryDirectory() as made:
        for name, data in _hf_files(net.spec, net.state_dict(), task, Search()).items():
            (Path(made) / name).write_bytes(data)
        return _asked(hf.read(Path(made)), net)


def _asked(found: hf.Found, net: Net) -> tuple[float | None, str]:
    """The largest difference between both sides, or why there is none."""
    if not verify.installed():
        return None, "not compared: transformers is not installed (pip install transformers)"
    return verify.compared(found, net), ""


def _report(place: Path, what: str, now: str, net: Net, far: float | None, why: str) -> dict[str, Any]:
    count = sum(p.numel() for p in net.parameters())
    return {"model": str(place), "from": what, "as": now, "parameters": count, "difference": far, "why": why}


def told(done: Mapping[str, Any]) -> str:
    """The same for people."""
    far = done["why"] if done["difference"] is None else f"largest difference to transformers: {done['difference']:.2g}"
    return f"{done['model']}\n{done['from']} as {done['as']}, {done['parameters']:,} parameters\n{far}"
