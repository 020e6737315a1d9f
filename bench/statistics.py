"""The statistics of `regard study compare` against simulated studies: `python -m bench.statistics`.

A score is a sum of what is drawn: score = item + contender × item + seed + residual (+ the true difference). The item is the
same for both contenders; how an item suits a contender (contender × item) is drawn anew for each, so contenders that are equal
on all texts differ on the items of one test set. A false verdict is "better" or "worse" where there is no difference.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np

from bench.entry import parse
from bench.results import write
from regard.studies.significance import (
    ALPHA,
    Contrast,
    contrast,
    equivalence,
    holm,
    resample_means,
    spend_alpha,
    welch,
)
from regard.studies.student_t import t_power

STUDIES, ITEMS, SEEDS = 1000, 200, (3, 5, 10)
TESTS = ("seeds", "items", "seeds and items", "verdict")


@dataclass(frozen=True)
class World:
    """Standard deviations of the parts of a score."""

    seed: float = 1.0
    item: float = 10.0
    suits: float = 0.0
    """Of how an item suits a contender."""
    residual: float = 3.0

    def draw(
        self, rng: np.random.Generator, seeds: int, contenders: int = 2, difference: float = 0.0, items: int = ITEMS
    ) -> np.ndarray:
        """Scores (contenders, seeds, items); the last contender is better by `difference`."""
        shape = (contenders, seeds, items)
        scores = self.residual * rng.standard_normal(shape) + self.item * rng.standard_normal(items)
        scores += self.suits * rng.standard_normal((contenders, 1, items))
        scores += self.seed * rng.standard_normal((contenders, seeds, 1))
        scores[-1] += difference
        return scores

    def error(self, seeds: int, items: int = ITEMS) -> tuple[float, float]:
        """The true standard errors of a difference, over seeds and over items."""
        noise = 2 * self.residual**2 / seeds / items
        return math.sqrt(2 * self.seed**2 / seeds + noise), math.sqrt(2 * self.suits**2 / items + noise)


WORLDS = {
    "seeds vary": World(),
    "seeds and items vary alike": World(suits=math.sqrt(ITEMS / 5)),
    "items vary": World(seed=0.1, suits=math.sqrt(ITEMS / 5)),
}


def compare(a: np.ndarray, b: np.ndarray, *, samples: int = 1000, seed: int = 1) -> Contrast:
    """The tests of a study on scores (seeds, items)."""
    items = resample_means(b.mean(0) - a.mean(0), samples=samples, seed=seed)
    return contrast(welch(a.mean(1), b.mean(1)), items, a.shape[1])


def rates(
    world: World,
    seeds: int,
    studies: int = STUDIES,
    *,
    difference: float = 0.0,
    level: float = ALPHA,
    seed: int = 0,
    samples: int = 1000,
) -> dict[str, float]:
    """How often each test finds a difference, in percent of the studies."""
    rng, hits = np.random.Generator(np.random.PCG64(seed)), dict.fromkeys(TESTS, 0)
    for number in range(studies):
        found = compare(*world.draw(rng, seeds, difference=difference), seed=number, samples=samples)
        assert found.items is not None
        passed = (found.seeds.p <= level, found.items.p <= level)
        hits["seeds"] += passed[0]
        hits["items"] += passed[1]
        hits["seeds and items"] += all(passed)
        hits["verdict"] += found.p <= level
    return {name: round(100 * count / studies, 1) for name, count in hits.items()}


def family_rate(world: World, seeds: int, contenders: int = 5, studies: int = STUDIES, seed: int = 1) -> float:
    """How often any of several equal contenders is called better or worse than the first, in percent."""
    rng, false = np.random.Generator(np.random.PCG64(seed)), 0
    for number in range(studies):
        scores = world.draw(rng, seeds, contenders)
        ps = [compare(scores[0], other, seed=number).p for other in scores[1:]]
        false += min(holm(ps)) <= ALPHA
    return round(100 * false / studies, 1)


def looks_rate(world: World, studies: int = STUDIES, seed: int = 2, samples: int = 1000) -> float:
    """How often equal contenders get a verdict if seeds are added until there is one: looks at 3, 5, 10, 15, 20; percent."""
    rng, false, looks = np.random.Generator(np.random.PCG64(seed)), 0, (3, 5, 10, 15, 20)
    for number in range(studies):
        scores = world.draw(rng, looks[-1])
        for i, seeds in enumerate(looks[1:], 2):
            found = compare(scores[0, :seeds], scores[1, :seeds], seed=number, samples=samples)
            if found.p <= spend_alpha(looks[:i]):
                false += 1
                break
    return round(100 * false / studies, 1)


def equivalence_rate(world: World, seeds: int, delta: float, studies: int = STUDIES, seed: int = 3) -> float:
    """How often "no difference above delta" is claimed of contenders that differ by exactly delta, in percent."""
    rng, false = np.random.Generator(np.random.PCG64(seed)), 0
    for number in range(studies):
        found = compare(*world.draw(rng, seeds, difference=delta), samples=200, seed=number)
        false += equivalence(found.both, delta) <= ALPHA
    return round(100 * false / studies, 1)


def predicted_power(world: World, seeds: int, difference: float) -> float:
    """The power of the test over seeds and items by the noncentral t distribution, in percent."""
    by_seed, by_item = world.error(seeds)
    total = by_seed**2 + by_item**2
    df = 1 / ((by_seed**2 / total) ** 2 / (2 * seeds - 2) + (by_item**2 / total) ** 2 / (ITEMS - 1))
    return round(100 * t_power(difference / math.sqrt(total), df), 1)


def main(studies: int) -> None:
    figures: dict[str, object] = {}
    for name, world in WORLDS.items():
        for seeds in SEEDS:
            false = rates(world, seeds, studies)
            figures[f"false verdicts, {name}, {seeds} seeds"] = false
            print(f"{name}, {seeds} seeds, no difference:", false, flush=True)
    for seeds in SEEDS:
        for name in ("seeds vary", "seeds and items vary alike"):
            gap = 2.5
            found = rates(WORLDS[name], seeds, studies, difference=gap)
            figures[f"power at {gap}, {name}, {seeds} seeds"] = found | {
                "predicted": predicted_power(WORLDS[name], seeds, gap)
            }
            print(
                f"{name}, {seeds} seeds, difference {gap}:",
                found,
                "predicted",
                predicted_power(WORLDS[name], seeds, gap),
            )
    figures["four contenders against one, Holm, 5 seeds"] = family_rate(World(), 5, studies=studies)
    figures["seeds added after looks at 3, 5, 10, 15 and 20"] = looks_rate(World(), studies)
    figures["false equivalence at exactly delta, 5 seeds"] = equivalence_rate(World(), 5, 1.5, studies)
    for name, value in list(figures.items())[-3:]:
        print(f"{name}: {value}")
    title = f"Statistics of `regard study compare` in {studies:,} simulated studies each, percent with a verdict"
    print(write("statistics", title=title, figures=figures))


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m bench.statistics", description=__doc__)
    _parser.add_argument("--studies", type=int, default=STUDIES)
    _said = parse(_parser)
    main(3 if _said.smoke else _said.studies)
