"""Everything that is shown of one example.

A view is computed once and then drawn: as a page, as text in a terminal, or as JSON.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from regard.errors import SpecError
from regard.interpret.attribution import occlude
from regard.interpret.heads import HeadCard, HeadLink, describe_heads, rank_links
from regard.interpret.logit_lens import LayerReading, read_layers
from regard.interpret.rollout import flow, rollout
from regard.interpret.word_joining import find_word
from regard.model.net import Net
from regard.nn.blocks.body import Layers
from regard.nn.core.context import Tape
from regard.nn.core.state import State
from regard.nn.mixers.xl_memory import XLState
from regard.tasks.common.forward_pass import ForwardPass

Side = Literal["source", "target"]
HOP = re.compile(r"\.hops\.\d+\.weights$")
"""The weights of one of the hops over a story."""
EXPLAINED = 24
"""Predictions whose attribution is shown."""
OCCLUDED = 1 << 18
"""Tokens that are read for the attribution of one text: it takes a pass over all tokens without each of them."""
FLOW = 150_000
"""The flow is computed up to this number of layers × tokens³."""


@dataclasses.dataclass(frozen=True)
class AttentionLayer:
    """The attention weights (h, n, m) of a layer, and what its rows and columns are."""

    name: str
    weights: Tensor
    queries: Side
    keys: Side | Literal["slots"]
    buckets: Tensor | None = None
    """(h, rounds, n) of hashed attention: tokens see only those of their own bucket."""
    columns: list[str] | None = None
    """Labels of the columns if these are not just tokens of the text: slots, or what is in a memory."""
    rows: list[str] | None = None
    """Labels of the rows if these are not tokens: the hops over a story."""

    @property
    def title(self) -> str:
        side, *rest = self.name.split(".")
        kind = {"cross": "cross-attention", "hops": "hops"}.get(rest[-1], "self-attention")
        return f"{side} layer {int(rest[1]) + 1}, {kind}" if rest[0] == "blocks" else f"{side}, {kind}"


@dataclasses.dataclass(frozen=True)
class Hop:
    """Sentence at which a hop over a story looks most."""

    number: int
    sentence: str
    weight: float


@dataclasses.dataclass(frozen=True)
class Picture:
    """Input of a vision model: pixels (3 or 1, height, width) from 0 to 255, divided into rows and columns of patches."""

    pixels: Tensor
    rows: int
    columns: int
    first: int
    """Tokens before the first patch."""


@dataclasses.dataclass(frozen=True)
class View:
    """Attention, cards, rollout, lens and attribution of one example."""

    title: str
    text: str
    output: str
    source: list[str]
    """Labels of what is read by an encoder-decoder's encoder; otherwise the same as `target`."""
    target: list[str]
    layers: list[AttentionLayer]
    cards: list[HeadCard]
    rollout: Tensor | None
    """(n, n) of the stack that reads the text, if its layers are all self-attention over the same tokens."""
    flow: tuple[int, Tensor] | None
    """A position of that stack, and the flow (n,) from it to each token; None for long texts, where it takes too long."""
    lens: list[LayerReading]
    lens_labels: list[list[str]]
    """Predictions that the layers would make, as text."""
    wanted: list[str]
    """Text that should be predicted."""
    attribution: Tensor | None
    """(predictions, tokens read) by occlusion: how much log P of a prediction falls without a token."""
    picture: Picture | None = None
    omitted: Sequence[str] = ()
    """Sentences on what is left out, because it takes too long for a text of this length."""

    def labels(self, side: str) -> list[str]:
        return self.source if side == "source" else self.target

    @property
    def hops(self) -> list[Hop]:
        """The sentence that each hop over a story looks at most; empty for other models."""
        found = [layer for layer in self.layers if layer.rows is not None]
        return [
            Hop(i + 1, layer.columns[int(row.argmax())], float(row.max()))
            for layer in found
            for i, row in enumerate(layer.weights[0])
            if layer.columns
        ]

    def plain_lens(self) -> list[dict[str, object]]:
        """Return what each layer would say, for programs: best guesses, their probabilities, and those of what is wanted."""
        return [
            {
                "place": each.place,
                "best": best,
                "p": [round(v, 4) for v in each.best_log_prob.exp().tolist()],
                "wanted": [round(v, 4) for v in each.wanted_log_prob.exp().tolist()],
            }
            for each, best in zip(self.lens, self.lens_labels, strict=True)
        ]

    def plain_attribution(self) -> list[list[float]] | None:
        """Return how much log P of each prediction falls without each token, for programs."""
        found = self.attribution
        return None if found is None else [[round(v, 4) for v in row] for row in found.tolist()]

    def layer(self, name: str) -> AttentionLayer:
        for each in self.layers:
            if name in (each.name, each.title):
                return each
        raise SpecError(
            f"there is no attention layer {name!r}; there are {', '.join(each.name for each in self.layers)}"
        )

    def links(self, query: str, key: str) -> list[HeadLink]:
        """All heads by how much one word attends to another."""
        found, missing = [], None
        for side in {(layer.queries, layer.keys) for layer in self.layers if layer.keys != "slots"}:
            try:
                rows, columns = (find_word(self.labels(s), word) for s, word in zip(side, (query, key), strict=True))
            except SpecError as error:
                missing = error
                continue
            own = {layer.name: layer.weights for layer in self.layers if (layer.queries, layer.keys) == side}
            found += rank_links(own, rows, columns)
        if not found:
            raise missing or SpecError("this model has no attention between tokens to look for links in")
        return sorted(found, key=lambda link: -link.weight)


@torch.no_grad()
def look_at(
    net: Net,
    read: ForwardPass,
    *,
    text: str,
    output: str,
    title: str,
    names: Mapping[int, str] | Sequence[str],
    picture: Picture | None = None,
) -> View:
    """Compute the view of one example; `names` are the labels of what the model predicts."""
    tape = Tape("*.weights", "*.slots", "*.buckets")
    read.run(net, tape)
    buckets = {
        name.removesuffix(".buckets"): tape.kept.pop(name) for name in list(tape.kept) if name.endswith("buckets")
    }
    both = read.source is not None
    layers = _join_hops(tape, read)
    remembered = _count_slots(read.read_before(net)) if read.before else {}
    for name, weights in tape.kept.items():
        kind = name.rpartition(".")[2]
        place = name.removesuffix(f".{kind}")
        decoder = place.startswith("decoder.")
        queries: Side = "target" if decoder or not both else "source"
        keys: Side | Literal["slots"] = "source" if ".cross" in place and both else queries
        columns = [f"slot {j + 1}" for j in range(weights.shape[3])] if kind == "slots" else None
        if decoder and weights.shape[3] > len(read.tokens) and place in remembered:
            columns = _label_memory(weights.shape[3], remembered[place], read)
        hashed = buckets[place][0].cpu() if place in buckets else None
        exact = weights[0].float().cpu()
        layers.append(AttentionLayer(place, exact, queries, "slots" if columns else keys, hashed, columns))
    if not layers:
        raise SpecError("no layer of this model has attention weights to show; `regard show` lists its mixers")
    own = {layer.name: layer.weights for layer in layers if layer.queries == layer.keys}
    first = next(iter(layers)).name.partition(".")[0]
    stack = [w for name, w in own.items() if name.startswith(f"{first}.") and w.shape[1] == w.shape[2]]
    readings = _read(net, read)
    return View(
        title, text, output, list(read.source_tokens or read.tokens), list(read.tokens), layers,
        describe_heads([own]) if own else [], rollout(stack) if stack else None, _flow(stack, read),
        readings, [[names[i] for i in each.best.tolist()] for each in readings],
        [names[i] for i in read.wanted[0][read.places].tolist()], _attribute(net, read), picture, _list_omitted(read, stack),
    )  # fmt: skip


def _join_hops(tape: Tape, read: ForwardPass) -> list[AttentionLayer]:
    """The hops over a story (MemN2N) as one map of hops by sentences, the oldest first; taken off the tape."""
    found: dict[str, list[Tensor]] = {}
    for name in [name for name in tape.kept if HOP.search(name)]:
        found.setdefault(HOP.sub(".hops", name), []).append(tape.kept.pop(name)[0, 0, 0])  # the question's row
    sentences = list(read.tokens[:0:-1])  # after the question come the sentences, from the newest backwards
    return [
        AttentionLayer(
            name, torch.stack(rows)[None, :, 1:].flip(-1).float().cpu(), "target", "slots", columns=sentences,
            rows=[f"hop {i + 1}" for i in range(len(rows))],
        )
        for name, rows in found.items()
    ]  # fmt: skip


def _count_slots(state: State) -> dict[str, int]:
    """The number of compressed slots in the memory of each layer."""
    blocks = state.blocks if isinstance(state, Layers) else ()
    return {
        f"decoder.blocks.{i}.mix": mix.slots if isinstance(mix, XLState) else 0
        for i, block in enumerate(blocks)
        if (mix := block.get("mix")) is not None
    }


def _label_memory(columns: int, slots: int, read: ForwardPass) -> list[str]:
    """Slots, the recent ones of the earlier tokens, and the tokens themselves."""
    recent = columns - slots - len(read.tokens)
    earlier = [f"{label} (memory)" for label in read.before_tokens[len(read.before_tokens) - recent :]]
    return [*(f"slot {k + 1}" for k in range(slots)), *earlier, *read.tokens]


def _flow(stack: Sequence[Tensor], read: ForwardPass) -> tuple[int, Tensor] | None:
    """The flow from the position of the first prediction, or from the last of a source."""
    n = stack[0].shape[1] if stack else 0
    if not stack or len(stack) * n**3 > FLOW:
        return None
    position = read.places[0] if read.source is None and read.places else n - 1
    return position, flow(stack, position)


def _read(net: Net, read: ForwardPass) -> list[LayerReading]:
    """The lens, where there is something to predict and a stack to read."""
    try:
        return read_layers(net, read)
    except SpecError:
        return []


def _count_occluded(read: ForwardPass) -> int:
    """The number of tokens that are read to take away each token by itself."""
    lengths = [len(read.tokens), len(read.source_tokens)]
    return sum(lengths) ** 2


def _attribute(net: Net, read: ForwardPass) -> Tensor | None:
    if not read.places or _count_occluded(read) > OCCLUDED:
        return None
    rows = occlude(net, read, range(min(len(read.places), EXPLAINED)))
    return torch.stack([row.source if read.source is not None else row.tokens for row in rows])


def _list_omitted(read: ForwardPass, stack: Sequence[Tensor]) -> list[str]:
    """Say what takes too long for a text of this length."""
    out, n = [], sum((len(read.tokens), len(read.source_tokens)))
    if read.places and _count_occluded(read) > OCCLUDED:
        out.append(
            f"what each prediction would be without a token is not computed: that is {n:,} passes over {n:,} tokens, and "
            f"the limit is {math.isqrt(OCCLUDED)} tokens"
        )
    if stack and len(stack) * stack[0].shape[1] ** 3 > FLOW:
        out.append(f"attention flow is not computed: it takes too long for {stack[0].shape[1]:,} tokens")
    return out
