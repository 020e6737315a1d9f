"""The README's table of results, filled in from `results/*.json`; `make readme` writes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bench.headlines import HEADLINES, README, headline

ROOT = Path(__file__).parent.parent


def stored() -> dict[str, dict[str, Any]]:
    """Every result by name; one without a line in `headlines.py` is an oversight."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "results").glob("*.json")}
    if missing := sorted(set(found) - {name for rows in HEADLINES.values() for name in rows}):
        raise SystemExit(f"bench/headlines.py has no line for {', '.join(missing)}")
    return found


def results() -> str:
    """The table: what was measured, the figures, and the command that measures them again."""
    found, lines = stored(), ["| what | result | command |", "|---|---|---|"]
    for name in README:
        title, figures = headline(name, found[name]["figures"])
        lines.append(f"| {title} | {figures} | `{found[name]['command']}` |")
    return "\n".join(lines)


def rendered(text: str) -> str:
    """The README with its generated part made anew."""
    return re.sub(
        r"(<!-- results -->\n).*?(<!-- /results -->)", lambda m: f"{m[1]}{results()}\n{m[2]}", text, flags=re.S
    )


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(rendered(readme.read_text(encoding="utf-8")), encoding="utf-8")
