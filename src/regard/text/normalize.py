"""Normalization of text before tokenization.

One Unicode form, optionally lower case, single spaces. Normalizing twice changes nothing more, and `decode` returns the
normalized text.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from tokenizers import Regex, normalizers

from regard.spec import Spec, spec

UnicodeForm = Literal["nfc", "nfkc", "none"]


@spec
class Normalize(Spec):
    """`spaces`: runs of white space, including line breaks, become one space, and the ends are stripped."""

    unicode: UnicodeForm = "nfc"
    lowercase: bool = False
    spaces: bool = True

    def steps(self) -> list[normalizers.Normalizer]:
        """Return the normalizers of the library, in order."""
        form: list[normalizers.Normalizer] = []
        if self.unicode != "none":
            form = [normalizers.NFC() if self.unicode == "nfc" else normalizers.NFKC()]
        steps = [*form]
        if self.lowercase:  # can undo the form (H and a line below compose only in lower case)
            steps += [normalizers.Lowercase(), *form]
        if self.spaces:
            steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
        return steps

    def apply(self, text: str) -> str:
        """Return the text as a tokenizer with this spec sees it."""
        return _join_steps(self).normalize_str(text)


@cache
def _join_steps(normalize: Normalize) -> normalizers.Sequence:
    """All steps in one: a text is faster normalized than its regular expression is compiled."""
    return normalizers.Sequence(normalize.steps())
