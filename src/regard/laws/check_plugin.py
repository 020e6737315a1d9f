"""Run the laws on the parts of a plugin."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from regard.errors import SpecError
from regard.laws.suite import LawResult, check_part
from regard.nn.core.mixer import MIXERS, MixerSpec
from regard.nn.mixers import Full
from regard.nn.positions.position import POSITIONS, PositionSpec
from regard.registry import Registry, kind_of

Part = MixerSpec | PositionSpec
REGISTRIES: tuple[Registry[type[Part]], ...] = (MIXERS, POSITIONS)  # type: ignore[assignment]


def check_plugin(file: Path, load: Callable[[], None]) -> list[LawResult]:
    """Load a plugin and try every law on the mixers and positions it adds.

    A part is made with its defaults and two heads. One that needs more is listed in the plugin: `EXAMPLES = [Mine(rank=4)]`.
    """
    assert Full.registry is MIXERS  # our own parts are registered, so that what is new is the plugin's
    before = [set(registry) for registry in REGISTRIES]
    load()
    new = [
        part for old, parts in zip(before, REGISTRIES, strict=True) for name, part in parts.items() if name not in old
    ]
    examples = getattr(sys.modules[f"regard_plugin_{file.stem}"], "EXAMPLES", ())
    given = [part for part in examples if isinstance(part, Part)]
    made = [part for kind in new for part in ([p for p in given if type(p) is kind] or [_make(kind)])]
    if not made:
        raise SpecError(f"{file} adds no mixer and no position; add one with @MIXERS.add or @POSITIONS.add")
    return [result for part in made for result in check_part(part)]


def _make(kind: type[Part]) -> Part:
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    try:
        return kind.parse({"heads": 2} if "heads" in names else {})
    except SpecError as error:
        words = f"EXAMPLES = [{kind.__name__}(…)]"
        raise SpecError(f"cannot make a {kind_of(kind)!r} to try: {error}; add {words} to the plugin") from None


def render(results: list[LawResult]) -> Iterator[str]:
    """The results as lines of text, part by part."""
    part = None
    for result in results:
        if result.part != part:
            part = result.part
            yield part
        yield f"  {result.status:12} {result.law:11} {result.failure or ''}".rstrip()


def summarize(results: list[LawResult]) -> str | None:
    """Say which parts break which laws; None where all laws hold."""
    broken = [f"{result.part} breaks {result.law}" for result in results if result.failure is not None]
    return "; ".join(broken) or None
