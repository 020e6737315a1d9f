"""`regard study complexity`: run the study, write what it found beside one another, and say where."""

from __future__ import annotations

import json
from pathlib import Path

from regard.studies import figures
from regard.studies.complexity import Settings, Study, study
from regard.verbs.command import say


def study_complexity(settings: Settings, out: Path) -> Study:
    """Run the study and fill the folder `out`: complexity.json, report.html and figures; progress goes to stderr."""
    out.mkdir(parents=True, exist_ok=True)
    made = study(settings, say)
    found = json.dumps(made.plain(), indent=2, ensure_ascii=False)
    (out / "complexity.json").write_text(f"{found}\n", encoding="utf-8")
    (out / "report.html").write_text(figures.report(made), encoding="utf-8")
    drawn = figures.draw(made, out)
    if not drawn:
        say(figures.PLOTS)
    names = ["complexity.json", "report.html", *(path.name for path in drawn)]
    say(f"{', '.join(names)} are in {out}")
    return made
