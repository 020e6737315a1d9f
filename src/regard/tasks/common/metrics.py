"""Scores of outputs against references, by the libraries whose numbers people compare: sacreBLEU and jiwer.

Every metric is higher-is-better or says that it is not; a user's own joins with `METRICS.add(Mine())`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from regard.data.pronunciation import OR
from regard.registry import Registry
from regard.tasks.common.confusion import accuracy, macro_f1, span_f1, whole, words

Score = Callable[[Sequence[str], Sequence[str]], float]


@dataclasses.dataclass(frozen=True)
class Metric:
    """A named score of a whole test set."""

    kind: str
    score: Score | None
    """None for what the validation loss says already, without any output."""
    higher: bool = True
    signature: Callable[[], str] = lambda: ""
    units: Callable[[str], list[str]] | None = None
    """The labels in an output, for a score of classes: of each class there is then more to tell."""

    def of(self, outputs: Sequence[str], references: Sequence[str]) -> float:
        """The score of outputs; only for a metric that looks at them."""
        assert self.score is not None
        return self.score(outputs, references)

    def better(self, a: float, b: float) -> bool:
        return a > b if self.higher else a < b


METRICS: Registry[Metric] = Registry("metric")


SACREBLEU: dict[str, tuple[str, dict[str, Any]]] = {
    "bleu": ("BLEU", {}),
    "bleu_tokens": ("BLEU", {"tokenize": "none", "force": True}),
    "bleu_zh": ("BLEU", {"tokenize": "zh"}),
    "bleu_char": ("BLEU", {"tokenize": "char"}),
    "chrf": ("CHRF", {}),
    "chrfpp": ("CHRF", {"word_order": 2}),
    "ter": ("TER", {}),
}
"""Our names of sacreBLEU's measures: its class, and the options. `bleu` splits words as 13a does, which suits writing with
spaces; `bleu_zh` is for Chinese, `bleu_char` for any other without, `bleu_tokens` for what is split already."""


def measure(kind: str) -> Any:
    """sacreBLEU's object for a score of that name."""
    import sacrebleu

    name, options = SACREBLEU[kind]
    return getattr(sacrebleu, name)(**options)


def _by_sacrebleu(kind: str) -> Metric:
    def score(outputs: Sequence[str], references: Sequence[str]) -> float:
        return float(measure(kind).corpus_score(list(outputs), [list(references)]).score)

    def signature() -> str:
        """Its own name and signature, with one reference."""
        here = measure(kind)
        return f"{here.corpus_score(['a'], [['a']]).name}|{here.get_signature()}"

    return Metric(kind, score, higher=kind != "ter", signature=signature)


def exact(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Per cent of outputs equal to their reference."""
    return 100.0 * sum(a == b for a, b in zip(outputs, references, strict=True)) / max(len(references), 1)


def wer(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Per cent of words that must be changed; outputs without a word count as all wrong."""
    import jiwer

    return 100.0 * float(jiwer.wer(list(references), list(outputs)))


def word_error(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Per cent of outputs that are none of the right answers."""
    wrong = sum(out not in ways.split(OR) for out, ways in zip(outputs, references, strict=True))
    return 100.0 * wrong / max(len(references), 1)


def phone_error(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Per cent of phones that must be changed to make each output the nearest of its right answers."""
    import jiwer

    def nearest(out: str, ways: list[str]) -> str:
        return out if out in ways else min(ways, key=lambda way: float(jiwer.wer(way, out)))

    return wer(outputs, [nearest(out, ways.split(OR)) for out, ways in zip(outputs, references, strict=True)])


for metric in (
    Metric("loss", None, higher=False),
    Metric("perplexity", None, higher=False),
    Metric("masked_accuracy", None),
    Metric("next_sentence_accuracy", None),
    Metric("pair_accuracy", None),
    *map(_by_sacrebleu, SACREBLEU),
    Metric("exact", exact),
    Metric("wer", wer, higher=False),
    Metric("word_error", word_error, higher=False),
    Metric("phone_error", phone_error, higher=False),
    Metric("accuracy", accuracy(), units=whole),
    Metric("macro_f1", macro_f1(), units=whole),
    Metric("word_accuracy", accuracy(words), units=words),
    Metric("word_macro_f1", macro_f1(words), units=words),
    Metric("span_f1", span_f1),
    Metric("letter_accuracy", accuracy(list), units=list),
    Metric("letter_macro_f1", macro_f1(list), units=list),
):
    METRICS.add(metric)
