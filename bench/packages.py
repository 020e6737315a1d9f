"""Descriptions of Debian packages as tables: `python -m bench.packages ../shared/data/debian_descriptions OUT`.

kinds.{train,valid,test}.tsv       the beginning of a description, and the language or purpose that the package's name tells
synopses.{train,valid,test}.tsv    the beginning of a description, and the one-line synopsis that its maintainer wrote
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

from bench.entry import parse
from regard.data.text_files import read_lines

KINDS = {
    "perl": r"lib.*-perl", "java": r"lib.*-java", "python": r"python3?-.*", "go": r"golang-.*", "node": r"node-.*",
    "ruby": r"ruby-.*", "r": r"r-.*", "fonts": r"x?fonts-.*",
}  # fmt: skip
"""What a package is for, by its name."""
CHARACTERS = 160
"""Of a description that are read."""
PARTS = ("train", "valid", "test")


def read_packages(path: Path) -> list[tuple[str, str, str]]:
    """Name, beginning of the description, and synopsis of each package."""
    rows = (line.split("\t") for line in read_lines(path))
    return [(name, text[:CHARACTERS].rsplit(" ", 1)[0], synopsis) for name, text, synopsis in rows]


def write_kinds(packages: Iterable[tuple[str, str, str]], path: Path) -> None:
    """Descriptions of packages whose name tells a kind, labeled with it."""
    labeled = [
        (text, kind) for name, text, _ in packages for kind, pattern in KINDS.items() if re.fullmatch(pattern, name)
    ]
    _write_table(path, ("text", "label"), labeled)


def write_synopses(packages: Iterable[tuple[str, str, str]], path: Path) -> None:
    """Descriptions with their synopses, for summarization."""
    _write_table(path, ("description", "synopsis"), [(text, synopsis) for _, text, synopsis in packages])


def _write_table(path: Path, header: tuple[str, str], rows: Iterable[tuple[str, str]]) -> None:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in (header, *rows)), encoding="utf-8")


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m bench.packages", description=__doc__)
    _parser.add_argument("data", type=Path)
    _parser.add_argument("out", type=Path)
    _asked = parse(_parser)
    _asked.out.mkdir(parents=True, exist_ok=True)
    for _part in PARTS:
        _found = read_packages(_asked.data / f"{_part}.tsv.gz")[:: 40 if _asked.smoke else 1]
        write_kinds(_found, _asked.out / f"kinds.{_part}.tsv")
        write_synopses(_found, _asked.out / f"synopses.{_part}.tsv")
