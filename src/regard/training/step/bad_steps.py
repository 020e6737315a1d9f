"""Steps that are not finite: skipped, logged, counted.

Such a step changes no weight. Its examples are named in the log and, for the first few, to the user; after several in a row,
training has diverged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.tasks.common.task import Examples, Task
from regard.tasks.common.training_hooks import describe_examples
from regard.training.run.log import Log
from regard.training.step.optimizer_step import StepResult

BAD_STEPS = 5
"""Number of consecutive non-finite steps after which training has diverged."""
MAX_EXAMPLES = 8
"""Maximum number of examples listed for a bad step."""
MAX_PRINTED = 3
"""Maximum number of bad steps that are printed; the log has all of them."""


class BadSteps:
    """The bad steps of a run, and the `fault` of the last one in words."""

    def __init__(self, task: Task, log: Log) -> None:
        self._task, self._log = task, log
        self.fault, self._printed = "", 0

    def add(self, number: int, step: StepResult, examples: Examples, group: Sequence[NDArray[np.int64]]) -> None:
        """Log a bad step with the examples it was taken on."""
        loss, norm = step.loss, step.norm
        names = describe_examples(self._task, examples, np.concatenate(group)[:MAX_EXAMPLES])
        more = "" if sum(map(len, group)) <= MAX_EXAMPLES else " …"
        self.fault = f"step {number} was not finite (loss {loss}, gradient norm {norm}): {'; '.join(names)}{more}"
        self._log.write("skip", number, norm=str(norm), loss=str(loss), examples=names)

    def report(self, say: Callable[[str], None]) -> None:
        """Tell the user about the last bad step, unless there were too many before it."""
        self._printed += 1
        if self._printed <= MAX_PRINTED:
            rest = f"; further ones are only in {self._log.path.name}" if self._printed == MAX_PRINTED else ""
            say(f"skipped: {self.fault}{rest}")
