"""Validation: loss, scores and sample outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from regard.decode import Engine, Search
from regard.engine.choose_engine import EngineName, choose_engine, open_engine
from regard.errors import DataError, SpecError
from regard.metrics import METRICS
from regard.model.net import Net
from regard.spec import Plain
from regard.tasks.common.capabilities import Generates, Inspects, require, supports
from regard.tasks.common.losses import evaluate_loss
from regard.tasks.common.task import EvalSet, Examples, Task

ALWAYS = ("loss", "perplexity")
"""Scores that are reported whether they are among the task's or not."""
GREEDY: Plain = {"beam": 1, "n_best": 1, "sample": False}
"""Decoding while training, whatever the recipe says: it is fast."""
MAX_SHOWN = 60
"""Characters of a text in a printed sample."""
MAX_KEPT = 400
"""Characters of a text in a sample of the log."""
MAX_TOKENS = 40
"""Tokens of an example whose attention is logged."""
MAX_TRIED = 50
"""Examples among which short ones are looked for."""

Sample = dict[str, str]
"""`source`, `output` and `reference`."""


class Validator:
    """Scores a model on the validation data; keeps the outputs of the last time."""

    def __init__(
        self, net: Net, task: Task, valid: Examples, sets: Sequence[EvalSet], *, tokens: int, search: Search,
        compute: Callable[[], AbstractContextManager[object]], engine: EngineName = "torch",
    ) -> None:  # fmt: skip
        self.net, self.task, self.valid, self.sets = net, task, valid, sets
        self.tokens, self.search, self.compute = tokens, search, compute
        self.engine, self.judge = engine, "torch"
        self.outputs: list[str] = []
        self._mapped: list[int] | None = None
        """The examples whose attention is shown; None: not chosen yet."""
        wanted = [name for name in task.metrics if METRICS[name].decodes]
        if wanted and not any(part.references for part in sets):
            raise SpecError(f"data.metrics: {wanted[0]} needs output texts, and this task writes none")
        if wanted:
            choose_engine(
                net, engine, net.device.type
            )  # one that cannot run the model is refused before anything is trained

    def scores(self, *, greedy: bool = True) -> dict[str, float]:
        """Loss per token and the task's scores. Outputs are decoded only if a score needs them."""
        self.net.eval()
        with self.compute():
            scores = evaluate_loss(self.task, self.net, self.valid, tokens=self.tokens, metrics=self.task.metrics)
        if unknown := [name for name in self.task.metrics if not METRICS[name].decodes and name not in scores]:
            raise SpecError(f"data.metrics: this task has no {unknown[0]}; available: {', '.join(scores)}")
        scores = {name: score for name, score in scores.items() if name in ALWAYS or name in self.task.metrics}
        decoded = {name: METRICS[name].compute for name in self.task.metrics if METRICS[name].decodes}
        if not decoded:
            return scores
        search = dataclasses.replace(self.search, **GREEDY) if greedy else self.search
        outputs, references, sources, apart = list[str](), list[str](), list[object](), dict[str, float]()
        engine = self._open_engine()
        for part in self.sets:
            found = require(self.task, Generates).run(engine, part.inputs, search, part.options)
            texts = [each[0].text if each else "" for each in found]
            outputs += texts
            references += part.references
            sources += part.inputs
            if len(self.sets) > 1:
                apart |= {
                    f"{name} of {part.name}": score(texts, part.references, part.inputs)
                    for name, score in decoded.items()
                }
        self.outputs = outputs
        return scores | {name: score(outputs, references, sources) for name, score in decoded.items()} | apart

    def _open_engine(self) -> Engine:
        """The engine of the recipe, with the weights as they are now; `judge` is its name."""
        chosen = choose_engine(self.net, self.engine, self.net.device.type)
        self.judge = chosen.name
        return open_engine(self.net, chosen)

    def decoding(self, *, greedy: bool = True) -> str:
        """Name the decoding of outputs, as `greedy` or `beam 5`; empty if no score needs outputs."""
        if not any(METRICS[name].decodes for name in self.task.metrics):
            return ""
        if self.search.sample and not greedy:
            return "sampled"
        return "greedy" if greedy or self.search.beam == 1 else f"beam {self.search.beam}"

    def samples(self, count: int = 12) -> list[Sample]:
        """Some outputs beside source and reference, always of the same inputs."""
        if not self.outputs:  # no score needed any
            return []
        pairs = [pair for part in self.sets for pair in zip(part.inputs, part.references, strict=True)]
        chosen = range(0, len(pairs), max(len(pairs) // count, 1))[:count]
        return [
            {"source": str(pairs[i][0]), "reference": pairs[i][1], "output": self.outputs[i]}
            for i in chosen
        ]  # fmt: skip

    def attention_maps(self, count: int = 2) -> list[Plain]:
        """Map what a few short examples attend to, always the same ones, in percent: the last layer, averaged over heads.

        None for a task that cannot be looked into, or for a model without attention weights.
        """
        if not supports(self.task, Inspects) or self._mapped == []:
            return []
        pairs = [(*pair, part.options) for part in self.sets for pair in zip(part.inputs, part.references, strict=True)]
        out: list[Plain] = []
        found: list[int] = []
        for i in self._mapped or range(min(len(pairs), MAX_TRIED)):
            text, reference, options = pairs[i]
            try:
                read = self.task.forward_pass(self.net, text, reference, options)  # type: ignore[arg-type]  # or an image
            except DataError:  # longer than the model reads
                continue
            if max(len(read.tokens), len(read.source_tokens)) > MAX_TOKENS:
                continue
            weights, source, target = read.attention(self.net)
            own = [name for name in weights if name.startswith("decoder.") == (self.net.spec.decoder is not None)]
            name = next((name for name in reversed(own) if ".cross" in name), own[-1] if own else "")
            columns = source if ".cross" in name else target
            if not own or weights[name].shape[1:] != (len(target), len(columns)):
                break
            percent = (100 * weights[name].float().mean(0)).round().int().tolist()
            out.append({"layer": name, "source": str(text), "rows": target, "columns": columns, "percent": percent})
            found.append(i)
            if len(out) == count:
                break
        self._mapped = found
        return out


def render_scores(scores: Mapping[str, float], decoding: str = "") -> str:
    """Scores on one line, with how outputs were decoded: `loss 2.1  bleu 6.063  (beam 5)`."""
    return "  ".join(f"{name} {value:.4g}" for name, value in scores.items()) + (f"  ({decoding})" if decoding else "")


def render_sample(sample: Sample) -> str:
    """One line for a terminal: `source → output (reference: …)`, each text cut to a bounded length."""
    source, output, reference = (shorten(sample[name]) for name in ("source", "output", "reference"))
    return f"  {source} → {output}" + ("  ✓" if output == reference else f"  (reference: {reference})")


def shorten(text: str, limit: int = MAX_SHOWN) -> str:
    """A text as one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
