"""Word and sentence boundaries between tokens.

Every kind of vocabulary shows which tokens continue a word:

    WordPiece                 ▁phil ##am ##mon      tokens that begin with ##
    subword-nmt, pieces       phil@@ am@@ mon       tokens after @@
    all others                ▁phil am mon , ▁x     letters and digits directly after letters and digits
"""

from __future__ import annotations

import unicodedata

import numpy as np
from numpy.typing import NDArray

from regard.text.tokenizer import Tokenizer

Flags = NDArray[np.bool_]
STOPS = (".", "!", "?", "…", "。", "！", "？")
"""Characters with which sentences end."""


class WordBoundaries:
    """Tokens of a vocabulary that can continue a word."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        labels, model = tokenizer.tokens(range(tokenizer.size)), tokenizer.core.model
        if type(model).__name__ == "WordPiece":
            self._opens = np.array([label.startswith("##") for label in labels])
            self._closes = np.ones(len(labels), bool)
        elif getattr(model, "end_of_word_suffix", None) or "@@" in repr(tokenizer.core.decoder):
            self._opens = np.ones(len(labels), bool)
            self._closes = np.array([label.endswith("@@") for label in labels])
        else:
            self._opens = np.array([_is_letter(label[:1]) for label in labels])
            self._closes = np.array([_is_letter(label[-1:]) for label in labels])

    def continues_word(self, ids: NDArray[np.integer]) -> Flags:
        """Return for each token whether it continues the word of the previous one."""
        out = np.zeros(len(ids), bool)
        out[1:] = self._opens[ids[1:]] & self._closes[ids[:-1]]
        return out


class SentenceEnds:
    """Tokens that end a sentence: those that end in a full stop, a question mark or an exclamation mark, as in BART's code."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._stops = np.array([label.endswith(STOPS) for label in tokenizer.tokens(range(tokenizer.size))])

    def find(self, ids: NDArray[np.integer]) -> Flags:
        """Return for each token whether a sentence ends with it."""
        return self._stops[ids]  # type: ignore[no-any-return]


def _is_letter(text: str) -> bool:
    """True if a character is a letter, a digit or a combining mark."""
    return bool(text) and unicodedata.category(text)[0] in "LMN"
