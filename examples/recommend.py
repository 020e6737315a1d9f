"""What comes next, and what the older items add to that. `python examples/recommend.py runs/recommend "Heat (1995); Fargo"`."""

import math
import sys

from rich.console import Console
from rich.table import Table

import regard


def main(path: str, history: str) -> None:
    model, console = regard.load(path), Console(markup=False, highlight=False)
    (found,) = model.run_all([history], n_best=5)
    if found[0].error is not None:  # a name that the data do not have
        sys.exit(found[0].error)
    seen = model.task.items.find_all(history)

    table = Table(title=f"After {model.task.items.join(seen)}")
    for column in ("", "item", "probability", "after the newest item alone"):
        table.add_column(column, overflow="fold")
    newest = model.task.items.join(seen[-1:])
    alone = model.score([newest] * len(found), [each.text for each in found])
    for place, (each, by_last) in enumerate(zip(found, alone, strict=True), 1):
        table.add_row(str(place), each.text, f"{100 * (each.score or 0.0):.2f} %", f"{100 * math.exp(by_last):.2f} %")
    console.print(table)


if __name__ == "__main__":
    main(*(sys.argv[1:] if len(sys.argv) > 2 else ("runs/recommend", "Toy Story (1995)")))
