"""Decoding: any model with state × how to search × what may be written."""

from regard.decode.generate import generate
from regard.decode.greedy import Hypothesis
from regard.decode.score import score
from regard.decode.search import Search

__all__ = ["Hypothesis", "Search", "generate", "score"]
