"""A view as one self-contained HTML page.

The page carries its data and one script, and allows nothing else: no network, no script but this one, which is named by its
hash. Text from the user or the model is set as text, never as markup. Weights are exact; if those of all heads would make the
page too large, only chosen heads are, the others have a thumbnail and the largest weights of each row, and the page says so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Sequence
from importlib import resources

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.interpret.heads import HeadLink
from regard.interpret.interventions import Patched
from regard.interpret.view import View
from regard.interpret.word_joining import join_labels, word_of_tokens
from regard.report.markup import Html, tag
from regard.report.page import page
from regard.report.png import encode_png

EXACT_BYTES = 2_500_000
"""Exact weights of all heads are included up to this size; more only for chosen heads."""
THUMBNAIL = 32
LARGEST = 6
"""Weights per row that are kept of a head that is not exact."""
CARD = ("entropy", "distance", "previous", "next", "same", "first")


def render_page(
    views: Sequence[View],
    *,
    chosen: Collection[tuple[str, int]] = (),
    links: tuple[str, str, Sequence[HeadLink]] | None = None,
    patched: Patched | None = None,
) -> str:
    """The page of one example, or of two that are compared."""
    data = {
        "views": [_plain(view, chosen, EXACT_BYTES // len(views)) for view in views],
        "links": None
        if links is None
        else {
            "query": links[0],
            "key": links[1],
            "heads": [
                {"layer": x.layer, "head": x.head, "weight": round(x.weight, 4), "rank": x.rank} for x in links[2]
            ],
        },
        "patched": None if patched is None else patched.plain(),
    }
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    stored = tag("script", Html(text), type="application/json", id="data")
    home = resources.files(__package__)
    noscript = tag("noscript", tag("p", "This page draws with a script of its own, which this browser does not run."))
    omitted = [tag("p", note) for view in views for note in view.omitted]
    return page(
        views[0].title, [], body=[tag("div", id="look"), *omitted, noscript, stored],
        style=home.joinpath("look.css").read_text(encoding="utf-8"),
        script=home.joinpath("look.js").read_text(encoding="utf-8"),
    )  # fmt: skip


def _plain(view: View, chosen: Collection[tuple[str, int]], room: int) -> dict[str, object]:
    whole = 4 * sum(layer.weights.numel() for layer in view.layers) <= room * 3 // 4  # base64 takes a third more
    picked = set(chosen) or (set() if whole else _strongest(view, room))
    owners = {side: word_of_tokens(view.labels(side)) for side in ("source", "target")}
    cards = {(card.layer, card.head): card for card in view.cards}
    layers = []
    for layer in view.layers:
        heads: list[dict[str, object]] = []
        for head, weights in enumerate(layer.weights):
            exact = whole or (layer.name, head) in picked
            card = cards.get((layer.name, head))
            numbers = None if card is None else [round(getattr(card, name), 4) for name in CARD]
            heads.append({"card": numbers, "exact": exact, **(_exact(weights) if exact else _summary(weights))})
        mean = layer.weights.mean(0)
        heads_mean = {"exact": whole, **(_exact(mean) if whole else _summary(mean))}
        layers.append({
            "name": layer.name, "title": layer.title, "queries": layer.queries, "keys": layer.keys,
            "shape": list(layer.weights.shape[1:]), "heads": heads, "mean": heads_mean,
            "columns": layer.columns, "rows": layer.rows,
            "buckets": None if layer.buckets is None else layer.buckets.tolist(),
        })  # fmt: skip
    return {
        "title": view.title,
        "text": view.text,
        "output": view.output,
        "labels": {"source": view.source, "target": view.target},
        "words": {side: {"owner": owner, "text": join_labels(view.labels(side), owner)} for side, owner in owners.items()},
        "layers": layers,
        "rollout": None if view.rollout is None else _exact(view.rollout.float()) if view.rollout.numel() < 1 << 17 else None,
        "lens": view.plain_lens(),
        "flow": None if view.flow is None
        else {"position": view.flow[0], "values": [round(v, 4) for v in view.flow[1].tolist()]},
        "picture": None if view.picture is None
        else {"source": f"data:image/png;base64,{base64.b64encode(encode_png(view.picture.pixels.numpy())).decode()}",
              "rows": view.picture.rows, "columns": view.picture.columns, "first": view.picture.first},
        "wanted": view.wanted,
        "attribution": view.plain_attribution(),
        "whole": whole,
    }  # fmt: skip


def _strongest(view: View, room: int) -> set[tuple[str, int]]:
    """The heads of lowest entropy, those with something to see: as many as there is room for, at least one."""
    count = max(1, room * 3 // 4 // max(4 * layer.weights[0].numel() for layer in view.layers))
    return {(card.layer, card.head) for card in sorted(view.cards, key=lambda card: card.entropy)[:count]}


def _exact(weights: Tensor) -> dict[str, object]:
    return {"weights": _encode(weights.numpy().astype("<f4"))}


def _summary(weights: Tensor) -> dict[str, object]:
    small = F.adaptive_max_pool2d(weights[None], (min(THUMBNAIL, weights.shape[0]), min(THUMBNAIL, weights.shape[1])))[
        0
    ]
    top = weights.topk(min(LARGEST, weights.shape[1]), -1)
    return {
        "thumbnail": _encode((small.clamp(0, 1) * 255).round().to(torch.uint8).numpy()),
        "thumbnail_shape": list(small.shape),
        "largest": _encode((top.values.clamp(0, 1) * 65535).round().numpy().astype("<u2")),
        "largest_at": _encode(top.indices.numpy().astype("<u2")),
        "largest_count": top.indices.shape[1],
    }


def _encode(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
