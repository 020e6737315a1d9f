"""The README's tables: results from `results/*.json`, the tree from the modules' own first lines. `make readme` writes them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "regard"
ORDER = [
    "text",
    "data",
    "nn",
    "nn/mixers",
    "model",
    "families",
    "decode",
    "tasks",
    "report",
    "training",
    "recipes",
    "convert",
    "study",
    "verbs",
]
FIRST = ["errors", "registry", "spec", "storage", "folder", "machine"]
LAST = ["api", "cli", "__main__"]


def results() -> str:
    """A row a result: what, figures, command."""
    rows = ["| what | figures | command |", "|---|---|---|"]
    for path in sorted((ROOT / "results").glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        figures = _race(result["figures"]) or ", ".join(
            f"{name} {_short(value)}" for name, value in _heads(result["figures"])
        )
        rows.append(f"| {result['title']} | {figures} | `{result['command']}` |")
    return "\n".join(rows)


RATIO = "regard is faster by"


def _race(figures: dict[str, Any]) -> str:
    """Of a race: our tokens a second, case by case, and how many times faster that is than each other contender."""
    if not all(isinstance(row, dict) and RATIO in row for row in figures.values()):
        return ""
    said: list[str] = []
    for name, row in figures.items():
        if name.endswith("regard"):
            said.append(f"{name} {_short(next(iter(row.values())))} tokens/s")
        else:
            case = said[-1].partition("regard")[0] if said else ""
            said[-1] += f", {row[RATIO]}× {name.removeprefix(case)}"
    return "; ".join(said)


def _heads(figures: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Single figures; and of a contender's several, the first. Lists and tables stay in the file."""
    for name, value in figures.items():
        first = next(iter(value.values()), None) if isinstance(value, dict) else value
        if not isinstance(first, (dict, list)):
            yield name, first


def tree() -> str:
    """Every file of the package with the first sentence of its docstring."""
    lines = ["```"]
    lines += [_line(PACKAGE / f"{name}.py", name) for name in FIRST]
    for folder in ORDER:
        here = PACKAGE / folder
        if folder == "recipes":
            lines.append(f"{'recipes/':<22}{', '.join(sorted(p.stem for p in here.glob('*.yaml')))}")
            continue
        files = [p for p in sorted(here.glob("*.py")) if p.stem != "__init__"]
        if files:
            lines.append(f"{folder}/")
            lines += [_line(p, f"  {p.stem}") for p in files]
    lines += [_line(PACKAGE / f"{name}.py", name) for name in LAST]
    return "\n".join([*lines, "```"])


def _line(path: Path, name: str) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = re.split(r"(?<!al)\.(?:\s|$)", doc.split("\n\n")[0].replace("\n", " "))[0]
    return f"{name:<22}{first}"


def _short(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def written(text: str) -> str:
    """The README with its made parts made anew."""
    for name, body in (("results", results()), ("tree", tree())):
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m, body=body: f"{m[1]}{body}\n{m[2]}", text, flags=re.S
        )
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(written(readme.read_text(encoding="utf-8")), encoding="utf-8")
