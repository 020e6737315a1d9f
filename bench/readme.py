"""The README's tables: results from `results/*.json`, the tree from the modules' own first lines. `make readme` writes them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from bench.headlines import HEADLINES

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "regard"
ORDER = [
    "files", "text", "data", "nn/core", "nn/layers", "nn/positions", "nn/attention", "nn/mixers", "nn/blocks", "model",
    "families", "decode", "tasks", "tasks/common", "report", "serialization", "training", "recipes", "conversion", "studies",
    "verbs",
]  # fmt: skip
FIRST = ["errors", "registry", "spec", "machine"]
LAST = ["api", "cli", "__main__"]


def results() -> str:
    """A table a section of `headlines.py`: what, the figures that matter, the command that makes them."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "results").glob("*.json")}
    if lost := sorted(set(found) - {name for rows in HEADLINES.values() for name in rows}):
        raise SystemExit(f"bench/headlines.py has no line for {', '.join(lost)}")
    parts: list[str] = []
    for title, rows in HEADLINES.items():
        parts += [f"**{title}**", "", "| what | figures | command |", "|---|---|---|"]
        for name in (name for name in rows if name in found):
            what, template = rows[name]
            parts.append(f"| {what} | {template.format(f=found[name]['figures'])} | `{found[name]['command']}` |")
        parts.append("")
    return "\n".join(parts).rstrip()


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
    first = re.split(r"(?<!al)(?<!eq)\.(?:\s|$)", doc.split("\n\n")[0].replace("\n", " "))[0]
    return f"{name:<22}{first}"


def written(text: str) -> str:
    """The README with its made parts made anew."""
    for name, body in (("results", results()),):
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m, body=body: f"{m[1]}{body}\n{m[2]}", text, flags=re.S
        )
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(written(readme.read_text(encoding="utf-8")), encoding="utf-8")
