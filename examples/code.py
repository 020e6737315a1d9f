"""Complete code between two texts, and see whether the result compiles. `python examples/code.py MODEL [FILE:LINE:COLUMN]`.

MODEL is a model of code, such as one that `regard train code` made of the standard library of Python.
"""

import sys
from collections.abc import Sequence

import regard
from regard.data.cursor import Cursor

SNIPPETS = [
    ("import os\nimport sys\n\ndef read(path):\n    with open(path) as ", ":\n        return file.read()\n"),
    ("class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        ", "\n"),
    ("def largest(numbers):\n    best = None\n    for number in ", ":\n        best = number\n    return best\n"),
]


def does_compile(source: str) -> bool:
    """Whether Python accepts a source."""
    try:
        compile(source, "completion", "exec")
    except SyntaxError:
        return False
    return True


def main(path: str, places: Sequence[str]) -> None:
    model = regard.load(path)
    cursors = [Cursor.read(place) for place in places] or [Cursor(*sides) for sides in SNIPPETS]
    for cursor in cursors:
        middle, after = model.complete(cursor.before, cursor.after), cursor.after or ""
        verdict = "compiles" if does_compile(cursor.before + middle + after) else "does not compile"
        print(f"{cursor.before[-200:]}»{middle}«{after[:200]}")
        print(f"--- {verdict}\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/code", sys.argv[2:])
