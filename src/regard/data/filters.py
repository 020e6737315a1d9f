"""Filters of pairs: named steps that say of every pair whether it stays, and which a recipe lists in their order.

    filters: [{kind: length, most: 200}, identity, duplicates]

Here is what a filter is, and those that count: lengths, their ratio, and texts that were never translated. A filter that
needs to know what is usual learns it from the first pairs it is shown, so all of them work on a stream.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from statistics import median
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from regard.errors import SpecError
from regard.registry import Registry, kind_of
from regard.spec import Count, Spec, spec

FILTERS: Registry[type[FilterSpec]] = Registry("filter")
Pair = tuple[str, str]
By = Literal["pair", "source", "target"]


@dataclasses.dataclass(frozen=True)
class Judge:
    """A filter at work on one corpus."""

    keeps: Callable[[str, str], bool]
    """Whether a source and its target stay; called once for each pair, in order."""
    remark: str = ""
    """What was learned of the corpus, for the report."""


class FilterSpec(Spec):
    """A step that leaves out pairs."""

    registry = FILTERS
    learns: ClassVar[bool] = False
    """Whether it has to see some pairs before it can judge one."""

    @property
    def name(self) -> str:
        """Its kind, and what was set: `length, most 200`."""
        fields = ((f, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return ", ".join([kind_of(type(self)), *(f"{f.name} {value}" for f, value in fields if value != f.default)])

    def judge(self, sample: Sequence[Pair]) -> Judge:
        """A new judge, that knows these pairs if it `learns`."""
        raise NotImplementedError


@FILTERS.add
@spec
class Length(FilterSpec):
    """Both texts have so many words, or characters: for languages that put no spaces between words."""

    most: Count = 200
    least: Count = 1
    unit: Literal["words", "characters"] = "words"

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise SpecError(f"no text has at least {self.least} and at most {self.most} {self.unit}")

    def judge(self, sample: Sequence[Pair]) -> Judge:
        def fits(text: str) -> bool:
            return self.least <= (len(text.split()) if self.unit == "words" else len(text)) <= self.most

        return Judge(lambda source, target: fits(source) and fits(target))


@FILTERS.add
@spec
class Ratio(FilterSpec):
    """No text is `most` times as long as the other, beyond what is usual between the two languages.

    What is usual is learned, or stated: how many characters of target go with one of source. Texts of up to `free`
    characters on both sides are not judged, for a yes may be long in one language and short in another.
    """

    most: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3.0
    typical: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    free: Annotated[int, Field(ge=0)] = 20
    learns = True

    def judge(self, sample: Sequence[Pair]) -> Judge:
        found = [len(target) / len(source) for source, target in sample if source and target]
        typical = self.typical or (median(found) if found else 1.0)

        def keeps(source: str, target: str) -> bool:
            if max(len(source), len(target)) <= self.free:
                return True
            expected = typical * len(source)
            return len(target) <= self.most * expected and expected <= self.most * len(target)

        return Judge(keeps, f"{typical:.2f} characters of target for one of source")


@FILTERS.add
@spec
class Identity(FilterSpec):
    """The target is not the source once more, but for case and spaces around it."""

    def judge(self, sample: Sequence[Pair]) -> Judge:
        return Judge(lambda source, target: source.strip().casefold() != target.strip().casefold())
