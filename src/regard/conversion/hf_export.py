"""Export: all files of a Hugging Face folder."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from regard.conversion import hf
from regard.conversion.hf_origin import Origin
from regard.conversion.hf_tokenizer import to_hf
from regard.conversion.marian_layout import starts_from_zero, to_marian_layout
from regard.conversion.marian_tokenizer import marian_files
from regard.conversion.task_config import derive_search
from regard.decode import Search
from regard.errors import SpecError
from regard.files.storage import explain_errors
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.embedding import Tokens
from regard.tasks.common.capabilities import Classifies, FramesText, ReadsImages, supports
from regard.tasks.common.task import Task
from regard.text import Tokenizer


@dataclass(frozen=True)
class HfExport:
    """A model as a Hugging Face folder has it."""

    files: dict[str, bytes]
    spec: ModelSpec
    weights: Mapping[str, Tensor]
    """The weights by our names, in the order of tokens that the folder has."""
    notes: tuple[str, ...]
    """Notes on what is different there."""


def export_model(
    spec: ModelSpec, weights: Mapping[str, Tensor], task: Task, search: Search, origin: Origin = Origin()
) -> HfExport:
    """All files of a Hugging Face folder for a model; `origin` is what it was imported from."""
    tokenizer, notes = task.tokenizer, list[str]()
    source: Tokenizer | None = getattr(task, "source_tokenizer", tokenizer)
    pair: dict[str, bytes] = {}
    if source is not None and tokenizer is not None and source is not tokenizer:
        pair = marian_files(source, tokenizer, origin.tokenizer)
    kind = hf.match_form(spec)[0].kind
    if kind == "marian" and tokenizer is not None and source is tokenizer:
        opening = task.input_template.opening if supports(task, FramesText) else []
        spec, weights, tokenizer = to_marian_layout(spec, weights, tokenizer, opening)
        source = tokenizer
        if not starts_from_zero(weights, tokenizer):
            notes.append("its decoder does not start from a zero vector, as CTranslate2 assumes: outputs differ there")
    facts: dict[str, object] = {}
    if tokenizer is not None:
        facts |= hf.convert_special_tokens(spec, tokenizer)
        facts |= hf.convert_search(spec, search, tokenizer, _output_limit(spec, task))
        if (
            search.length_penalty == "gnmt"
            and search.beam > 1
            and spec.encoder is not None
            and spec.decoder is not None
        ):
            notes.append("transformers has no GNMT length penalty: beam search may choose other outputs there")
    if supports(task, Classifies):
        classes = task.classes
        facts |= {"id2label": dict(enumerate(classes)), "label2id": {name: i for i, name in enumerate(classes)}}
    generation = _merge_generation(facts, search, origin)
    files = hf.write(spec, weights, facts, origin.config, generation)
    if source is not None and tokenizer is not None:
        files |= pair or _token_files(tokenizer, task, spec, origin)
    if supports(task, ReadsImages):
        files["preprocessor_config.json"] = json.dumps(_pixels(task), indent=2).encode()
    return HfExport(files, spec, weights, tuple(notes))


def _merge_generation(facts: Mapping[str, object], search: Search, origin: Origin) -> dict[str, object]:
    """The settings of generation: those of the origin, with how the model searches now if that was changed."""
    ours = {name: value for name, value in facts.items() if name.endswith("_token_id") or name in hf.GENERATION}
    theirs = origin.all_generation
    if not theirs:
        return ours
    changed: dict[str, object] = {name: ours[name] for name in ("num_beams", "length_penalty") if name in ours}
    merged = origin.generation or {**ours, **theirs}
    with suppress(SpecError, TypeError, ValueError):  # settings of the origin that cannot be used
        if derive_search(theirs) == search:
            return merged
    return {**merged, **changed}


def _output_limit(spec: ModelSpec, task: Task) -> int:
    """The number of tokens, end mark included, that the model writes at most."""
    longest = getattr(task.settings, "max_length", None)
    return spec.length if longest is None else min(2 * longest, spec.length)


def _token_files(tokenizer: Tokenizer, task: Task, spec: ModelSpec, origin: Origin) -> dict[str, bytes]:
    """The files of the tokenizer."""
    own = tokenizer is task.tokenizer  # otherwise it was made for this folder
    template = task.input_template if own and supports(task, FramesText) else tokenizer.template
    longest = getattr(task.settings, "max_length", None) or spec.room
    settings: dict[str, object] = {} if longest is None else {"model_max_length": longest}
    if spec.encoder is None:
        settings["padding_side"] = "left"  # a decoder continues the last token
    segments = isinstance(spec.embed, Tokens) and spec.embed.segments > 1
    with tempfile.TemporaryDirectory() as made, explain_errors("write the tokenizer", Path(made)):
        to_hf(tokenizer, Path(made), template, {**settings, **origin.tokenizer}, segments=segments)
        return {path.name: path.read_bytes() for path in Path(made).iterdir()}


def _pixels(task: ReadsImages) -> dict[str, object]:
    """Describe how images become numbers, as a preprocessor configuration."""
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
