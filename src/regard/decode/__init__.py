"""Decoding: any model with state × how to search × what may be written."""

from regard.decode.forced import score
from regard.decode.generate import generate
from regard.decode.search import Search
from regard.decode.walk import Hypothesis

__all__ = ["Hypothesis", "Search", "generate", "score"]
