"""What the demo's model learned: a dozen languages, and where it looks. `python examples/dates.py runs/dates`."""

import sys

from rich.console import Console
from rich.table import Table

import regard
from regard.data.dates import showcase


def main(path: str) -> None:
    model, console = regard.load(path), Console(markup=False, highlight=False)
    rows = showcase()
    outputs = model.run([text for _, text, _ in rows])
    table = Table(title="Dates the model has never seen, in any language")
    for column in ("language", "written", "model says", ""):
        table.add_column(column, overflow="fold")
    for (language, text, wanted), output in zip(rows, outputs, strict=True):
        table.add_row(language, text, output, "right" if output == wanted else f"should be {wanted}")
    console.print(table)

    text = "Sunday, November 15, 2026"
    seen = model.attention(text)
    weights = seen[f"decoder.blocks.{model.spec.decoder.depth - 1}.cross"].mean(0)
    console.print("\nWhere it looks while it writes (darker is more):")
    shades = " ░▒▓█"
    for token, row in zip([*seen.target[1:], "end"], weights, strict=True):
        marks = "".join(shades[min(int(w / float(row.max()) * 4.99), 4)] for w in row[:-1])
        console.print(f"  {token:>3} │{marks}│")
    console.print(f"      │{text}│")
    console.print(f"\nTry your own: .venv/bin/regard run {path} '3. Oktober 1990'\nThe whole story: {path}/report.html")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/dates")
