"""Run all laws that apply to a part, and collect the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

from regard.errors import LawError
from regard.laws import causality, inspection, joining, packing, padding, refusal, round_trip, streaming, twin
from regard.laws.case import LENGTH, Case, describe, mixer_cases, position_cases
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MixerSpec
from regard.nn.positions.position import PositionSpec

Law = Callable[[Case], None]


@dataclasses.dataclass(frozen=True)
class LawResult:
    """The outcome of one law for one part: how many cases were tried, and why the first failure failed."""

    part: str
    law: str
    cases: int
    failure: str | None = None
    """None where the law holds."""

    @property
    def status(self) -> str:
        return "failed" if self.failure is not None else "ok" if self.cases else "not claimed"


def laws_of(case: Case) -> Iterator[tuple[str, Law]]:
    """The laws that a case must obey, by what its part claims in `can`."""
    can, shape = case.part.can, case.shape
    if shape != "encoder":
        yield "causality", causality.check_outputs
    if shape == "decoder":
        yield "causality", causality.check_gradients
        if can.stream:
            yield "streaming", streaming.check_chunks
            yield "streaming", streaming.check_left_padding
            yield "streaming", streaming.check_prompts
            yield "streaming", streaming.check_select
            if can.rewind:
                yield "streaming", streaming.check_cut
            if can.join:
                yield "joining", joining.check_join
            if can.grads:
                yield "streaming", streaming.check_gradients
            if can.packed:
                yield "packing", packing.check_chunks
    for left in (False, True):
        if shape == "both":
            yield "padding", partial(padding.check_memory_noise, left=left)
            continue
        yield "padding", partial(padding.check_noise, left=left)
        yield "padding", partial(padding.check_nothing_to_see, left=left)
        if can.length == "any":
            yield "padding", partial(padding.check_row_alone, left=left)
    if shape == "both" and can.stream and can.join:
        yield "joining", joining.check_join
    if shape == "both":
        yield "padding", padding.check_pair_alone
        yield "padding", padding.check_empty_source
    if can.packed:
        yield "packing", packing.check_pairs if shape == "both" else packing.check_separate
    if shape != "both" and isinstance(case.part, MixerSpec) and case.part.twin() is not None:
        for at in (Coords.span(LENGTH), Coords.lengths([LENGTH, 5])):
            yield "twin", partial(twin.check_twin, at=at)
    for place in inspection.PLACES:
        yield "inspection", partial(inspection.check_tape, place=place)
    yield "inspection", inspection.check_replacement
    if can.weights:
        yield "inspection", inspection.check_rows
    yield "round trip", round_trip.check_model


LAWS = ("round trip", "refusal", "causality", "streaming", "joining", "padding", "packing", "twin", "inspection")


def check_part(part: MixerSpec | PositionSpec) -> list[LawResult]:
    """Try every law on a mixer or position; the first failure of each law is kept."""
    counts, failures = dict.fromkeys(LAWS, 0), dict[str, str]()

    def attempt(law: str, where: str, run: Callable[[], None]) -> None:
        if law in failures:
            return
        counts[law] += 1
        try:
            run()
        except LawError as error:
            failures[law] = f"{error} [{where}]"
        except Exception as error:  # a part of somebody else's may raise anything
            failures[law] = f"{type(error).__name__}: {error} [{where}]"

    attempt("round trip", describe(part), partial(round_trip.check_part, part))
    if isinstance(part, MixerSpec):
        attempt("refusal", describe(part), partial(refusal.check_places, part))
    for case in mixer_cases(part) if isinstance(part, MixerSpec) else position_cases(part):
        for law, check in laws_of(case):
            attempt(law, case.name, partial(check, case))
    return [LawResult(describe(part), law, counts[law], failures.get(law)) for law in LAWS]
