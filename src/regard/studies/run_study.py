"""Run a study and write its results to a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from regard.errors import UnknownName
from regard.studies import figures
from regard.studies.complexity import LENGTHS, Settings, Study
from regard.studies.complexity import study as measure_complexity

STUDIES = ("complexity",)


def study(
    name: str = "complexity",
    *,
    out: str | Path = "runs/complexity",
    mixers: Sequence[str] = (),
    lengths: Sequence[int] = LENGTHS,
    threads: int = 0,
    minutes: float = 9.0,
    notify: Callable[[str], None] | None = None,
) -> Study:
    """Run a study on this machine and fill the folder `out`: complexity.json, report.html and figures.

    mixers   only these; all by default
    threads  of torch; 0: one per core
    minutes  about how long it may take
    notify   called with progress messages
    """
    if name not in STUDIES:
        raise UnknownName("study", name, STUDIES)
    tell, folder = notify or (lambda _: None), Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    found = measure_complexity(Settings(minutes, tuple(mixers), tuple(lengths), threads), tell)
    text = json.dumps(found.plain(), indent=2, ensure_ascii=False)
    (folder / "complexity.json").write_text(f"{text}\n", encoding="utf-8")
    (folder / "report.html").write_text(figures.report(found), encoding="utf-8")
    drawn = figures.draw(found, folder)
    if not drawn:
        tell(figures.PLOTS)
    names = ["complexity.json", "report.html", *(path.name for path in drawn)]
    tell(f"wrote {', '.join(names)} to {folder}")
    return found
