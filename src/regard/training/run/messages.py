"""Messages of a run before its first step and after its last."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from regard.machine import machine
from regard.model.cost import cost
from regard.report.number import duration
from regard.serialization.model_folder import REPORT
from regard.spec import Plain
from regard.tasks.common.capabilities import Completes, ReadsFiles, supports
from regard.tasks.common.task import Task
from regard.training.step.time_estimate import estimate_seconds
from regard.training.trainer import Trainer


def describe_run(trainer: Trainer, facts: Plain, folder: Path, *, timed: bool) -> list[str]:
    """Model, machine, length and, if it is known or should be `timed`, the expected duration."""
    count, examples = cost(trainer.net, 1).parameters, trainer.data.train
    threads = f"{facts['threads']} thread{'s' * (facts['threads'] > 1)}"
    where = f"{threads} of {machine().processor}" if facts["device"] == "cpu" else facts["device"]
    left = f" ({examples.left_out:,} too long and left out)" if examples.left_out else ""
    learning = sum(p.numel() for p in trainer.net.parameters() if p.requires_grad)
    part = f", {learning:,} of them trained" if learning < count else ""
    known = facts.get("seconds_per_step", {}).get(facts["precision"])
    seconds = trainer.total * known if known else estimate_seconds(trainer) if timed else None
    validations = -(-trainer.total // trainer.validate_every)
    plus = f" plus {validations} validation{'s' * (validations > 1)}"
    time = "" if seconds is None else f", about {duration(seconds)} on this machine{plus}"
    return [
        f"model: {count:,} parameters{part}, {facts['precision']}, on {where}",
        f"training: {trainer.total:,} steps, {len(examples):,} examples{left}{time}; run folder {folder}",
    ]


def suggest_commands(folder: Path, task: Task, plugins: Sequence[str]) -> list[str]:
    """Three commands to continue with."""
    files = "FILE --out FOLDER" if supports(task, ReadsFiles) else '"INPUT"'
    given = "--at FILE:LINE:COLUMN" if supports(task, Completes) else files
    name = shlex.quote(str(folder))
    with_plugins = "".join(f" --plugin {shlex.quote(plugin)}" for plugin in plugins)
    return [
        f"use it:    regard run {name} {given}{with_plugins}",
        f"score it:  regard eval {name} DATA{with_plugins}",
        f"see it:    open {shlex.quote(str(folder / REPORT))} in a browser",
    ]  # fmt: skip
