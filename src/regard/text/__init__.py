"""Text to tokens and back, on the `tokenizers` library."""

from regard.text.imports import SentencePiece, SubwordNmt, from_sentencepiece, from_subword_nmt
from regard.text.kinds import (
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
from regard.text.normalize import Normalize
from regard.text.template import Template
from regard.text.tokenizer import Tokenizer

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
