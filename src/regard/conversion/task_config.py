"""The task of a converted model, with its tokenizer.

So that `regard run` and fine-tuning work at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.conversion.hf import HfModel, blame_values
from regard.conversion.hf_tokenizer import from_hf
from regard.decode import Search
from regard.errors import CheckpointError, DataError, SpecError
from regard.files.folder import JSON_LIMIT, parse_json, read_file
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.head import Classes
from regard.tasks.classify import Classify, ClassifyData
from regard.tasks.common.class_names import check_class_names
from regard.tasks.embed import Embed, EmbedData
from regard.tasks.image import Image, ImageData
from regard.tasks.lm import Lm, LmData
from regard.tasks.mlm import Mlm, MlmData
from regard.tasks.tag import Tag, TagData
from regard.tasks.translate import Translate, TranslateData
from regard.text import Tokenizer

TaskConfig = tuple[str, Any, Search]
"""The name of a task, the task, and its search settings."""


def make_lm(spec: ModelSpec, tokenizer: Tokenizer) -> TaskConfig:
    """The task of a decoder: it continues texts."""
    return "lm", Lm(LmData(context=spec.length), tokenizer), Search(beam=1)


def make_task(found: HfModel, folder: Path, chosen: Tokenizer | None = None) -> TaskConfig:
    """The task of a converted model, from what else its folder says; `chosen` is another tokenizer than the folder's."""
    with blame_values(folder):
        made = _TASKS[found.form.uses[found.use].task](found, folder, chosen)
    target, tables = made[1].tokenizer, (found.spec.source or found.spec.embed, found.spec.embed)
    for tokenizer, table in zip((getattr(made[1], "source_tokenizer", target), target), tables, strict=True):
        if tokenizer is not None and tokenizer.size > table.vocab:
            first = tokenizer.tokens([table.vocab])[0]
            raise DataError(
                f"the tokenizer in {folder} has {tokenizer.size} tokens, but the model has {table.vocab}; the first "
                f"one that it lacks is {first!r}"
            )
    return made


def _lm(found: HfModel, folder: Path, chosen: Tokenizer | None) -> TaskConfig:
    return make_lm(found.spec, chosen or _tokenizer(folder))


def _translate(found: HfModel, folder: Path, chosen: Tokenizer | None) -> TaskConfig:
    search = {**found.config, **_read_json(folder, "generation_config.json")}
    target, source = chosen or _tokenizer(folder), chosen or from_hf(folder, "source")
    same = source is None or source.to_bytes() == target.to_bytes()
    settings = TranslateData(max_length=found.spec.length, joint_vocab=same)
    return "translate", Translate(settings, target, None if same else source), derive_search(search)


def derive_search(generation: Mapping[str, Any]) -> Search:
    """The search of an encoder-decoder model, from the settings of generation in its folder."""
    beam, alpha = generation.get("num_beams") or 4, generation.get("length_penalty")
    return Search(beam=beam, length_penalty="power", alpha=1.0 if alpha is None else alpha)


UNSUPPORTED = {
    "bad_words_ids": None,
    "begin_suppress_tokens": None,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "forced_bos_token_id": None,
    "min_length": 0,
    "min_new_tokens": None,
    "no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "suppress_tokens": None,
}
"""Generation settings that are not supported, with the values that turn them off."""


def find_unsupported(found: HfModel, folder: Path, tokenizer: Tokenizer | None) -> list[str]:
    """The generation settings of a folder that are not supported; special tokens are never written in any case."""
    if found.form.uses[found.use].task != "translate" or tokenizer is None:
        return []
    said = {**found.config, **_read_json(folder, "generation_config.json")}
    never = [tokenizer.bos, tokenizer.pad, tokenizer.unk]
    for name in ("bad_words_ids", "suppress_tokens"):
        if isinstance(said.get(name), list) and all(
            token in never or token in [[i] for i in never] for token in said[name]
        ):
            said[name] = None
    return [f"{name} {said[name]}" for name, none in UNSUPPORTED.items() if said.get(name, none) not in (none, None)]


def _mlm(found: HfModel, folder: Path, chosen: Tokenizer | None) -> TaskConfig:
    settings = MlmData(context=found.spec.length, next_sentence=found.spec.beside is not None)
    return "mlm", Mlm(settings, chosen or _tokenizer(folder)), Search()


def _classify(found: HfModel, folder: Path, chosen: Tokenizer | None) -> TaskConfig:
    settings = ClassifyData(max_length=found.spec.length, **found.form.uses[found.use].settings)
    return "classify", Classify(settings, chosen or _tokenizer(folder), _classes(found)), Search()


def _tag(found: HfModel, folder: Path, chosen: Tokenizer | None) -> TaskConfig:
    return "tag", Tag(TagData(max_length=found.spec.length), chosen or _tokenizer(folder), _classes(found)), Search()


def _embed(found: HfModel, folder: Path, chosen: Tokenizer | None) -> TaskConfig:
    """Pooling as `sentence-transformers` is configured, if it is; otherwise the mean of all tokens, of length one."""
    modules, pooling = _read_json(folder, "modules.json"), _read_json(folder, "1_Pooling/config.json")
    kinds = [str(part.get("type")).rpartition(".")[2] for part in modules.values()]
    if strange := [kind for kind in kinds if kind not in _PARTS]:
        raise SpecError(f"{folder} has {', '.join(strange)} after the model; only {', '.join(_PARTS)} are supported")
    longest = _read_json(folder, "sentence_bert_config.json").get("max_seq_length") or found.spec.length
    settings = EmbedData(
        max_length=min(longest, found.spec.length),
        pool="first" if pooling.get("pooling_mode_cls_token") else "mean",
        unit=not modules or "Normalize" in kinds,
    )
    return "embed", Embed(settings, chosen or _tokenizer(folder)), Search()


_PARTS = ("Transformer", "Pooling", "Normalize")
"""The supported modules of `sentence-transformers`."""


def _image(found: HfModel, folder: Path, chosen: Tokenizer | None) -> TaskConfig:
    said = _read_json(folder, "preprocessor_config.json")
    if not isinstance(found.spec.head, Classes):
        raise SpecError(f"{folder} has no classes, so there is no task for it; use a model with a classification head")
    side, channels = found.spec.embed.side, found.spec.embed.channels  # type: ignore[attr-defined]
    mean, deviation = (
        _numbers(said.get(name) or [0.5] * channels, f"{name} in preprocessor_config.json")
        for name in ("image_mean", "image_std")
    )
    return "image", Image(ImageData(side=side), _classes(found), side, mean, deviation), Search()


def _numbers(found: object, what: str) -> list[float]:
    if not isinstance(found, list) or not all(isinstance(each, int | float) and math.isfinite(each) for each in found):
        raise CheckpointError(f"{what} should be a list of numbers, is {found!r:.80}")
    return found


_TASKS: dict[str, Callable[[HfModel, Path, Tokenizer | None], TaskConfig]] = {
    "lm": _lm,
    "translate": _translate,
    "mlm": _mlm,
    "classify": _classify,
    "tag": _tag,
    "embed": _embed,
    "image": _image,
}


def _tokenizer(folder: Path) -> Tokenizer:
    tokenizer = from_hf(folder)
    if tokenizer is None:
        raise DataError(
            f"{folder} has no tokenizer; put its tokenizer.json (or vocab.txt, or spiece.model) beside the weights"
        )
    return tokenizer


def _classes(found: HfModel) -> tuple[str, ...]:
    """The names of the classes, in order; numbered by default."""
    assert isinstance(found.spec.head, Classes)
    said = found.config.get("id2label")
    named = {str(i): str(name) for i, name in said.items()} if isinstance(said, Mapping) else {}
    classes = [named.get(str(i), f"LABEL_{i}") for i in range(found.spec.head.count)]
    return check_class_names(classes, "config.json")


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    """The contents of a JSON file of the folder; empty if there is none. A list becomes a mapping from its indices."""
    path = folder / name
    if not path.exists():
        return {}
    found = parse_json(read_file(folder, name, JSON_LIMIT), path)
    if isinstance(found, list) and all(isinstance(part, dict) for part in found):
        return dict(enumerate(found))  # type: ignore[arg-type]
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} should hold an object or a list of them, got {type(found).__name__}")
    return found
