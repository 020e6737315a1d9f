"""The standard library of the installed Python as text: `python -m bench.library OUT [--characters N]`.

A corpus that every machine has, large enough for scaling laws by data. Files with other than ASCII characters are left out, so
that the vocabulary of characters stays small. The order of the modules is drawn once, by a hash of their names; the first ones
are for validation.
"""

from __future__ import annotations

import argparse
import hashlib
import sysconfig
from pathlib import Path

from bench.entry import Mode, parse

VALID = 60_000
"""Characters for validation, at least."""


def list_modules() -> list[Path]:
    """The modules of the standard library in an order that looks random and is always the same."""
    root = Path(sysconfig.get_path("stdlib"))
    found = [path for path in root.rglob("*.py") if "site-packages" not in path.parts]
    return sorted(found, key=lambda path: hashlib.sha256(path.relative_to(root).as_posix().encode()).digest())


def write(out: Path, characters: int) -> tuple[int, int]:
    """Write `train.txt` and `valid.txt`; returns how many characters they have."""
    out.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[str]] = {"valid": [], "train": []}
    sizes = {"valid": 0, "train": 0}
    for path in list_modules():
        text = path.read_bytes()
        if not text.isascii():
            continue
        part = "valid" if sizes["valid"] < (2000 if Mode.smoke else VALID) else "train"
        parts[part].append(text.decode())
        sizes[part] += len(text)
        if sizes["train"] >= characters:
            break
    for name, texts in parts.items():
        (out / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")
    return sizes["train"], sizes["valid"]


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m bench.library", description=__doc__)
    _parser.add_argument("out", type=Path)
    _parser.add_argument("--characters", type=int, default=4_000_000)
    _asked = parse(_parser)
    _train, _valid = write(_asked.out, 20_000 if _asked.smoke else _asked.characters)
    print(f"{_train:,} characters to train, {_valid:,} to validate")
