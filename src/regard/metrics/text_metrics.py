"""Scores of texts, by sacreBLEU, rouge-score and jiwer.

These are the libraries whose numbers people compare. Each function turns outputs and references into counts of each line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.pronunciation import OR
from regard.errors import SpecError, name_extra
from regard.metrics.items import CountedItems, count_items, percentage

SACREBLEU: dict[str, tuple[str, dict[str, Any]]] = {
    "bleu": ("BLEU", {}),
    "bleu_tokens": ("BLEU", {"tokenize": "none", "force": True}),
    "bleu_zh": ("BLEU", {"tokenize": "zh"}),
    "bleu_char": ("BLEU", {"tokenize": "char"}),
    "chrf": ("CHRF", {}),
    "chrfpp": ("CHRF", {"word_order": 2}),
    "ter": ("TER", {}),
}
"""Our names of sacreBLEU's metrics: its class and options. `bleu` tokenizes as 13a does, which suits writing with spaces;
`bleu_zh` is for Chinese, `bleu_char` for any other writing without spaces, `bleu_tokens` for text that is tokenized already."""


def build_sacrebleu(kind: str) -> Any:
    """The sacreBLEU object for a metric of ours."""
    import sacrebleu

    name, options = SACREBLEU[kind]
    return getattr(sacrebleu, name)(**options)


def sacrebleu_items(kind: str) -> Callable[[Sequence[str], Sequence[str]], CountedItems]:
    """The n-gram statistics of each line, as sacreBLEU's own significance tests resample them."""

    def count(outputs: Sequence[str], references: Sequence[str]) -> CountedItems:
        metric = build_sacrebleu(kind)
        rows = metric._extract_corpus_statistics(list(outputs), [list(references)])

        def score(sums: NDArray[np.float64]) -> float:
            return float(metric._compute_score_from_stats(sums.tolist()).score)

        return count_items(rows, score)

    return count


def sacrebleu_score(kind: str) -> Callable[[Sequence[str], Sequence[str]], float]:
    """The corpus score, by sacreBLEU's public function."""
    return lambda outputs, references: float(
        build_sacrebleu(kind).corpus_score(list(outputs), [list(references)]).score
    )


def sacrebleu_signature(kind: str) -> str:
    """sacreBLEU's name and signature, with one reference."""
    metric = build_sacrebleu(kind)
    return f"{metric.corpus_score(['a'], [['a']]).name}|{metric.get_signature()}"


ROUGE = {"rouge1": "rouge1", "rouge2": "rouge2", "rouge_l": "rougeL"}
"""Our names of rouge-score's metrics; `rouge_l` is the longest common subsequence."""


def rouge_items(kind: str) -> Callable[[Sequence[str], Sequence[str]], CountedItems]:
    """The F measure of each line by rouge-score, without stemming; the score is their mean, in percent."""

    def count(outputs: Sequence[str], references: Sequence[str]) -> CountedItems:
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError:
            raise SpecError(f"scoring with ROUGE needs an extra: {name_extra('rouge')}") from None
        scorer = RougeScorer([ROUGE[kind]])
        pairs = zip(outputs, references, strict=True)
        rows = [(scorer.score(reference, output)[ROUGE[kind]].fmeasure, 1) for output, reference in pairs]
        return count_items(rows, percentage)

    return count


def exact_items(outputs: Sequence[str], references: Sequence[str]) -> CountedItems:
    """Count the outputs that equal their reference."""
    return count_items([(a == b, 1) for a, b in zip(outputs, references, strict=True)], percentage)


def edit_similarity_items(outputs: Sequence[str], references: Sequence[str]) -> CountedItems:
    """Measure how alike each output and its reference are: 1 less insertions and deletions per character of both.

    That is `fuzz.ratio`, by which completions of code are compared (Lu et al. 2021).
    """
    from rapidfuzz import fuzz  # comes with jiwer

    rows = [(fuzz.ratio(a, b) / 100, 1) for a, b in zip(outputs, references, strict=True)]
    return count_items(rows, percentage)


def wer_items(outputs: Sequence[str], references: Sequence[str]) -> CountedItems:
    """Edits and words of each line, for the word error rate."""
    import jiwer

    lines = [jiwer.process_words(reference, output) for reference, output in zip(references, outputs, strict=True)]
    rows = [(w.substitutions + w.deletions + w.insertions, w.hits + w.substitutions + w.deletions) for w in lines]
    return count_items(rows, percentage)


def word_error_items(outputs: Sequence[str], references: Sequence[str]) -> CountedItems:
    """Count the outputs that are none of the right answers."""
    rows = [(out not in ways.split(OR), 1) for out, ways in zip(outputs, references, strict=True)]
    return count_items(rows, percentage)


def phone_error_items(outputs: Sequence[str], references: Sequence[str]) -> CountedItems:
    """Edits and phones of each output against the nearest of its right answers."""
    import jiwer

    def find_nearest(output: str, ways: list[str]) -> str:
        return output if output in ways else min(ways, key=lambda way: float(jiwer.wer(way, output)))

    nearest = [find_nearest(out, ways.split(OR)) for out, ways in zip(outputs, references, strict=True)]
    return wer_items(outputs, nearest)
