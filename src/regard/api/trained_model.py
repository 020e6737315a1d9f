"""The `Model` handle: run, score, look inside, save."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, overload

from torch import Tensor

from regard.api.notes import Tell
from regard.api.run_texts import BATCH, SEARCH_OPTIONS, Long, TextRunner, select_options
from regard.data.cursor import Cursor
from regard.decode import Engine, Search
from regard.engine.choose_engine import EngineChoice, choose_engine, open_engine
from regard.engine.torch_engine import TorchEngine
from regard.errors import DataError, SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.model.tree import tree
from regard.registry import kind_of
from regard.report.heatmap import CELLS, heatmap
from regard.report.markup import tag
from regard.report.page import notebook_frame, page, pre
from regard.serialization.model_card import render_card
from regard.serialization.model_folder import write_model
from regard.tasks.common.capabilities import Aligns, Completes, Embeds, Generates, Inspects, Scores, require
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.task import Output, RunOptions, Task
from regard.tasks.common.text_frame import Pool
from regard.tasks.common.word_scores import Confidence
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.data.glossary import Glossary


@dataclasses.dataclass(frozen=True)
class Attention(Mapping[str, Tensor]):
    """Attention weights (h, n, m) by layer name, with the tokens on both sides."""

    weights: dict[str, Tensor]
    source: list[str]
    target: list[str]

    def __getitem__(self, name: str) -> Tensor:
        return self.weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def _repr_html_(self) -> str:
        """A map for notebooks: the last layer, averaged over heads; of cross-attention, if there is some."""
        name = next((name for name in reversed(self.weights) if ".cross" in name), [*self.weights, ""][-1])
        columns = self.source if ".cross" in name else self.target
        if not name or self.weights[name].shape[1:] != (len(self.target), len(columns)) or len(columns) > CELLS:
            return pre("\n".join(f"{name} {tuple(weights.shape)}" for name, weights in self.weights.items()))
        title = f"{name}, mean of {len(self.weights[name])} heads"
        drawn = heatmap(
            title, self.weights[name].mean(0).tolist(), rows=self.target, columns=columns, low=0.0, high=1.0
        )
        return notebook_frame(page("Attention", [], body=[drawn]))


class Model:
    """A trained model, ready for use.

    ```python
    model = regard.load("runs/dates")
    model("15. November 2026")                 # '2026-11-15'
    model.run(["15. November 2026", "1 May"])  # a list gives a list
    ```
    """

    def __init__(
        self,
        engine: Engine,
        task: Task,
        search: Search,
        path: Path,
        card: str = "",
        choice: EngineChoice = EngineChoice("torch", ""),
    ) -> None:
        self.engine, self.task, self.search, self.path, self.card, self.choice = (
            engine,
            task,
            search,
            path,
            card,
            choice,
        )

    @property
    def net(self) -> Net:
        """The torch module. Whoever takes it may change it: from then on the model runs on torch, with what is changed.

        `use_engine` chooses another engine for the weights as they are then.
        """
        net = self._read_net()
        if self.choice.name != "torch":
            self.engine, self.choice = (
                TorchEngine(net),
                EngineChoice("torch", "`model.net` was taken, and may be changed"),
            )
        return net

    def use_engine(self, name: str = "auto") -> EngineChoice:
        """Run on this engine from now on, with the weights as they are; returns which one that is, and why."""
        net = self._read_net()
        self.choice = choose_engine(net, name, net.device.type)
        self.engine = open_engine(net, self.choice)
        return self.choice

    def _read_net(self) -> Net:
        """The torch module, for a caller that does not change it."""
        return self.engine.nets[0]

    @property
    def spec(self) -> ModelSpec:
        """The spec that built the model."""
        return self._read_net().spec

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of what the model writes, or of what it reads if it writes no text."""
        if self.task.tokenizer is None:
            raise SpecError(f"{self.path} reads and writes no text, so it has no tokenizer")
        return self.task.tokenizer

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self._read_net().parameters())

    @property
    def options(self) -> list[str]:
        """The names of the options that `run` takes: the settings of `Search`, and those of the task."""
        own = (field.name for field in dataclasses.fields(require(self.task, Generates).Options))
        return sorted({*SEARCH_OPTIONS, *own})

    @overload
    def run(self, inputs: str, **options: object) -> str: ...  # type: ignore[overload-overlap]  # a str is a Sequence, too
    @overload
    def run(self, inputs: Sequence[object], **options: object) -> list[str]: ...
    def run(self, inputs: str | Sequence[object], **options: object) -> str | list[str]:
        """The best output: a text for a text, a list for a list.

        Options are those of `run_all`, of `Search` (`beam=5`, `sample=True`, …) and of the task. An empty text gives an
        empty output, and so does one of a list that cannot be read, such as the path of a damaged image: that is noted,
        and `run_all` says why. The command line gives the same outputs for the same options.
        """
        single = isinstance(inputs, str)
        found = self.run_all([inputs] if isinstance(inputs, str) else inputs, **options)  # type: ignore[arg-type]
        if single and found[0] and (fault := found[0][0].error) is not None:
            raise DataError(fault)
        texts = [each[0].text if each else "" for each in found]
        return texts[0] if single else texts

    __call__ = run

    def run_all(
        self,
        inputs: Sequence[object],
        *,
        others: Sequence[Model] = (),
        to: str | None = None,
        prefix: str | None = None,
        glossary: Glossary | Mapping[str, str] | str | Path | None = None,
        long: Long = "split",
        notify: Tell | None = None,
        batch: int = BATCH,
        **options: object,
    ) -> list[list[Output]]:
        """All `n_best` outputs of each input with their scores, best first; none for an empty input.

        An input that cannot be read has one output with an `error`; the others are not affected.

        others    models that join as an ensemble
        to        the target language of a many-to-many model
        prefix    how every output begins
        glossary  terms and how they must be translated: a mapping, a `Glossary`, or a file with a term, a tab and its
                  translation on each line
        long      a text longer than the model reads is split and its outputs are joined, or cut
        notify    called with notes such as "input 3 is longer than the model can read"; by default they are logged
        batch     number of inputs that are run together
        """
        if isinstance(inputs, str):
            raise SpecError("run_all takes a list of texts, got one text; write model.run_all([text])")
        runner = TextRunner(
            self, options, others=others, to=to, prefix=prefix, glossary=glossary, long=long, notify=notify
        )
        return runner.run(inputs, batch)

    def run_lazily(
        self,
        inputs: Iterable[object],
        *,
        others: Sequence[Model] = (),
        to: str | None = None,
        prefix: str | None = None,
        glossary: Glossary | Mapping[str, str] | str | Path | None = None,
        long: Long = "split",
        notify: Tell | None = None,
        batch: int = BATCH,
        **options: object,
    ) -> Iterator[list[tuple[object, list[Output]]]]:
        """Run any number of inputs like `run_all`; yield each batch of inputs with its outputs as soon as it is done."""
        runner = TextRunner(
            self, options, others=others, to=to, prefix=prefix, glossary=glossary, long=long, notify=notify
        )
        return runner.run_batches(inputs, batch)

    def stream(
        self,
        text: str,
        *,
        others: Sequence[Model] = (),
        to: str | None = None,
        prefix: str | None = None,
        long: Long = "split",
        notify: Tell | None = None,
        **options: object,
    ) -> Iterator[str]:
        """The output for one text in pieces, as they are generated. Together they are `run` with the same options.

        Only greedy search (`beam=1`) and sampling (`sample=True`) can stream.
        """
        runner = TextRunner(self, options, others=others, to=to, prefix=prefix, long=long, notify=notify)
        return runner.stream(text)

    def complete(self, before: str, after: str | None = None, **options: object) -> str:
        """Return what a model of code writes between two texts; after the first alone, the rest of a line.

        Options are those of `run`, and `lines`, the maximum number of lines. `Cursor.read("file.py:120:8")` has both texts
        at a place in a file.
        """
        require(self.task, Completes)
        return self.run([Cursor(before, after)], **options)[0]

    def own_options(self, options: Mapping[str, object], *, besides: Collection[str] = ()) -> RunOptions:
        """The options that the task itself takes. Names in `besides` are left out; any other name is an error."""
        return select_options(self.task, options, besides)

    def embed(self, texts: Sequence[str], *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        """A vector for each text (b, d), by an encoder model; `pool` is "first" or "mean".

        By default vectors have length one, so that their products are cosines; not with `unit=False`.
        """
        return require(self.task, Embeds).embed(self.engine, texts, pool=pool, unit=unit)

    def score(self, inputs: Sequence[str], outputs: Sequence[str], **options: object) -> list[float]:
        """log P(output | input) of each pair."""
        return require(self.task, Scores).score(self.engine, inputs, outputs, self.own_options(options))

    def confidence(self, inputs: Sequence[str], outputs: Sequence[str], **options: object) -> list[Confidence]:
        """The probability of each word of each output, given those before it: `.words`, `.probs`, and `.end` after them."""
        return require(self.task, Aligns).confidence(self.engine, inputs, outputs, self.own_options(options))

    def align(
        self, inputs: Sequence[str], outputs: Sequence[str], *, layer: int | None = None, **options: object
    ) -> list[list[tuple[int, int]]]:
        """For each word of each output the input word with the most attention: (input word, output word), from 0.

        `layer` is a decoder layer, counted from 0 or from the end; by default the last but one of three or more.
        """
        return require(self.task, Aligns).align(self.engine, inputs, outputs, self.own_options(options), layer=layer)

    def attention(self, text: str, output: str | None = None, **options: object) -> Attention:
        """Attention weights for one text and its output (by default the model's own), by layer, with token labels."""
        return Attention(*self.forward_pass(text, output, **options).attention(self._read_net()))

    def forward_pass(self, text: object, output: str | None = None, **options: object) -> ForwardPass:
        """The forward pass over one text and its output (by default the model's own), to look inside."""
        task = require(self.task, Inspects)
        output = self.run([text], **options)[0] if output is None else output
        own = self.own_options(options, besides=SEARCH_OPTIONS)
        return task.forward_pass(self._read_net(), text, output, own)  # type: ignore[arg-type]  # an image, for a task of images

    def to(self, device: str) -> Model:
        """Move the model to a device; returns the model."""
        self.net.to(device)
        return self

    def save(self, path: str | Path) -> Path:
        """Write the model folder, which `load` and the command line open; returns its path."""
        name, place, net = kind_of(type(self.task)), Path(path), self._read_net()
        card = self.card or render_card(place.name, {}, {}, {"task": name, "parameters": f"{self.parameters:,}"})
        weights = {key: tensor.detach().cpu() for key, tensor in net.state_dict().items()}
        write_model(place, task=self.task, name=name, net=net, search=self.search, weights=weights, card=card)
        return place

    def __repr__(self) -> str:
        return f"Model({str(self.path)!r}, {self.parameters:,} parameters)"

    def _repr_html_(self) -> str:
        """A table for notebooks, with the parts of the model and its card to unfold."""
        rows = {
            "task": kind_of(type(self.task)),
            "parameters": f"{self.parameters:,}",
            "width": str(self.spec.width),
            "vocabulary": "" if self.task.tokenizer is None else f"{self.task.tokenizer.size:,} tokens",
            "scores": ", ".join(self.task.metrics),
            "folder": str(self.path),
        }
        cells = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows.items() if v)
        unfolded = {"parts": tree(self._read_net()), "card": self.card}
        more = [tag("details", tag("summary", title), pre(text)) for title, text in unfolded.items() if text]
        return f"<table><caption>regard.Model</caption>{cells}</table>{''.join(more)}"
