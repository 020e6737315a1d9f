"""Fill-in-the-middle: a causal model learns to infill.

A text is cut in two random places and its middle moved to the end, so that a model which reads from left to right has seen both
sides when it writes the middle (Bavarian et al. 2022). Prefix, suffix, middle (PSM) or suffix, prefix, middle (SPM):

    text   def add(a, b):⏎    return a + b⏎
    PSM    <fim_prefix> def add(a, b):⏎    re <fim_suffix> + b⏎ <fim_middle> turn a </s>
    SPM    <fim_prefix> <fim_suffix> + b⏎ <fim_middle> def add(a, b):⏎    re turn a </s>
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from regard.data.example_rng import Rng
from regard.errors import SpecError
from regard.spec import Spec, spec

Ids = Sequence[int]
Order = Literal["psm", "spm"]
Parts = tuple[Ids, Ids, Ids]
"""Prefix, middle and suffix."""
Split = Callable[[Ids, Rng], Parts]
"""Cuts a text in two random places."""
NAMES = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
"""The sentinels, by the names that other models of code use."""
SHORTEST = 8
"""Minimum number of tokens of a text that is rearranged."""


@spec
class FillInTheMiddle(Spec):
    """Share of texts that are rearranged, and how."""

    rate: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the texts that are rearranged; 0: the model only reads from left to right."""
    spm: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of those with the suffix before the prefix (SPM); the others are prefix, suffix, middle (PSM)."""
    split: Literal["characters", "tokens"] = "characters"
    """Places of cuts: between any two characters, so that the model sees cursors inside words, or between tokens."""

    def choose_order(self, wanted: Order | None) -> Order:
        """The order in which a model that learned from such texts reads: the wanted one, or suffix first if it knows that."""
        order: Order = wanted or ("spm" if self.spm else "psm")
        if (self.spm if order == "spm" else 1 - self.spm) == 0:
            raise SpecError(f"the model never learned the order {order}: it was trained with data.fim.spm={self.spm:g}")
        return order

    def draw(self, ids: Ids, rng: Rng, split: Split, sentinels: Sentinels, room: int) -> Ids:
        """The text as it is or, with probability `rate`, rearranged into at most `room` tokens."""
        if len(ids) < SHORTEST or not rng.bernoulli(self.rate):
            return ids
        order: Order = "spm" if rng.bernoulli(self.spm) else "psm"
        parts = trim(split(ids, rng), room - len(sentinels))
        return ids if parts is None else sentinels.arrange(parts, order)


@dataclasses.dataclass(frozen=True)
class Sentinels:
    """The tokens before each part, and after the middle."""

    prefix: int
    suffix: int
    middle: int
    end: int

    def __len__(self) -> int:
        return len(dataclasses.fields(self))

    def arrange(self, parts: Parts, order: Order) -> list[int]:
        """A text with its middle at the end."""
        prefix, middle, suffix = parts
        return [*self.prompt(prefix, suffix, order), *middle, self.end]

    def prompt(self, prefix: Ids, suffix: Ids, order: Order) -> list[int]:
        """Return what a model reads before it writes the middle."""
        if order == "psm":
            return [self.prefix, *prefix, self.suffix, *suffix, self.middle]
        return [self.prefix, self.suffix, *suffix, self.middle, *prefix]

    def restore(self, ids: Ids) -> list[int]:
        """The tokens of a rearranged text in their original order; any other text is returned unchanged."""
        ids = [*ids]
        if self.middle not in ids:
            return ids
        cut, end = ids.index(self.suffix), ids.index(self.middle)
        return [*ids[1:cut], *ids[end + 1 : -1], *ids[cut + 1 : end]]


def draw_cuts(length: int, rng: Rng) -> tuple[int, int]:
    """Two places from 0 to `length`, in order, drawn uniformly; they may be equal."""
    one, other = rng.integer(length + 1), rng.integer(length + 1)
    return min(one, other), max(one, other)


def split_tokens(ids: Ids, rng: Rng) -> Parts:
    """Cut between two tokens."""
    start, stop = draw_cuts(len(ids), rng)
    return ids[:start], ids[start:stop], ids[stop:]


def trim(parts: Parts, room: int) -> Parts | None:
    """Shorten prefix and suffix, first the longer one, to `room` tokens in all; None if the middle alone is too long."""
    prefix, middle, suffix = parts
    over = max(len(prefix) + len(middle) + len(suffix) - room, 0)
    if over > len(prefix) + len(suffix):
        return None
    longer = min(over, max(len(prefix), len(suffix)))
    from_prefix, from_suffix = (longer, over - longer) if len(prefix) > len(suffix) else (over - longer, longer)
    return prefix[from_prefix:], middle, suffix[: len(suffix) - from_suffix]
