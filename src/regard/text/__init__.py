"""Text to tokens and back, with the `tokenizers` library."""

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
