"""The table of metrics.

Every metric is higher-is-better, or says that it is not. Add your own with `METRICS.add(Metric("mine", score))`, where `score`
is a function of outputs and references; with `reads_sources=True`, also of the sources.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

from regard.errors import DataError, SpecError
from regard.metrics.class_metrics import (
    SplitLabels,
    accuracy_items,
    macro_f1_items,
    one_label,
    span_f1_items,
    split_words,
)
from regard.metrics.comet import comet_items
from regard.metrics.items import CountedItems, Items, Score, ScoredItems
from regard.metrics.ranking import NAMES as RANKING
from regard.metrics.text_metrics import (
    ROUGE,
    SACREBLEU,
    edit_similarity_items,
    exact_items,
    phone_error_items,
    rouge_items,
    sacrebleu_items,
    sacrebleu_score,
    sacrebleu_signature,
    wer_items,
    word_error_items,
)
from regard.registry import Registry

CountItems = Callable[..., CountedItems]
Columns = tuple[Sequence[str], ...]


@dataclasses.dataclass(frozen=True)
class Metric:
    """A named score of a whole test set."""

    kind: str
    score: Score | None = None
    """The score of outputs against references; None if `count` gives it, or if the metric comes with the loss."""
    higher: bool = True
    signature: Callable[[], str] = lambda: ""
    labels: SplitLabels | None = None
    """Function that splits an output into labels, for a metric of classes; each class then has scores of its own."""
    count: CountItems | None = None
    """The counts that the score is made of, item by item."""
    reads_sources: bool = False
    """True if `score` and `count` take the sources, too, as a third argument."""
    any_vocabulary: bool = False
    """True if scores of models with different vocabularies can be compared, although it comes with the loss."""

    @property
    def decodes(self) -> bool:
        """True if the metric needs outputs; the others are computed with the validation loss."""
        return self.score is not None or self.count is not None

    def items(self, outputs: Sequence[str], references: Sequence[str], sources: Sequence[object] = ()) -> Items:
        """The test items, for the score of any selection of them."""
        columns = self._columns(outputs, references, sources)
        if self.count is not None:
            return self.count(*columns)
        assert self.score is not None, f"{self.kind} is not a score of outputs"
        return ScoredItems(columns, self.score)

    def compute(self, outputs: Sequence[str], references: Sequence[str], sources: Sequence[object] = ()) -> float:
        """The score of outputs; only for a metric that `decodes`."""
        if self.score is None:
            return self.items(outputs, references, sources).score()
        return self.score(*self._columns(outputs, references, sources))

    def _columns(self, outputs: Sequence[str], references: Sequence[str], sources: Sequence[object]) -> Columns:
        """Return what the functions of the metric read: columns of one length, which is not 0."""
        if len(outputs) != len(references):
            raise DataError(
                f"{self.kind} needs as many outputs as references, got {len(outputs)} and {len(references)}"
            )
        if not len(outputs):
            raise DataError(f"{self.kind} needs at least one output and its reference, got none")
        if self.labels is not None and not any(label for text in references for label in self.labels(text)):
            raise DataError(f"{self.kind} needs labels, but all references are empty")
        if not self.reads_sources:
            return outputs, references
        if len(sources) != len(references):
            raise SpecError(
                f"{self.kind} reads the sources, too, and got {len(sources)} of them for {len(references)} references"
            )
        return outputs, references, [str(source) for source in sources]

    def better(self, a: float, b: float) -> bool:
        """True if the score `a` is better than `b`."""
        return a > b if self.higher else a < b


METRICS: Registry[Metric] = Registry("metric")

for metric in (
    Metric("loss", higher=False),
    Metric("perplexity", higher=False),
    Metric("bits_per_byte", higher=False, any_vocabulary=True),
    Metric("unknown_tokens", higher=False, any_vocabulary=True),
    Metric("masked_accuracy"),
    Metric("next_sentence_accuracy"),
    Metric("pair_accuracy"),
    Metric("frame_accuracy"),
    Metric("token_accuracy"),
    *(Metric(name) for name in RANKING),
    Metric("ece", higher=False),
    Metric("brier", higher=False),
    *(
        Metric(
            kind,
            sacrebleu_score(kind),
            higher=kind != "ter",
            signature=partial(sacrebleu_signature, kind),
            count=sacrebleu_items(kind),
        )
        for kind in SACREBLEU
    ),
    *(Metric(kind, count=rouge_items(kind)) for kind in ROUGE),
    Metric("comet", count=comet_items, reads_sources=True),
    Metric("exact", count=exact_items),
    Metric("edit_similarity", count=edit_similarity_items),
    Metric("wer", higher=False, count=wer_items),
    Metric("word_error", higher=False, count=word_error_items),
    Metric("phone_error", higher=False, count=phone_error_items),
    Metric("accuracy", labels=one_label, count=accuracy_items()),
    Metric("macro_f1", labels=one_label, count=macro_f1_items()),
    Metric("word_accuracy", labels=split_words, count=accuracy_items(split_words)),
    Metric("word_macro_f1", labels=split_words, count=macro_f1_items(split_words)),
    Metric("span_f1", count=span_f1_items),
    Metric("letter_accuracy", labels=list, count=accuracy_items(list)),
    Metric("letter_macro_f1", labels=list, count=macro_f1_items(list)),
):
    METRICS.add(metric)
