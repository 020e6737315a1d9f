"""Filters of sentence pairs: their specification."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from regard.registry import Registry, kind_of
from regard.spec import Spec

FILTERS: Registry[type[FilterSpec]] = Registry("filter")
Pair = tuple[str, str]
By = Literal["pair", "source", "target"]


@dataclasses.dataclass(frozen=True)
class PairFilter:
    """A filter prepared for one corpus."""

    keeps: Callable[[str, str], bool]
    """Decision to keep a source and its target; called once for each pair, in order."""
    remark: str = ""
    """Findings about the corpus, for the report."""


class FilterSpec(Spec):
    """A step that drops pairs."""

    registry = FILTERS
    needs_sample: ClassVar[bool] = False
    """True if it has to see some pairs before it can decide about one."""

    @property
    def name(self) -> str:
        """The kind and the settings that differ from the defaults: `length, max 200`."""
        fields = ((f, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return ", ".join([kind_of(type(self)), *(f"{f.name} {value}" for f, value in fields if value != f.default)])

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        """Prepare the filter for a corpus, of which `sample` holds the first pairs if it `needs_sample`."""
        raise NotImplementedError
