"""Damage a checkpoint in every way a disk does, and see that it is found out: `python -m tests.training.damage 10000 1000`.

A tiny run leaves two checkpoints. One bit of one file of the newer one is flipped, or the file is cut short; then the run
is asked for its newest checkpoint, sets the damaged one aside, and must give the older one, to the bit. After that all is
put back as it was. Bits and ends are drawn from a seed: small files are hit as often as large ones, headers and all.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from regard.training.run.checkpoint import Checkpoint, Checkpoints
from regard.training.train import run_training
from tests.training.small import hard


def damage_often(flips: int, cuts: int, folder: Path, seed: int = 0) -> str:
    """Damage and load so many times; what there is to say about it, or AssertionError."""
    draw, checkpoints = random.Random(seed), _trained(folder)
    newest, older = (checkpoints.folder / f"step-{step:08d}" for step in checkpoints.steps())
    files = {path: path.read_bytes() for path in sorted(newest.iterdir())}
    untouched = {path: path.read_bytes() for path in older.iterdir()}
    wanted, hit = _bits(checkpoints.load_newest()), Counter[str]()
    newest.rename(aside := folder / "aside")
    before = _bits(checkpoints.load_newest())
    aside.rename(newest)
    assert wanted != before
    for n in range(flips + cuts):
        path = draw.choice([*files])
        whole = files[path]
        path.write_bytes(_flipped(whole, draw) if n < flips else whole[: draw.randrange(len(whole))])
        found = checkpoints.load_newest()
        assert found is not None and found.step < int(newest.name.split("-")[1]), f"damage to {path} went unseen"
        assert _bits(found) == before, f"{older} is not what it was"
        assert found.messages[0].endswith(f"renamed to {newest.name}.corrupt"), found.messages
        hit[path.name] += 1
        newest.with_name(f"{newest.name}.corrupt").rename(newest)
        path.write_bytes(whole)
    assert _bits(checkpoints.load_newest()) == wanted
    assert untouched == {path: path.read_bytes() for path in older.iterdir()}
    said = ", ".join(f"{name} {count}" for name, count in sorted(hit.items()))
    return f"{flips} flips and {cuts} cuts, all of them found, each time the older checkpoint was used: {said}"


def _trained(folder: Path) -> Checkpoints:
    """The checkpoints of a tiny run, of which there are two."""
    run_training(hard(folder / "run", train__steps=6, train__save_every=3, train__validate_every=6))
    checkpoints = Checkpoints(folder / "run" / "checkpoints")
    assert len(checkpoints.steps()) == 2
    return checkpoints


def _flipped(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(8 * len(data))
    return data[: at // 8] + bytes([data[at // 8] ^ 1 << at % 8]) + data[at // 8 + 1 :]


def _bits(loaded: Checkpoint | None) -> dict[str, Any]:
    """A checkpoint to be compared."""
    assert loaded is not None
    tensors = {f"{group}/{name}": t for group, each in loaded.groups.items() for name, t in each.items()}
    bits = {
        name: (str(t.dtype), bytes(t.contiguous().view(-1).view(dtype=_bytes()).numpy())) for name, t in tensors.items()
    }
    return {"step": loaded.step, "facts": loaded.facts, **bits}


def _bytes() -> Any:
    import torch

    return torch.uint8


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        flips, cuts, seed = map(int, [*sys.argv[1:], "0"][:3])
        print(damage_often(flips, cuts, Path(place), seed))
        print(f"{time.process_time():.0f} seconds of computing")
