"""COMET, a learned score of translations (Rei et al. 2020).

It reads the source, too. The model comes from a local folder, never from the network: `REGARD_COMET` names one as
`comet-score` keeps it, with `hparams.yaml` and `checkpoints/model.ckpt`. Their package reads such a checkpoint by unpickling
it, so it should be one that you trust.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from regard.errors import SpecError, name_extra
from regard.metrics.items import CountedItems, count_items, percentage

FOLDER = "REGARD_COMET"
"""The environment variable that names the folder of the model."""
CHECKPOINT = Path("checkpoints", "model.ckpt")
BATCH = 16


def comet_items(outputs: Sequence[str], references: Sequence[str], sources: Sequence[str]) -> CountedItems:
    """The score of each line; that of a test set is their mean, times 100."""
    rows = [{"src": s, "mt": o, "ref": r} for s, o, r in zip(sources, outputs, references, strict=True)]
    found = load_comet(find_checkpoint()).predict(rows, batch_size=BATCH, gpus=0, progress_bar=False, num_workers=0)
    return count_items([(score, 1) for score in found.scores], percentage)


def find_checkpoint() -> Path:
    """The checkpoint of the local model."""
    folder = os.environ.get(FOLDER, "")
    if not folder:
        raise SpecError(f"comet needs a model from a local folder: set {FOLDER} to one with {CHECKPOINT.as_posix()}")
    if not (path := Path(folder) / CHECKPOINT).is_file():
        raise SpecError(f"{FOLDER}={folder} is not the folder of a COMET model: it has no {CHECKPOINT.as_posix()}")
    return path


@cache
def load_comet(checkpoint: Path) -> Any:
    """The model, by their package."""
    try:
        from comet import load_from_checkpoint
    except ImportError:
        raise SpecError(f"scoring with COMET needs an extra: {name_extra('comet')}") from None
    return load_from_checkpoint(str(checkpoint), local_files_only=True)
