"""How good a model is: its loss on the validation data, and the scores of what it writes there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from regard.decode import Search
from regard.errors import SpecError
from regard.metrics import METRICS
from regard.model.net import Net
from regard.tasks.common.capabilities import Generates, require
from regard.tasks.common.losses import evaluate_loss
from regard.tasks.common.task import EvalSet, Examples, Task

GREEDY: dict[str, Any] = {"beam": 1, "n_best": 1, "sample": False}
"""How outputs are looked for while training goes on, whatever the recipe says: it is fast."""


class Validator:
    """Judges a model as often as it is asked; keeps what was written the last time."""

    def __init__(
        self, net: Net, task: Task, valid: Examples, trials: Sequence[EvalSet], *, tokens: int, search: Search,
        compute: Callable[[], AbstractContextManager[object]],
    ) -> None:  # fmt: skip
        self.net, self.task, self.valid, self.trials = net, task, valid, trials
        self.tokens, self.search, self.compute = tokens, search, compute
        self.outputs: list[str] = []
        wanted = [name for name in task.metrics if METRICS[name].decodes]
        if wanted and not any(trial.references for trial in trials):
            raise SpecError(f"data.metrics: this task writes nothing that {wanted[0]} could be of")

    def scores(self, *, greedily: bool = True) -> dict[str, float]:
        """Loss a token and the task's scores, decoding only if one of them asks for outputs; greedily is fast."""
        self.net.eval()
        with self.compute():
            scores = evaluate_loss(self.task, self.net, self.valid, tokens=self.tokens)
        if unknown := [name for name in self.task.metrics if not METRICS[name].decodes and name not in scores]:
            raise SpecError(f"data.metrics: this task has no {unknown[0]}; there is {', '.join(scores)}")
        decoded = {name: METRICS[name].compute for name in self.task.metrics if METRICS[name].decodes}
        if not decoded:
            return scores
        search = dataclasses.replace(self.search, **GREEDY) if greedily else self.search
        outputs, references, apart = list[str](), list[str](), dict[str, float]()
        for trial in self.trials:
            found = require(self.task, Generates).run([self.net], trial.inputs, search, trial.options)
            texts = [each[0].text if each else "" for each in found]
            outputs += texts
            references += trial.references
            if len(self.trials) > 1:
                apart |= {f"{name} of {trial.name}": score(texts, trial.references) for name, score in decoded.items()}
        self.outputs = outputs
        return scores | {name: score(outputs, references) for name, score in decoded.items()} | apart

    def examples(self, count: int = 12) -> list[dict[str, Any]]:
        """Some of what was written, beside what should have been."""
        if not self.outputs:  # no score asked for any
            return []
        outputs = iter(self.outputs)
        rows: list[dict[str, Any]] = []
        for trial in self.trials:
            for source, reference in zip(trial.inputs, trial.references, strict=True):
                rows.append({"source": str(source), "reference": reference, "output": next(outputs)})
        return rows[:: max(len(rows) // count, 1)][:count]
