"""What text looks like before it is cut into tokens: one Unicode form, perhaps lower case, single spaces.

Normalising twice changes nothing more, and what `decode` gives back is the normalised text.
"""

from __future__ import annotations

from typing import Literal

from tokenizers import Regex, normalizers

from regard.spec import Spec, spec


@spec
class Normalize(Spec):
    """`spaces`: a run of white space (line breaks too) becomes one space, and none is left at the ends."""

    unicode: Literal["nfc", "nfkc", "none"] = "nfc"
    lowercase: bool = False
    spaces: bool = True

    def steps(self) -> list[normalizers.Normalizer]:
        """The library's parts that do it, in order."""
        form: list[normalizers.Normalizer] = []
        if self.unicode != "none":
            form = [normalizers.NFC() if self.unicode == "nfc" else normalizers.NFKC()]
        steps = [*form]
        if self.lowercase:  # lower-casing can undo the form (H and a line below compose only as small letters)
            steps += [normalizers.Lowercase(), *form]
        if self.spaces:
            steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
        return steps

    def apply(self, text: str) -> str:
        """The text as a tokenizer with this spec sees it and gives it back."""
        return normalizers.Sequence(self.steps()).normalize_str(text)
