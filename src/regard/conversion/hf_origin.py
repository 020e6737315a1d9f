"""Data of a Hugging Face folder that a model does not use.

Settings of `transformers` alone (a forced last token, chat templates, …) are kept in the model folder as plain data, and are
written again when the model is exported. Of them a server reads the chat template and the tokens that end an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError
from regard.files.folder import JSON_LIMIT, Folder, parse_json, read_file

FILE = "huggingface.json"
"""Name in a model folder."""
CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
"""The chat template, where it is not in the configuration of the tokenizer."""
NAMES_CODE = ("auto_map", "custom_pipelines", "transformers_weights", "quantization_config", "adapter_config")
"""Settings that name code, files or kernels; they are not kept, nor is any key that contains `attn_implementation`."""
TOKENIZER_SETTINGS = (
    "model_max_length", "clean_up_tokenization_spaces", "padding_side", "truncation_side", "chat_template",
    "source_lang", "target_lang",
)  # fmt: skip
"""Settings of tokenizers that are kept; the others are in tokenizer.json."""
GENERATION_SETTINGS = (
    "bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "num_beams", "length_penalty", "max_length", "min_length", "early_stopping",
    "no_repeat_ngram_size", "repetition_penalty", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens",
)  # fmt: skip
"""Settings of generation that old files have in config.json."""

Settings = dict[str, Any]
"""A parsed configuration file."""


@dataclass(frozen=True)
class Origin:
    """The configuration files of the folder that a model came from, without what names code."""

    config: Settings = field(default_factory=dict)
    generation: Settings = field(default_factory=dict)
    tokenizer: Settings = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Origin:
        """Read the settings of a Hugging Face folder."""
        tokenizer = read_settings(folder, TOKENIZER)
        kept = {name: tokenizer[name] for name in TOKENIZER_SETTINGS if name in tokenizer}
        if (folder / CHAT_TEMPLATE).exists():
            kept["chat_template"] = read_file(folder, CHAT_TEMPLATE, JSON_LIMIT).decode("utf-8", "replace")
        return cls(_keep_plain(read_settings(folder, CONFIG)), _keep_plain(read_settings(folder, GENERATION)), kept)

    @classmethod
    def load(cls, folder: Folder) -> Origin:
        """Load the settings that a model folder kept; empty for a model that was trained here."""
        if FILE not in folder:
            return cls()
        said = folder.json(FILE)
        parts = [said.get(name, {}) if isinstance(said, dict) else None for name in (CONFIG, GENERATION, TOKENIZER)]
        if not all(isinstance(part, dict) for part in parts):
            raise CheckpointError(f"{folder.path / FILE} is damaged: it should hold three objects")
        return cls(*map(_keep_plain, parts))  # type: ignore[arg-type]

    def files(self) -> dict[str, bytes]:
        """The file that a model folder keeps."""
        said = {CONFIG: self.config, GENERATION: self.generation, TOKENIZER: self.tokenizer}
        return {FILE: json.dumps(said, indent=1).encode()}

    @property
    def chat_template(self) -> str | None:
        """The chat template; the one named `default` of several."""
        said = self.tokenizer.get("chat_template")
        if isinstance(said, list):
            named = {each.get("name"): each.get("template") for each in said if isinstance(each, dict)}
            said = named.get("default")
        return said if isinstance(said, str) and said else None

    @property
    def end_tokens(self) -> frozenset[int]:
        """The ids of all tokens that end an output; a model for chats may have one for texts and one for turns."""
        said = self.all_generation.get("eos_token_id")
        return frozenset(i for i in (said if isinstance(said, list) else [said]) if isinstance(i, int))

    @property
    def all_generation(self) -> Settings:
        """The settings of generation, wherever they were."""
        return {k: v for k, v in self.config.items() if k in GENERATION_SETTINGS} | self.generation


def read_settings(folder: Path, name: str) -> Settings:
    """The contents of a JSON file of a folder; empty if there is none."""
    path = folder / name
    if not path.exists():
        return {}
    found = parse_json(read_file(folder, name, JSON_LIMIT), path)
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} should hold an object, got {type(found).__name__}")
    return found


def _keep_plain(settings: Mapping[str, Any]) -> Settings:
    return {k: v for k, v in settings.items() if k not in NAMES_CODE and "attn_implementation" not in k}
