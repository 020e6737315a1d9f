"""Text to tokens and back, with the `tokenizers` library.

Each part is imported when it is first used: who checks a file does not wait for the specs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.text.importers import SentencePiece, SubwordNmt, from_sentencepiece, from_subword_nmt
    from regard.text.normalize import Normalize
    from regard.text.template import Template
    from regard.text.tokenizer import Tokenizer
    from regard.text.tokenizer_specs import (
        TOKENIZERS,
        Bpe,
        ByteBpe,
        Bytes,
        Chars,
        Pieces,
        TokenizerSpec,
        Unigram,
        WordPiece,
        Words,
    )

__all__ = [
    "TOKENIZERS",
    "Bpe",
    "ByteBpe",
    "Bytes",
    "Chars",
    "Normalize",
    "Pieces",
    "SentencePiece",
    "SubwordNmt",
    "Template",
    "Tokenizer",
    "TokenizerSpec",
    "Unigram",
    "WordPiece",
    "Words",
    "from_sentencepiece",
    "from_subword_nmt",
]
_HOMES = {
    "importers": ("SentencePiece", "SubwordNmt", "from_sentencepiece", "from_subword_nmt"),
    "normalize": ("Normalize",),
    "template": ("Template",),
    "tokenizer": ("Tokenizer",),
}


def __getattr__(name: str) -> object:
    """Import a part when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'regard.text' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "tokenizer_specs")
    if home == "tokenizer_specs":
        importlib.import_module("regard.text.importers")  # adds its specs to TOKENIZERS
    return getattr(importlib.import_module(f"regard.text.{home}"), name)
