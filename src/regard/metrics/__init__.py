"""Scores of models, and how certain they are."""

from regard.metrics.metric import METRICS, Metric

__all__ = ["METRICS", "Metric"]
