"""How a claim is read from the figures of its study: a verdict, and the figures that decide it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

HOLDS, FAILS, OPEN, NOT_RUN = "holds here", "does not hold here", "not shown", "not run"
OPPOSITE = {"better": "worse", "worse": "better"}
HELPS_NOT = {"better": False, "worse": True, "no difference": True}
Figures = Mapping[str, Any]


class Reading(Protocol):
    """How a claim is read from the figures of its study."""

    def judge(self, figures: Figures) -> str:
        """One of the four words above."""

    def show(self, figures: Figures) -> str:
        """The figures that decide."""


@dataclass(frozen=True)
class Verdict:
    """The verdict of a comparison on one contender, in one task of the study of transfer or in the only one."""

    contender: str
    wanted: str
    task: str = ""

    def judge(self, figures: Figures) -> str:
        word = self._find(figures)["verdicts"].get(self.contender)
        if word is None or word == "no result":
            return NOT_RUN
        contrary = word == OPPOSITE.get(self.wanted) or (self.wanted in OPPOSITE and word == "no difference")
        return HOLDS if word == self.wanted else FAILS if contrary else OPEN

    def show(self, figures: Figures) -> str:
        found = self._find(figures)
        (base, first), own = next(iter(found["contenders"].items())), found["contenders"][self.contender]
        name = {"bleu": "BLEU", "ece": "ECE"}.get(found["metric"], found["metric"])
        return f"{name} {own['mean']:.3g} ± {own['over seeds']:.2g}, {base} {first['mean']:.3g} ± {first['over seeds']:.2g}"

    def _find(self, figures: Figures) -> Figures:
        found: Figures = figures["tasks"][self.task] if self.task else figures
        return found


@dataclass(frozen=True)
class Measured:
    """Figures that leave nothing open, unless there is nothing to read (None)."""

    holds: Callable[[Figures], bool | None]
    show: Callable[[Figures], str]

    def judge(self, figures: Figures) -> str:
        return {True: HOLDS, False: FAILS, None: OPEN}[self.holds(figures)]


def read_growth(what: str, layer: str, low: float, high: float) -> Measured:
    return Measured(
        lambda figures: low <= figures["exponents"][what][layer] <= high,
        lambda figures: f"exponent {figures['exponents'][what][layer]:.2f}",
    )


def read_property(name: str, holds: Callable[[Mapping[str, float]], bool], shown: str = "") -> Measured:
    """Read the figures of one property of layers; those that begin with `shown` are shown."""
    return Measured(
        lambda figures: holds(figures["properties"][name]),
        lambda figures: list_figures({k: v for k, v in figures["properties"][name].items() if k.startswith(shown)}),
    )


def list_figures(figures: Mapping[str, float]) -> str:
    return "; ".join(f"{name}: {value:.3g}" for name, value in figures.items())


def is_never_worse(words: Sequence[str | None]) -> bool | None:
    """Whether there is no loss on any task; None if one could be hidden."""
    return False if "worse" in words else True if {*words} <= {"better", "no difference", None} else None


def list_factors(*layers: str) -> Callable[[Figures], str]:
    return lambda f: f"per step of distance {list_figures({name: f['factor per step'][name] for name in layers})}"


def list_verdicts(modification: str) -> Callable[[Figures], str]:
    return lambda f: "; ".join(
        f"{name}: {t['verdicts'].get(modification, 'refused')}" for name, t in f["tasks"].items()
    )
