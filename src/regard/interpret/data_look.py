"""Behavior of a model on a data set, as a page, text or JSON.

faithfulness   do explanations name the tokens that the predictions rest on? (`faithfulness`)
worths         what is each head or sublayer worth? (`interventions.ablate`)
heads          where does each head look, on average, and which words does it link? (`heads`)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.files.storage import write_output
from regard.interpret.faithfulness import SHARES, Faithfulness
from regard.interpret.heads import HeadCard, WordPair
from regard.interpret.interventions import Worth
from regard.metrics.bootstrap import Interval
from regard.report.heatmap import heatmap
from regard.report.markup import Html, tag
from regard.report.page import Section, notebook_frame, page
from regard.report.table import Table

NAMES = {
    "gradient_x_input": "gradient × input",
    "integrated_gradients": "integrated gradients",
    "occlusion": "occlusion",
    "attention": "attention, last layer",
    "attention_rollout": "attention rollout",
    "random": "random",
}
FAITHFUL = (
    "Each explanation ranks the tokens that a prediction rests on. Comprehensiveness: how much the probability of the model's "
    "own output falls when the highest-ranked tokens are replaced by padding (higher is better). Sufficiency: how much it "
    "falls when only they are left (lower is better). "
    f"Both are means over {', '.join(f'{share:.0%}' for share in SHARES)} of the tokens. "
    "Correlation: Kendall's τ with the effect of taking away each token by itself, which is what occlusion measures."
)
WORTH = (
    "How much log P per prediction of the reference falls when the output of a part is zero, and when it is its mean over "
    "these examples, which takes away only what the part says about each one; below 0, the model is better without it."
)
CARDS = (
    "Means over the tokens of all examples: entropy in bits, distance in tokens, shares of the weight, and the words that "
    "a head links most."
)


@dataclasses.dataclass(frozen=True)
class DescribedHead:
    """A head on a corpus: its card, if it is self-attention, and the words it links most."""

    layer: str
    head: int
    card: HeadCard | None
    pairs: Sequence[WordPair]


@dataclasses.dataclass(frozen=True)
class DataLook:
    """Measurements on a data set: draw them with `render`, `html` or `save`."""

    title: str
    data: str
    examples: int
    faithfulness: Mapping[str, Faithfulness] = dataclasses.field(default_factory=dict)
    worths: Sequence[Worth] = ()
    heads: Sequence[DescribedHead] = ()

    def render(self) -> str:
        """Tables for the terminal."""
        parts = []
        for text, table, notes in self._tables():
            parts.append("\n".join([text, "", table.markdown().rstrip(), *([""] if notes else []), *notes]))
        return "\n\n".join([f"{self.title} on {self._scope()}", *parts])

    def html(self) -> str:
        """A self-contained page."""
        titles = [
            *(["Are explanations faithful?"] if self.faithfulness else []),
            *(["What is each part worth?"] if self.worths else []),
            *(["What does each head look at?"] if self.heads else []),
        ]
        sections = []
        for title, (text, table, notes) in zip(titles, self._tables(), strict=True):
            figure = self._draw_worths() if text == WORTH else Html()
            sections.append(Section(title, (tag("p", text), figure, table.html(), *(tag("p", note) for note in notes))))
        return page(self.title, sections, lead=[tag("p", f"On {self._scope()}.", class_="lead")])

    def save(self, path: str | Path) -> Path:
        """Write the page."""
        write_output(path, self.html())
        return Path(path)

    def _repr_html_(self) -> str:
        return notebook_frame(self.html())

    def plain(self) -> dict[str, object]:
        """For programs."""
        return {
            "data": self.data,
            "examples": self.examples,
            "faithfulness": {name: dataclasses.asdict(found) for name, found in self.faithfulness.items()},
            "worths": [dataclasses.asdict(worth) for worth in self.worths],
            "heads": [dataclasses.asdict(head) for head in self.heads],
        }

    def _scope(self) -> str:
        return f"{self.examples:,} examples of {self.data}; intervals are 95 % over examples"

    def _tables(self) -> list[tuple[str, Table, list[str]]]:
        """List what is explained above each table, the table, and notes below it."""
        out = []
        if self.faithfulness:
            out.append((FAITHFUL, self._faithful_table(), self._faithful_notes()))
        if self.worths:
            rows = tuple((each.place, render_interval(each.zero), render_interval(each.mean)) for each in self.worths)
            out.append((WORTH, Table(("without", "log P falls by (zero)", "log P falls by (mean)"), rows), []))
        if self.heads:
            out.append((CARDS, Table.of([_card_row(each) for each in self.heads]), []))
        return out

    def _faithful_table(self) -> Table:
        head = ("explanation", "comprehensiveness", "sufficiency", "correlation", "more comprehensive than random by")
        rows = tuple(
            (
                NAMES.get(name, name),
                render_interval(found.comprehensiveness),
                render_interval(found.sufficiency),
                render_interval(found.correlation),
                None if found.gain is None or name == "random" else render_interval(found.gain),
            )
            for name, found in self.faithfulness.items()
        )
        return Table(head, rows)

    def _faithful_notes(self) -> list[str]:
        weak = [NAMES.get(n, n) for n, f in self.faithfulness.items() if n != "random" and not f.beats_random]
        if "random" not in self.faithfulness:
            return []
        if not weak:
            return ["Every explanation is more comprehensive than a random one here."]
        return [f"Not shown to be better than a random explanation here: {', '.join(weak)}."]

    def _draw_worths(self) -> Html:
        """Heads as a map of layers by heads, if they are heads."""
        found = {
            (layer, int(number)): worth.mean.score
            for worth in self.worths
            for layer, dot, number in [worth.place.rpartition(".head.")]
            if dot and number.isdigit()
        }
        if len(found) < len(self.worths):
            return Html()
        rows, columns = list(dict.fromkeys(layer for layer, _ in found)), range(max(head for _, head in found) + 1)
        matrix = [[found.get((row, column), float("nan")) for column in columns] for row in rows]
        return heatmap(
            "Fall of log P with the mean of a head", matrix, rows=rows, columns=[str(c) for c in columns], low=0.0
        )


def render_interval(found: Interval) -> str:
    """A score with its interval, for people."""
    return f"{found.score:.3f} ({found.low:.3f} to {found.high:.3f})"


def _card_row(each: DescribedHead) -> dict[str, str | float | None]:
    card = each.card
    names = ("entropy", "distance", "previous", "next", "same", "first")
    pairs = ", ".join(f"{pair.query} → {pair.key} {pair.weight:.2f}" for pair in each.pairs)
    return {
        "head": f"{each.layer}.head.{each.head}",
        **{name: None if card is None else round(getattr(card, name), 2) for name in names},
        "words it links most (mean weight)": pairs.replace("▁", ""),
    }
