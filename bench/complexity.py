"""The heart of a study of complexity as a result: `regard study complexity`, then `python -m bench.complexity [JSON]`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.entry import make_scratch, parse
from bench.launch import call
from bench.results import write

AT = 8192
"""Where the window stands against full attention; in a smoke run at the greatest length that was measured."""
SHOWN = ("plain", "flash", "local", "bigbird", "performer", "linformer", "lsh", "xl_memory", "lstm")
"""Whose growth stands in the README."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.complexity", description=__doc__)
    parser.add_argument("study", type=Path, nargs="?", help="by default runs/complexity/complexity.json")
    said = parse(parser)
    path = said.study or (measure_little() if said.smoke else Path("runs/complexity/complexity.json"))
    study = json.loads(path.read_text(encoding="utf-8"))
    layers = {one["name"]: one for one in study["contenders"]}
    grown = {
        what: {name: round(one[what]["exponent"], 2) for name, one in layers.items() if one.get(what)}
        for what in ("time", "memory")
    }
    figures: dict[str, Any] = {
        f"{what} ∝ n^": ", ".join(f"{grown[what][name]} {name}" for name in SHOWN if name in grown[what])
        for what in grown
    } | {"exponents": grown}
    at = min(max(p["n"] for p in layers[name]["points"]) for name in ("local", "fused")) if said.smoke else AT
    local, fused = (next(p for p in layers[name]["points"] if p["n"] == at) for name in ("local", "fused"))
    figures[f"window of {study['layer']['window']} at {at}: times faster than fused"] = round(
        fused["seconds"] / local["seconds"], 2
    )
    figures[f"window of {study['layer']['window']} at {at}: of its memory"] = round(local["bytes"] / fused["bytes"], 2)
    figures["minutes"] = round(study["seconds"] / 60, 1)
    title = (
        "Complexity, measured: growth of time and memory (forward and backward) with the length, last three doublings"
    )
    print(write("complexity", title=title, command="regard study complexity --minutes 7", figures=figures))


def measure_little() -> Path:
    """The study of complexity on few layers and short lengths."""
    out = make_scratch()
    layers = "fused,local"
    call(
        [
            "regard",
            "study",
            "complexity",
            "--mixers",
            layers,
            "--lengths",
            "16,32,64,128",
            "--minutes",
            "3",
            "--out",
            str(out),
        ]
    )
    return out / "complexity.json"


if __name__ == "__main__":
    main()
