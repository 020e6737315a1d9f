"""Which tokens make a word: for every vocabulary there is a way to see that a token goes on the word before it.

WordPiece                 ▁phil ##am ##mon      what begins with ##
subword-nmt, cut text     phil@@ am@@ mon       what comes after @@
all others                ▁phil am mon , ▁x     letters and digits right after letters and digits
"""

from __future__ import annotations

import unicodedata

import numpy as np
from numpy.typing import NDArray

from regard.text.tokenizer import Tokenizer

Flags = NDArray[np.bool_]


class WordBoundaries:
    """Where the tokens of a vocabulary join into words."""

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
        """For each token, whether it goes on the word of the one before it."""
        out = np.zeros(len(ids), bool)
        out[1:] = self._opens[ids[1:]] & self._closes[ids[:-1]]
        return out


def _is_letter(text: str) -> bool:
    """Letters, digits, and the marks that belong to them."""
    return bool(text) and unicodedata.category(text)[0] in "LMN"
