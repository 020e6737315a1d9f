"""A plugin for servers under test: texts that make a model hold the GIL, sleep, or compute without end."""

from __future__ import annotations

import re
import time

import torch

from regard.serve import operations

_score = operations.ANSWERS["score"]


def _compute(word: str) -> None:
    if word == "hold":
        re.fullmatch(r"(a*)*b", "a" * 60)  # `re` does not let go of the GIL
    if word == "sleep":
        time.sleep(100_000)
    x = torch.eye(8)
    while word == "loop":
        x = x @ x


def score(served: operations.ServedModel, ticket: operations.Ticket, given: operations.Arguments) -> operations.Plain:
    """As the operation, but for texts like `hold 1`."""
    word, _, where = given["inputs"][0].partition(" in ")
    if where == "thread":
        _compute(word)
    elif where == "scheduler":
        served.scheduler.run(lambda: _compute(word))
    return _score(served, ticket, given)


operations.ANSWERS["score"] = score
