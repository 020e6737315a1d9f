"""Decoding: any model with state, any search, any constraint."""

from regard.decode.generate import Constraints, Draw, SpecialTokens, generate, stream_tokens
from regard.decode.greedy import Hypothesis
from regard.decode.score import score
from regard.decode.search import Search

__all__ = ["Constraints", "Draw", "Hypothesis", "Search", "SpecialTokens", "generate", "score", "stream_tokens"]
