"""Remains of an earlier run, by its folder."""

from __future__ import annotations

from pathlib import Path

from regard.errors import CheckpointError
from regard.files.folder import find_fault
from regard.serialization.model_folder import BEST, FINAL, FINISHED, LOG
from regard.spec import Plain
from regard.training.run.log import Log, read_log
from regard.training.run.run_folder import read_facts


def find_done_event(folder: Path) -> Plain | None:
    """The `done` event of a finished run, unless something changed since."""
    ends = (event for event in reversed(read_log(folder / LOG)) if event["event"] in ("done", "changed"))
    last = next(ends, {"event": None})
    written = read_facts(folder).get(FINISHED)
    complete = last["event"] == "done" and last.keys() >= {"scores", "examples"}
    if not complete or (written is not None and Log(folder / LOG).has_changed(written)):
        return None
    return last


def is_finished_without_checkpoint(folder: Path, save_every: int, *, changed: bool) -> bool:
    """True if a run that has no checkpoint is finished, so that its models stay; False if it can begin.

    A run that was saved once and has lost its checkpoints can do neither, and is refused.
    """
    saved = _was_saved(folder, save_every)
    intact = [name for name in (FINAL, BEST) if saved and find_fault(folder / name) is None]
    if not changed and find_done_event(folder) and FINAL in intact:
        return True
    if saved:
        model = (
            f", or start a new run from its model with --from {folder / intact[0]} and another --out" if intact else ""
        )
        raise CheckpointError(
            f"{folder} holds the model of a run, but no checkpoint to continue from: start over with --fresh{model}"
        )
    return False


def _was_saved(folder: Path, every: int) -> bool:
    """True if the run had a checkpoint once. A run killed before step `every` had none."""
    if (folder / FINAL).exists():
        return True
    steps = [event["step"] for event in read_log(folder / LOG)]
    return (folder / BEST).exists() and (not steps or max(steps) > every)
