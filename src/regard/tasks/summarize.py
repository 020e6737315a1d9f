"""Summaries: a long text in, a short one out.

Learned from pairs of texts and summaries, like translation, with three differences: long texts are truncated instead of split,
scores are ROUGE with the first sentence (lead-1) as a baseline, and a short, medium or long summary can be requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from regard.data.documents import split_sentences
from regard.data.ragged import Ragged
from regard.errors import SpecError
from regard.spec import Count, spec
from regard.tasks.common.task import TASKS
from regard.tasks.translate import Translate, TranslateData
from regard.text import Tokenizer

LENGTHS = ("short", "medium", "long")


@spec
class SummarizeData(TranslateData):
    """The `data` part of a recipe: texts with their summaries, as for `translate`."""

    max_length: Count = 512
    """Maximum number of tokens of a text, end mark included; the rest is left out."""
    prefix: str = ""
    """Text before every input, in training and in use (`summarize: ` for T5)."""
    lengths: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = None
    """Length control: a summary up to the first number of words is short, up to the second medium, beyond it long."""
    metrics: tuple[str, ...] = ("rouge_l", "rouge1", "rouge2")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lengths is not None and self.lengths[0] >= self.lengths[1]:
            raise SpecError(
                f"lengths should be two increasing numbers of words, such as [6, 9], got {list(self.lengths)}"
            )


@TASKS.add
class Summarize(Translate):
    """Text to summary.

    With `lengths`, every second training text is marked with the length of its summary (Fan et al. 2018). The mark is plain
    text (`short: `), so it needs no special tokens. A length can then be requested (`--to short`), or left to the model.
    """

    Settings = SummarizeData
    settings: SummarizeData
    offers_filters = False
    splits = False

    def __init__(self, settings: SummarizeData, tokenizer: Tokenizer, source: Tokenizer | None = None) -> None:
        super().__init__(settings, tokenizer, source)
        texts = {"": settings.prefix}
        texts |= {f"2{length}": f"{length}: {settings.prefix}" for length in LENGTHS if settings.lengths}
        self.prompts = {tag: self.source_tokenizer.encode(text) for tag, text in texts.items() if text}
        if (longest := max(map(len, self.prompts.values()), default=0)) > settings.max_length // 2:
            raise SpecError(f"the prefix has {longest} tokens, and max_length is {settings.max_length}; raise it")

    def tokenize_pairs(self, sources: Sequence[str], targets: Sequence[str], tag: str | None) -> tuple[Ragged, Ragged]:
        """The beginning of each text, and its summary; every second text is marked with the length of its summary."""
        read = []
        for i, (ids, summary) in enumerate(zip(self.source_tokenizer.encode_all(sources), targets, strict=True)):
            mark = self._measure(summary) if tag is None and i % 2 else tag
            read.append([*self._opening(mark), *ids[: self._room(mark)]])
        return Ragged.of(read), Ragged.of(self.tokenizer.encode_all(targets))

    def describe_encoding(self) -> dict[str, object]:
        return super().describe_encoding() | {"prefix": self.settings.prefix, "lengths": self.settings.lengths}

    def make_baseline(self, inputs: Sequence[object]) -> tuple[str, list[str]]:
        """The first sentence of each text."""
        return "lead-1", [next(iter(split_sentences(str(text), "line")), "") for text in inputs]

    def _measure(self, summary: str) -> str | None:
        """The tag of a summary's length; None without length control."""
        if self.settings.lengths is None:
            return None
        words = len(summary.split())
        return f"2{LENGTHS[sum(words > border for border in self.settings.lengths)]}"
