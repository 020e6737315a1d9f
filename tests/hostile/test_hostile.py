"""Opening a folder that means harm runs nothing, reads nothing outside it, takes no time and little memory, and is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.hostile import whole
from tests.hostile.folders import ATTACKS, Place

ROOT = Path(__file__).parents[2]
SECONDS = 2.0


def attack(root: Path) -> dict[str, dict[str, Any]]:
    """What came of every attack; one process opens them all, and is watched."""
    ours, theirs, outside, canary = (root / name for name in ("ours", "hf", "outside", "canary"))
    whole.make(ours, theirs)
    outside.mkdir()
    shutil.copy(ours / "model.safetensors", outside / "secret.safetensors")
    (outside / "evil.py").write_text(f"open({str(canary)!r}, 'w')")
    folders = []
    for i, (name, (way, spoil, seal)) in enumerate(ATTACKS.items()):
        folder = root / f"{i:03d}"
        shutil.copytree(theirs if way == "hf" else ours, folder)
        place = Place(folder, outside, canary)
        spoil(place)
        if seal:
            place.seal()
        folders.append((name, way, str(folder.with_name(f"{folder.name}.gguf") if way == "gguf" else folder)))
    twin = shutil.copytree(outside, root / "twin")
    asked = {"honest": [("ours", str(ours)), ("hf", str(theirs))], "outside": str(outside), "twin": str(twin),
             "folders": folders}  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "tests.hostile.attempt"], input=json.dumps(asked), cwd=root, text=True,
                          env=environment, capture_output=True, timeout=600)  # fmt: skip
    found = {said["name"]: said for said in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, f"{[n for n in ATTACKS if n not in found][:1]} ended it: {done.stderr[-2000:]}"
    assert not canary.exists(), "code ran"
    return found


def test_there_are_many() -> None:
    assert len(ATTACKS) >= 100


def test_hostile_folders_are_refused(tmp_path: Path) -> None:
    """One test, so that the folders are made once."""
    outcomes = attack(tmp_path)
    assert {name: wrong for name in ATTACKS if (wrong := find_fault(outcomes[name]))} == {}


def find_fault(said: dict[str, Any]) -> str:
    """What is wrong with the way a folder was refused."""
    if said["code"] not in (2, 3):
        return f"not refused: {said['error']}: {said['said']}"
    if said["done"]:
        return f"it did {said['done']}"
    if said["seconds"] >= SECONDS:
        return f"it took {said['seconds']} seconds"
    return "" if said["said"] else "refused without a word"
