"""Model folders and report that a run leaves for people."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from regard.files.folder import find_fault, read_folder
from regard.files.storage import write_file
from regard.machine import versions
from regard.metrics import METRICS
from regard.model.cost import cost
from regard.model.tree import tree
from regard.nn.layers import lora
from regard.report.training_report import RunFacts, run_report
from regard.serialization.load import load_model
from regard.serialization.model_card import metric_signatures, render_card
from regard.serialization.model_folder import BEST, FINAL, FINISHED, LOG, REPORT, write_model
from regard.spec import Plain
from regard.tasks.common.task import Dataset
from regard.training.recipe import Recipe
from regard.training.run.log import read_log
from regard.training.run.resume import find_done_event
from regard.training.run.run_folder import save_facts
from regard.training.step.optimizer_step import check_finite
from regard.training.step.validate import Sample
from regard.training.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Artifacts:
    """Writes the models and the report of one run."""

    folder: Path
    recipe: Recipe
    facts: Mapping[str, object]
    trainer: Trainer

    def write_best(self, step: int | None = None) -> None:
        """Export the current weights as the best model so far; they are those of this step, by default the last one."""
        self._export(BEST, self.trainer.state.step if step is None else step)

    def write_final(self) -> Plain:
        """Export the final model, the average if asked for and otherwise the best; returns the `done` event of the log."""
        trainer = self.trainer
        steps = [step for step, _ in trainer.state.snapshots]
        if steps:
            weights = trainer.snapshots.average(steps)
        else:
            weights = load_model(read_folder(self.folder / BEST))[0].state_dict() | lora.zero_adapters(trainer.net)
        with trainer.net.use_weights(weights):
            scores = trainer.validator.scores(greedy=False)
            samples = trainer.validator.samples()
            source = f"the mean of {', '.join(map(str, steps))}" if steps else trainer.state.best_step
            self._export(FINAL, source, scores)
        decoding = trainer.validator.decoding(greedy=False)
        done: Plain = {"scores": scores, "seconds": round(trainer.state.seconds, 3), "examples": samples}
        done |= {"decoding": decoding, "engine": trainer.validator.judge} if decoding else {}
        return done

    def finish(self, say: Callable[[str], None]) -> Plain:
        """Write the final model unless it is there and intact; returns the `done` event."""
        known, fault = find_done_event(self.folder), find_fault(self.folder / FINAL)
        if known is not None and fault is None:
            return known
        if known is not None:
            say(f"{fault}; writing it again")
        done, log = self.write_final(), self.trainer.log
        if known is None or known["scores"] != done["scores"]:
            log.drop("done", self.trainer.state.step)  # a damaged one
            log.write("done", self.trainer.state.step, **done)
            log.sync()
            save_facts(self.folder, **{FINISHED: log.digest()})
        return done

    def write_report(self, dataset: Dataset, samples: Sequence[Sample]) -> None:
        """Write `report.html`."""
        net, task = self.trainer.net, self.trainer.task
        facts = {
            "command": self.facts["command"],
            "versions": versions(),
            "parameters": cost(net, 1).parameters,
            "device": self.facts["device"],
        }
        run = RunFacts(
            name=self.folder.name,
            log=read_log(self.folder / LOG),
            recipe=self.recipe.yaml(),
            tree=tree(net),
            examples=samples,
            data=dataset.statistics,
            facts=facts,
            dropped=dataset.dropped,
            least=[name for name in task.metrics if not METRICS[name].higher],
        )
        write_file(self.folder / REPORT, run_report(run))

    def _export(self, name: str, step: int | str, scores: Mapping[str, float] | None = None) -> None:
        """Write a model folder; its card says which step the weights are from."""
        net, task = self.trainer.net, self.trainer.task
        facts = {
            "recipe": json.dumps(json.loads(self.recipe.json()), ensure_ascii=False),
            "step": step,
            **{
                key: value
                for key, value in self.facts.items()
                if key not in ("requested", "seconds_per_step") and value != {}
            },
        }
        title = f"{self.folder.name}: a {self.recipe.task} model"
        card = render_card(title, scores or {}, metric_signatures(task.metrics) if scores else {}, facts)
        weights = lora.merge_adapters(net)
        check_finite(self.trainer.state.step, {name: weights})
        write_model(
            self.folder / name, task=task, name=self.recipe.task, net=net, search=self.recipe.decode,
            weights=weights, card=card, damaged=True,
        )  # fmt: skip
