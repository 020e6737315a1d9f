"""Look inside a model: one example as a page, text or JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch

from regard.api.trained_model import Model
from regard.errors import SpecError
from regard.files.storage import write_output
from regard.interpret.heads import HeadLink
from regard.interpret.interventions import Patched, list_places, patch
from regard.interpret.look_page import render_page
from regard.interpret.terminal_view import render_links, render_view
from regard.interpret.view import Picture, View, look_at
from regard.nn.blocks.patches import Patches
from regard.report.page import notebook_frame
from regard.serialization.model_folder import BEST, FINAL
from regard.tasks.common.capabilities import Classifies, ReadsImages, supports
from regard.tasks.common.forward_pass import ForwardPass

TOKENS = 4096
"""Tokens that a page shows at most."""


@dataclasses.dataclass(frozen=True)
class Look:
    """Result of a look: draw it with `render`, `html` or `save`."""

    views: list[View]
    link: tuple[str, str] | None = None
    links: Sequence[HeadLink] = ()
    chosen: tuple[tuple[str, int], ...] = ()
    patched: Patched | None = None

    def html(self) -> str:
        """A self-contained page."""
        links = None if self.link is None else (*self.link, self.links)
        return render_page(self.views, chosen=self.chosen, links=links, patched=self.patched)

    def save(self, path: str | Path) -> Path:
        """Write the page."""
        write_output(path, self.html())
        return Path(path)

    def _repr_html_(self) -> str:
        return notebook_frame(self.html(), scripts=True)

    def render(self) -> str:
        """A picture for the terminal: the strongest head of the link, the chosen head, or the mean of the last layer."""
        best = self.links[0] if self.links else None
        layer, head = (best.layer, best.head) if best else self.chosen[0] if self.chosen else (None, None)
        parts = [render_links(self.links, *self.link)] if self.link is not None else []
        parts += [render_view(view, layer=layer, head=head) for view in self.views]
        if self.patched is not None and not self.patched.places:
            parts.append("no difference beyond rounding: the second input changes no prediction")
        return "\n\n".join(parts)

    def plain(self) -> dict[str, object]:
        """For programs: what the page shows, with the weights of the chosen heads (all, if none is chosen)."""
        return {
            "views": [self._plain(view) for view in self.views],
            "links": [dataclasses.asdict(link) for link in self.links],
            "patched": None if self.patched is None else self.patched.plain(),
        }

    def _plain(self, view: View) -> dict[str, object]:
        wanted = {
            (layer.name, head) for layer in view.layers for head in range(len(layer.weights))
            if not self.chosen or (layer.name, head) in self.chosen
        }  # fmt: skip
        return {
            "text": view.text,
            "output": view.output,
            "source": view.source,
            "target": view.target,
            "heads": [dataclasses.asdict(card) for card in view.cards],
            "wanted": view.wanted,
            "attribution": view.plain_attribution(),
            "lens": view.plain_lens(),
            "omitted": [*view.omitted],
            "hops": [dataclasses.asdict(hop) for hop in view.hops],
            "weights": [
                {"layer": layer.name, "head": head, "weights": [[round(v, 6) for v in row] for row in weights.tolist()]}
                for layer in view.layers for head, weights in enumerate(layer.weights) if (layer.name, head) in wanted
            ],
        }  # fmt: skip


def look(
    model: Model | str | Path,
    text: object,
    output: str | None = None,
    *,
    against: object | None = None,
    link: tuple[str, str] | None = None,
    heads: Sequence[str] = (),
    device: str = "cpu",
) -> Look:
    """Look at what a model does with one text.

    output   what it should write; by default its own output
    against  a second text to compare with
    link     two words: heads are ranked by how much the first attends to the second
    heads    heads whose weights are exact on a page that cannot hold all, such as "encoder.blocks.0.mix.head.3"
    """
    from regard.api import load

    handle = model if isinstance(model, Model) else load(model, device=device)
    texts = [text] if against is None else [text, against]
    passes = [handle.forward_pass(each, output) for each in texts]
    for read in passes:
        if max(len(read.tokens), len(read.source_tokens)) > TOKENS:
            raise SpecError(f"the text has more than {TOKENS:,} tokens, which no page can show; look at a part of it")
    views = [_view(handle, each, read) for each, read in zip(texts, passes, strict=True)]
    chosen = tuple(_parse_head(views[0], name) for name in heads)
    links = [] if link is None else views[0].links(*link)
    return Look(views, link, links, chosen, _compare(handle, passes))


def name_model(handle: Model) -> str:
    """The name of its folder; of a model inside a run, that of the run."""
    return handle.path.parent.name if handle.path.name in (FINAL, BEST) else handle.path.name


def _view(handle: Model, text: object, read: ForwardPass) -> View:
    task = handle.task
    names: Sequence[str]
    if supports(task, Classifies):
        names = task.classes
    else:
        names = handle.tokenizer.tokens(range(handle.tokenizer.size))
    output = " ".join(names[i] for i in read.wanted[0][read.places].tolist()).replace("▁", " ").strip()
    return look_at(
        handle.net, read, text=str(text), output=output, title=name_model(handle), names=names,
        picture=_picture(handle, read),
    )  # fmt: skip


def _picture(handle: Model, read: ForwardPass) -> Picture | None:
    """The image as the model reads it, for a task of images."""
    embed, task = handle.net.spec.embed, handle.task
    if not supports(task, ReadsImages) or not isinstance(embed, Patches) or embed.channels not in (1, 3):
        return None
    mean, deviation = (torch.tensor(each).view(-1, 1, 1) for each in (task.mean, task.deviation))
    pixels = (read.ids[0].float().cpu() * deviation + mean) * 255
    rows, columns = (size // embed.patch for size in pixels.shape[1:])
    return Picture(pixels, rows, columns, int(embed.first))


def _compare(handle: Model, passes: Sequence[ForwardPass]) -> Patched | None:
    """Patching between two inputs, where they have equally many tokens and something is predicted."""
    if len(passes) < 2 or not passes[0].places:
        return None
    places = [
        place for place in list_places(handle.net, passes[0]) if place.count(".") == 2 or place.endswith(".embed")
    ]
    try:
        return patch(handle.net, passes[0], passes[1], places)
    except SpecError:
        return None


def _parse_head(view: View, name: str) -> tuple[str, int]:
    layer, dot, number = name.rpartition(".head.")
    found = view.layer(layer if dot else name)
    head = int(number) if dot and number.isdigit() else -1
    if not 0 <= head < len(found.weights):
        raise SpecError(f"a head is written LAYER.head.N with N from 0 to {len(found.weights) - 1}, got {name!r}")
    return found.name, head
