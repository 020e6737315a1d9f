"""Pairs made on the spot: sources for recipes that need no file. Each is a pure function of its fields."""

from __future__ import annotations

import numpy as np

from regard.data import dates
from regard.data.sources import Pairs
from regard.registry import Table
from regard.spec import Count, Spec, spec

GENERATORS: Table[type[GeneratorSpec]] = Table("generator")


class GeneratorSpec(Spec):
    """Where pairs come from when no file is given."""

    table = GENERATORS

    def pairs(self, part: str) -> Pairs:
        """The pairs of part "train" or "valid", which share none."""
        raise NotImplementedError


@spec
class Dates(GeneratorSpec):
    """Dates as people write them in many languages, and as ISO 8601; validation dates are never seen in training."""

    count: Count = 200_000
    valid: Count = 1000
    seed: int = 1

    def pairs(self, part: str) -> Pairs:
        made = dates.pairs(self.seed, self.count if part == "train" else self.valid, part)
        return Pairs([s for s, _ in made], [t for _, t in made], name=f"dates ({part})")


@spec
class Copy(GeneratorSpec):
    """Random strings to be copied, or with `reverse` written backwards."""

    symbols: Count = 10
    longest: Count = 12
    count: Count = 10_000
    valid: Count = 200
    reverse: bool = False
    seed: int = 1

    def pairs(self, part: str) -> Pairs:
        draw = np.random.Generator(np.random.Philox(key=[self.seed, 0 if part == "train" else 1]))
        source = []
        for length in draw.integers(1, self.longest + 1, self.count if part == "train" else self.valid):
            source.append("".join(chr(ord("a") + int(s)) for s in draw.integers(0, self.symbols, length)))
        target = [s[::-1] for s in source] if self.reverse else list(source)
        return Pairs(source, target, name=f"{'reverse' if self.reverse else 'copy'} ({part})")


GENERATORS.add(Dates, Copy)
