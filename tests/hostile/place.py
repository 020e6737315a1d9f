"""How an honest folder is spoilt, and the table of all the ways: `ATTACKS`, from names to what is done.

Whoever sends such a folder can write a manifest too, so it is sealed again after it was spoilt, unless the manifest itself
is what is wrong with it. Nothing here is refused for a digest that happens not to fit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG, WEIGHTS, TOKENS, MANIFEST = "config.json", "model.safetensors", "tokenizer.json", "manifest.json"


@dataclass(frozen=True)
class Place:
    """A folder to be spoilt, one outside it that must not be read, and a file that must not appear."""

    folder: Path
    outside: Path
    canary: Path

    def write(self, name: str, data: bytes) -> None:
        self.clear(name)
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_bytes(data)

    def clear(self, name: str) -> Path:
        path = self.folder / name
        path.unlink(missing_ok=True)
        return path

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_bytes())

    def change(self, name: str, way: str, value: Any) -> None:
        """Put something else at a dotted place of a JSON file."""
        said = place = self.read(name)
        *steps, last = way.split(".")
        for step in steps:
            place = place[int(step) if isinstance(place, list) else step]
        place[last] = value(place.get(last)) if callable(value) else value
        self.write(name, json.dumps(said).encode())

    def link(self, name: str, target: Path | str) -> None:
        self.clear(name).symlink_to(target)

    def seal(self) -> None:
        """The manifest that fits what is there."""
        files = {}
        for path in self.folder.iterdir():
            if path.is_file() and not path.is_symlink() and path.name != MANIFEST and path.stat().st_size < 1 << 30:
                data = path.read_bytes()
                files[path.name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self.write(MANIFEST, json.dumps({"files": files}).encode())


Spoil = Callable[..., object]
ATTACKS: dict[str, tuple[str, Spoil, bool]] = {}
"""By name: which honest folder, what is done to it, and whether it gets a manifest that fits."""


def add(way: str, name: str, spoil: Spoil, *, seal: bool = True) -> None:
    key = f"{way}: {name}"
    assert key not in ATTACKS, key
    ATTACKS[key] = way, spoil, seal and way == "ours"


def both(name: str, spoil: Spoil) -> None:
    for way in ("ours", "hf"):
        add(way, name, spoil)
