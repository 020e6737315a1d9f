"""The heart of a study of complexity as a result: `regard study complexity`, then `python -m bench.complexity [JSON]`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.results import parse, write

AT = 8192
"""Where the window stands against full attention."""
SHOWN = ("plain", "flash", "local", "bigbird", "performer", "linformer", "lsh", "xl_memory", "lstm")
"""Whose growth stands in the README."""


def main(path: Path) -> None:
    study = json.loads(path.read_text(encoding="utf-8"))
    layers = {one["name"]: one for one in study["contenders"]}
    grown = {
        what: {name: round(one[what]["exponent"], 2) for name, one in layers.items() if one.get(what)}
        for what in ("time", "memory")
    }
    figures: dict[str, Any] = {
        f"{what} ∝ n^": ", ".join(f"{grown[what][name]} {name}" for name in SHOWN) for what in grown
    } | {"exponents": grown}
    local, fused = (next(p for p in layers[name]["points"] if p["n"] == AT) for name in ("local", "fused"))
    figures[f"window of {study['layer']['window']} at {AT}: times faster than fused"] = round(
        fused["seconds"] / local["seconds"], 2
    )
    figures[f"window of {study['layer']['window']} at {AT}: of its memory"] = round(local["bytes"] / fused["bytes"], 2)
    figures["minutes"] = round(study["seconds"] / 60, 1)
    title = (
        "Complexity, measured: growth of time and memory (forward and backward) with the length, last three doublings"
    )
    print(write("complexity", title=title, command="regard study complexity --minutes 7", figures=figures))


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m bench.complexity", description=__doc__)
    _parser.add_argument("study", type=Path, nargs="?", default=Path("runs/complexity/complexity.json"))
    main(parse(_parser).study)
