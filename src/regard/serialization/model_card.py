"""The model card: a README for every model folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regard.metrics import METRICS


def render_card(
    title: str, scores: Mapping[str, float], signatures: Mapping[str, str], facts: Mapping[str, object]
) -> str:
    """Render the README of a model folder."""
    lines = [
        f"# {title}",
        "",
        "Trained with Regard.",
        "",
        "| score | value | |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {value:.4g} | {_cell(signatures.get(name, ''))} |" for name, value in scores.items()]
    lines += ["", "| fact | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    lines += [
        "",
        "```python",
        "import regard",
        "",
        'model = regard.load("path/to/this/folder")',
        'model.run(["…"])',
        "```",
        "",
    ]
    return "\n".join(lines)


def metric_signatures(names: Sequence[str]) -> dict[str, str]:
    """The signature of each metric, as sacreBLEU writes them; empty where a metric has none."""
    return {name: METRICS[name].signature() for name in names}


def _cell(value: object) -> str:
    text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
