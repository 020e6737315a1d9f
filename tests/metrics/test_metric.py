"""Scores are those of the libraries people compare by, whatever comes out of a model."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import jiwer
import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from regard.errors import DataError, SpecError, UnknownName
from regard.metrics import METRICS, Metric

OUTPUTS = ["the cat sat on the mat .", "a dog", "hello world , again !"]
REFERENCES = ["the cat sat on a mat .", "a big dog ran", "hello world , again !"]
WORDS = st.lists(st.sampled_from(["a", "bb", "c-d", "!", "é"]), min_size=1, max_size=6).map(" ".join)


def scores_pairs(metric: Metric) -> bool:
    """Whether outputs and references are all it reads."""
    return metric.decodes and not metric.reads_sources


def test_against_the_libraries() -> None:
    found = {name: metric.compute(OUTPUTS, REFERENCES) for name, metric in METRICS.items() if scores_pairs(metric)}
    assert found["bleu"] == sacrebleu.BLEU().corpus_score(OUTPUTS, [REFERENCES]).score
    assert found["bleu_tokens"] == sacrebleu.BLEU(tokenize="none", force=True).corpus_score(OUTPUTS, [REFERENCES]).score
    assert found["chrf"] == sacrebleu.CHRF().corpus_score(OUTPUTS, [REFERENCES]).score
    assert found["chrfpp"] == sacrebleu.CHRF(word_order=2).corpus_score(OUTPUTS, [REFERENCES]).score
    assert found["ter"] == sacrebleu.TER().corpus_score(OUTPUTS, [REFERENCES]).score
    for name in ("zh", "char"):
        assert found[f"bleu_{name}"] == sacrebleu.BLEU(tokenize=name).corpus_score(OUTPUTS, [REFERENCES]).score
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    rows = [scorer.score(wanted, said) for said, wanted in zip(OUTPUTS, REFERENCES, strict=True)]
    for ours, theirs in {"rouge1": "rouge1", "rouge2": "rouge2", "rouge_l": "rougeL"}.items():
        assert found[ours] == pytest.approx(100 * sum(row[theirs].fmeasure for row in rows) / 3)
    assert found["wer"] == 100 * jiwer.wer(REFERENCES, OUTPUTS)
    assert found["exact"] == pytest.approx(100 / 3)
    assert 0 < found["bleu"] < 100


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if scores_pairs(metric)])
def test_perfect_is_perfect_and_nothing_is_nothing(name: str) -> None:
    metric = METRICS[name]
    perfect, none = metric.compute(REFERENCES, REFERENCES), metric.compute([""] * 3, REFERENCES)
    assert perfect == pytest.approx(100.0 if metric.higher else 0.0)
    assert none == pytest.approx(0.0 if metric.higher else 100.0)
    assert metric.better(perfect, none)
    assert not metric.better(none, perfect)
    assert not metric.better(perfect, perfect)


@given(st.lists(st.tuples(WORDS | st.just(""), WORDS), min_size=1, max_size=5))
def test_scores_are_always_numbers(pairs: list[tuple[str, str]]) -> None:
    outputs, references = [o for o, _ in pairs], [r for _, r in pairs]
    for score in (metric.compute(outputs, references) for _, metric in METRICS.items() if scores_pairs(metric)):
        assert isinstance(score, float)
        assert math.isfinite(score)
        assert score >= 0


def test_of_scores_of_outputs_only_errors_are_better_when_lower() -> None:
    lower = [name for name, metric in METRICS.items() if metric.decodes and not metric.higher]
    assert lower == ["ter", "wer", "word_error", "phone_error"]


def test_unknown_and_own_metrics() -> None:
    with pytest.raises(UnknownName, match="no metric 'belu'; did you mean 'bleu'"):
        METRICS["belu"]
    mine = Metric("length", lambda outputs, references: float(sum(map(len, outputs))), higher=False)
    assert mine.better(1.0, 2.0)
    assert mine.signature() == ""


def test_rouge_without_its_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(SpecError, match=r"scoring with ROUGE needs an extra: .*pip install '\.\[rouge\]'"):
        METRICS["rouge_l"].compute(OUTPUTS, REFERENCES)


def test_a_metric_that_reads_sources() -> None:
    """Its functions get them, in the order of the items that are chosen."""

    def copied(outputs: list[str], references: list[str], sources: list[str]) -> float:
        return float(sum(o == s != r for o, r, s in zip(outputs, references, sources, strict=True)))

    metric = Metric("copied", copied, higher=False, reads_sources=True)
    told = ["a", "b", "c"], ["x", "b", "y"], ["a", "b", "d"]
    assert metric.compute(*told) == 1.0
    assert metric.items(*told).score() == 1.0
    assert metric.items(*told).score(np.array([0, 0, 1])) == 2.0
    with pytest.raises(SpecError, match="copied reads the sources, too, and got 0 of them for 3 references"):
        metric.compute(*told[:2])


def test_comet_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(message: str) -> None:
        with pytest.raises(SpecError, match=re.escape(message)):
            METRICS["comet"].compute(["a"], ["b"], ["c"])

    monkeypatch.delenv("REGARD_COMET", raising=False)
    refused("comet needs a model from a local folder: set REGARD_COMET to one with checkpoints/model.ckpt")
    monkeypatch.setenv("REGARD_COMET", str(tmp_path))
    refused(f"REGARD_COMET={tmp_path} is not the folder of a COMET model: it has no checkpoints/model.ckpt")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.ckpt").touch()
    monkeypatch.setitem(sys.modules, "comet", None)
    refused(
        "scoring with COMET needs an extra: in Regard's folder, pip install '.[comet]' (of a wheel, 'FILE.whl[comet]')"
    )


SCORED = [name for name in METRICS if METRICS[name].decodes and name != "comet"]


@pytest.mark.parametrize("name", SCORED)
def test_metrics_refuse_columns_of_different_lengths_and_none(name: str) -> None:
    with pytest.raises(DataError, match=rf"^{name} needs as many outputs as references, got 3 and 1$"):
        METRICS[name].compute(["a", "b", "c"], ["a"], ["a"])
    with pytest.raises(DataError, match=rf"^{name} needs as many outputs as references, got 1 and 2$"):
        METRICS[name].items(["a"], ["a", "b"], ["a", "b"])
    with pytest.raises(DataError, match=rf"^{name} needs at least one output and its reference, got none$"):
        METRICS[name].compute([], [], [])


@pytest.mark.parametrize("name", [name for name in SCORED if METRICS[name].labels is not None])
def test_metrics_of_classes_refuse_references_without_labels(name: str) -> None:
    with pytest.raises(DataError, match=rf"^{name} needs labels, but all references are empty$"):
        METRICS[name].compute(["", "a"], ["", ""])
    assert METRICS[name].compute(["", "A"], ["", "A"]) == 100.0
