"""A spec read from a file finds every part, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from regard.model.model_spec import ModelSpec
block = {"mix": {"kind": "full", "heads": 2}, "feed": {"kind": "feed_forward", "width": 8}}
stack = {"kind": "stack", "block": block, "depth": 1, "causal": True}
spec = ModelSpec.parse({"width": 8, "length": 8, "embed": {"kind": "tokens", "vocab": 5}, "decoder": stack})
print(type(spec.decoder.block.mix).__name__, type(spec.decoder.block.feed).__name__)
"""


def test_the_tables_are_filled_by_the_spec_alone() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    assert done.stdout == "Full FeedForward\n"
