"""Models from and to Hugging Face folders.

`model_type` and `architectures` choose from the families' own tables; nothing in a folder is imported or run. What the file
holds is compared with what the model needs before any of it is read into memory.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import families
from regard.conversion.weight_files import list_weights
from regard.decode import Search
from regard.errors import CheckpointError, RegardError, SpecError, UnknownName
from regard.families.published import Form
from regard.families.weight_map import compute_shapes, export_weights, find_faults, import_weights
from regard.files.folder import JSON_LIMIT, WEIGHTS, parse_json, read_file
from regard.model.model_spec import ModelSpec
from regard.serialization.load import build_outline
from regard.text import Tokenizer

CONFIG = "config.json"
Config = Mapping[str, Any]
"""A parsed configuration file."""
OLD_NAMES = {"gamma": "weight", "beta": "bias"}
"""Names of norm weights in older files."""


@dataclasses.dataclass(frozen=True)
class HfModel:
    """A model of a Hugging Face folder, as a spec and weights."""

    form: Form
    use: str
    config: Config
    spec: ModelSpec
    weights: dict[str, Tensor]
    used_config: Mapping[str, object]
    """The settings of config.json that the spec was built from; no others were read."""
    originals: Mapping[str, Tensor]
    """Weights under their original names."""


class _RecordingConfig(Mapping[str, Any]):
    """A config that records which of its settings were read."""

    def __init__(self, config: Config) -> None:
        self._config, self.names = config, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return self._config[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)


def read(folder: Path, *, trust: bool = False) -> HfModel:
    """Read the model of a folder; all missing, surplus and misshapen weights are in one error. `trust` opens pickles."""
    said: Config = read_config(folder)
    form, there = find_form(said, folder), list_weights(folder, trust=trust)
    try:
        names = {_modernize(name): name for name in there}
        with blame_values(folder / CONFIG):
            config = form.complete(said, names)
            use, recorder = form.use(config), _RecordingConfig(config)
            spec = form.build(recorder)
        ours, rows = build_outline(spec, layers=len(there)).shapes(), form.rows(use)
        wanted = set(compute_shapes(rows, ours))
    except UnknownName:
        raise
    except SpecError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from None
    names = _add_prefix(names, form, wanted)
    wrong = find_faults(rows, ours, {name: there[own].shape for name, own in names.items()})
    wrong += [
        f"{own} should hold real numbers, got {there[own].dtype}"
        for name, own in names.items()
        if name in wanted and not there[own].real
    ]
    weights: dict[str, Tensor] = {}
    theirs: dict[str, Tensor] = {}
    if not wrong:
        theirs = there.read(names)
        weights, wrong = import_weights(rows, ours, theirs)
    if wrong:
        raise CheckpointError(f"the weights of {folder} do not fit a {form.kind} model: {'; '.join(wrong)}")
    used = {name: said[name] for name in recorder.names if name in said}
    return HfModel(form, use, config, spec, weights, used, theirs)


@contextmanager
def blame_values(path: Path) -> Iterator[None]:
    """Blame a file from elsewhere for a value that cannot be used: text instead of a number, a number beyond all bounds."""
    try:
        yield
    except RegardError:
        raise
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        said = str(error).partition("\n")[0][:200]
        raise CheckpointError(f"{path} has a value that cannot be used: {said}") from None


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a folder."""
    path = folder / CONFIG
    if not path.exists():
        raise SpecError(f"{folder} has no {CONFIG}: it is neither a Regard model folder nor a Hugging Face folder")
    config = parse_json(read_file(folder, CONFIG, JSON_LIMIT), path)
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} should hold an object, got {type(config).__name__}")
    return config


def find_form(config: Config, folder: Path) -> Form:
    """The published form of a config's family, from our own table."""
    forms, kind = families.forms(), config.get("model_type")
    if kind is None:
        raise SpecError(f"{folder / CONFIG} has no model_type: it is not the configuration of a Hugging Face model")
    if not isinstance(kind, str) or kind not in forms:
        raise UnknownName("model family", str(kind), forms)
    if config.get("quantization_config"):
        raise CheckpointError(
            f"{folder} holds quantized weights, which only its own library can read; use the unquantized model"
        )
    return forms[kind]


def match_form(spec: ModelSpec) -> tuple[Form, str, dict[str, object]]:
    """The published form that equals a model, the class it has there, and its config.json."""
    near: dict[str, list[str]] = {}
    for form in families.forms().values():
        for use in form.uses:
            with suppress(SpecError):  # too different to say how
                config, wrong = form.config(spec, use)
                if not wrong:
                    return form, use, config
                near[f"{form.kind} ({use})"] = wrong
    if not near:
        raise SpecError("Hugging Face has no equivalent model")
    name = min(near, key=lambda name: len(near[name]))
    more = f"; and {len(near[name]) - 5} more" if len(near[name]) > 5 else ""
    raise SpecError(
        f"Hugging Face has no equivalent model; the nearest is {name}, but {'; '.join(near[name][:5])}{more}"
    )


def write(
    spec: ModelSpec,
    weights: Mapping[str, Tensor],
    facts: Config,
    origin: Config | None = None,
    generation: Config | None = None,
) -> dict[str, bytes]:
    """The files of a folder that `transformers` loads, except for the tokenizer's.

    facts       added to config.json: special tokens, names of classes
    origin      the config.json that the model was imported from; it is written again if it still describes the model
    generation  generation_config.json; by default the special tokens and search settings in `facts`
    """
    from safetensors.torch import save

    form, use, config = match_form(spec)
    tensors = export_weights(form.rows(use), dict(weights))
    if form.uses[use].bare:
        tensors = {name.removeprefix(form.prefix): tensor for name, tensor in tensors.items()}
    kinds = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    fixed = {name: value for name, value in config.items() if name not in ("id2label", "label2id")}
    beside = {name: value for name, value in facts.items() if name not in GENERATION}
    config = {**config, **beside, **fixed}
    if origin and _describes(origin, form, spec, tensors):
        config = {**origin, "architectures": config["architectures"]}
        config.pop("torch_dtype", None)  # the old name
    config["dtype"] = kinds.pop() if len(kinds) == 1 else "float32"
    files = {CONFIG: json.dumps(config, indent=2).encode()}
    if spec.decoder is not None:
        own = {name: value for name, value in facts.items() if name.endswith("_token_id") or name in GENERATION}
        files["generation_config.json"] = json.dumps(own if generation is None else generation, indent=2).encode()
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    return {**files, WEIGHTS: save(plain, {"format": "pt"})}


def _describes(origin: Config, form: Form, spec: ModelSpec, names: Iterable[str]) -> bool:
    """True if a config.json describes a model: the same family and the same spec."""
    if origin.get("model_type") != form.kind:
        return False
    with suppress(SpecError, UnknownName, CheckpointError):
        return form.build(form.complete(origin, names)) == spec
    return False


GENERATION = (
    "num_beams", "length_penalty", "max_length", "max_new_tokens", "suppress_tokens", "early_stopping", "do_sample",
    "temperature", "top_k", "top_p", "min_p",
)  # fmt: skip
"""Search settings, which are in generation_config.json and not in config.json."""


def convert_search(spec: ModelSpec, search: Search, tokenizer: Tokenizer, limit: int) -> dict[str, object]:
    """The search settings for generation_config.json; there is no GNMT penalty there.

    Without them `transformers` stops after 20 tokens and may write padding. `limit` is the number of tokens that an
    encoder-decoder writes at most, end mark included.
    """
    never = sorted({tokenizer.bos, tokenizer.pad, tokenizer.unk} - {tokenizer.eos})
    out: dict[str, object] = {"suppress_tokens": never} if never else {}
    if search.sample:
        out |= {"do_sample": True, "temperature": search.temperature, "top_k": search.top_k, "top_p": search.top_p}
        out |= {"min_p": search.min_p} if search.min_p else {}
    if spec.encoder is None or spec.decoder is None:
        return {**out, "max_new_tokens": min(search.max_extra, search.max_length or search.max_extra)}
    penalty = 0.0 if search.length_penalty == "none" else search.alpha
    longest = min(limit, search.max_length or limit) + 1  # and the token that it starts with
    return {**out, "num_beams": search.beam, "length_penalty": penalty, "max_length": longest, "early_stopping": False}


def convert_special_tokens(spec: ModelSpec, tokenizer: Tokenizer) -> dict[str, int]:
    """The ids of special tokens for generation_config.json."""
    ids = {"pad_token_id": tokenizer.pad, "bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos}
    both = spec.encoder is not None and spec.decoder is not None
    return {**ids, "decoder_start_token_id": tokenizer.bos} if both else ids


def _modernize(name: str) -> str:
    front, dot, last = name.rpartition(".")
    return f"{front}{dot}{OLD_NAMES.get(last, last)}"


def _add_prefix(names: Mapping[str, str], form: Form, wanted: set[str]) -> dict[str, str]:
    """Names of a body that was saved without a head, as they are in a whole model."""
    if any(name.startswith(form.prefix) for name in names):
        return dict(names)
    known = {*wanted, *(row.theirs for row in form.names)}
    return {form.prefix + name if _is_known(form.prefix + name, known) else name: own for name, own in names.items()}


def _is_known(name: str, known: set[str]) -> bool:
    layered = ".".join("{}" if part.isdigit() else part for part in name.split("."))
    return name in known or layered in known
