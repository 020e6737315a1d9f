"""Decoding: any model with state, any search, any constraint.

The parts that need torch are imported when they are first used: requests and settings do not wait for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from regard.decode.decode_request import Constraints, Draw, Hypothesis, Request, SpecialTokens
from regard.decode.engine import Engine, stream_tokens
from regard.decode.search import Search

if TYPE_CHECKING:
    from regard.decode.generation import generate
    from regard.decode.scoring import score

__all__ = [
    "Constraints",
    "Draw",
    "Engine",
    "Hypothesis",
    "Request",
    "Search",
    "SpecialTokens",
    "generate",
    "score",
    "stream_tokens",
]

_HOMES = {"generate": "generation", "score": "scoring"}


def __getattr__(name: str) -> object:
    """Import a function when it is first used."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"regard.decode.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'regard.decode' has no attribute {name!r}")
