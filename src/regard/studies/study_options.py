"""Options that all studies have: data, seeds, time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from regard.errors import SpecError
from regard.studies.significance import VERDICT_SEEDS
from regard.training.request import TrainRequest


@dataclasses.dataclass(frozen=True)
class StudyOptions:
    """The options that studies share; a study refuses those it does not use."""

    data: Sequence[str] = ()
    valid: Sequence[str] = ()
    test: Sequence[str] = ()
    set: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Settings that are changed in all recipes, by path."""
    seeds: int | None = None
    """Number of seeds; by default as many as the study needs."""
    minutes: float | None = None
    """Refuse a study that would take longer."""
    device: str = "cpu"

    def seeds_for(self, usual: int = VERDICT_SEEDS) -> int:
        """The number of seeds: as asked for, otherwise `usual`."""
        return usual if self.seeds is None else self.seeds

    def request(self, recipe: str | Mapping[str, object], set: Mapping[str, object] | None = None) -> TrainRequest:
        """A request to train by a recipe on the data of the study, with these settings instead of the common ones."""
        return TrainRequest(recipe, tuple(self.data), tuple(self.valid), dict(self.set if set is None else set))

    def allow(self, study: str, *used: str) -> None:
        """Refuse options that a study has no use for."""
        for field in dataclasses.fields(self):
            if field.name not in used and getattr(self, field.name) and field.name != "device":
                raise SpecError(f"the study of {study} has no use for {field.name}; leave it out")


def parse_numbers(text: str, what: str) -> tuple[int, ...]:
    """Parse `1024,2048`; `what` names them in a message."""
    try:
        return tuple(int(word) for word in text.replace("_", "").split(","))
    except ValueError:
        raise SpecError(f"{what} should be whole numbers with commas, such as 64,128; got {text!r}") from None


OPTIONS = frozenset(field.name for field in dataclasses.fields(StudyOptions))
