"""Make models of different kinds equally large.

A model is resized in its width (or depth) and then, because widths go in steps of whole heads, in the width of its feed-forward
layers (or of its embedding, where it has no such layers), until its parameters or FLOPs are within 1 % of the target. What
cannot be matched is refused with the nearest size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

from regard.errors import SpecError
from regard.families.expand import DEFAULT, family_arguments
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.mixer import MixerSpec
from regard.nn.layers.feedforward import FeedForward
from regard.studies.preparation import change, cost_of
from regard.training.recipe import Recipe

Quantity = Literal["parameters", "flops"]
Dial = Literal["width", "depth"]
TOLERANCE = 0.01
"""Maximum distance of a matched model from its target."""
MAX_FACTOR = 16
"""Maximum factor by which a model may become wider or deeper."""

Build = Callable[[Recipe], ModelSpec]


@dataclasses.dataclass(frozen=True)
class ModelSize:
    """Width, depth and feed-forward width of a model (or embedding width), and what they cost."""

    width: int
    depth: int
    hidden: int | None
    cost: float

    def changes(self, other: ModelSize) -> str:
        """Tell what differs from another size, as `width 128 → 96`."""
        names = ("width", "depth", "hidden")
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return ", ".join(f"{name} {old} → {new}" for name, old, new in pairs if old != new)


@dataclasses.dataclass(frozen=True)
class Matched:
    """A resized recipe: its size before and after, and how far it is from the target."""

    recipe: Recipe
    before: ModelSize
    after: ModelSize
    error: float


def measure(spec: ModelSpec, length: int, quantity: Quantity) -> float:
    """The parameters of a model, or its FLOPs per token in training (three times a forward pass)."""
    found = cost_of(spec, length)
    return float(found.parameters) if quantity == "parameters" else 3 * found.flops


def match_size(
    recipe: Recipe, build: Build, target: float, *, quantity: Quantity, length: int, dial: Dial = "width"
) -> Matched:
    """Resize a recipe's model to within 1 % of the target, with its proportions kept as far as possible."""
    sizer = _Sizer(recipe, build, quantity, length)
    before = sizer.start
    if abs(before.cost / target - 1) <= TOLERANCE:
        return Matched(recipe, before, before, before.cost / target - 1)
    step, first = (sizer.step, before.width) if dial == "width" else (1, before.depth)
    low, high = 1, max(1, MAX_FACTOR * first // step)
    while low < high:  # the smallest that is large enough
        middle = (low + high) // 2
        low, high = (low, middle) if sizer.proportional(dial, middle * step).cost >= target else (middle + 1, high)
    tried = [sizer.fine(dial, k * step, target) for k in (low - 2, low - 1, low, low + 1) if k >= 1]
    close = [size for size in tried if abs(size.cost / target - 1) <= TOLERANCE]
    if not close:
        best = min(tried, key=lambda size: abs(size.cost / target - 1))
        raise SpecError(
            f"the model cannot be resized to within {TOLERANCE:.0%} of {target:,.0f} {quantity}: the nearest is "
            f"{before.changes(best) or 'as it is'} with {best.cost:,.0f} ({best.cost / target - 1:+.1%}); "
            f"use --resize {'depth' if dial == 'width' else 'width'} or another --match"
        )
    after = min(close, key=lambda size: (sizer.distortion(size), abs(size.cost / target - 1)))
    return Matched(sizer.resize(after), before, after, after.cost / target - 1)


class _Sizer:
    """Builds a recipe's model in other sizes."""

    def __init__(self, recipe: Recipe, build: Build, quantity: Quantity, length: int) -> None:
        self.recipe, self.build, self.quantity, self.length = recipe, build, quantity, length
        spec = build(recipe)
        parts = list(spec.walk())
        self.feeds = [path for path, part in parts if isinstance(part, FeedForward)]
        heads = [getattr(part, "heads", 1) for _, part in parts if isinstance(part, MixerSpec)]
        self.step = 2 * math.lcm(*heads) if heads else 2
        """Widths are divided by all numbers of heads, and by two for rotary positions."""
        hidden = next((part.width for _, part in parts if isinstance(part, FeedForward)), None)
        self.fine_name, self.fine_paths = "hidden", [f"{path}.width" for path in self.feeds]
        if hidden is None and isinstance(spec.embed, Tokens) and spec.embed.width is not None:
            hidden, self.fine_name, self.fine_paths = spec.embed.width, "embedding", ["embed.width"]
        depth = next((part.depth for _, part in parts if hasattr(part, "depth") and part.depth), 1)
        self.start = ModelSize(spec.width, depth, hidden, measure(spec, length, quantity))

    def resize(self, size: ModelSize) -> Recipe:
        """The recipe with another size, by the arguments of its family where it has them."""
        model = self.recipe.model
        known = set() if "spec" in model else family_arguments(str(model.get("family", DEFAULT)))
        changes: dict[str, object] = {}
        if size.width != self.start.width:
            changes["model.width"] = size.width
        if size.depth != self.start.depth:
            changes |= self._setting("depth", known, [f"{side}.depth" for side in self._sides()], size.depth)
        if size.hidden is not None and (size.hidden != self.start.hidden or "model.width" in changes):
            changes |= self._setting(self.fine_name, known, self.fine_paths, size.hidden)
        return change(self.recipe, changes)

    def proportional(self, dial: Dial, value: int) -> ModelSize:
        """The size with another width or depth, and a feed-forward layer in proportion to the width."""
        start = self.start
        if dial == "depth":
            return self._measured(start.width, value, start.hidden)
        hidden = None if start.hidden is None else max(1, round(start.hidden * value / start.width))
        return self._measured(value, start.depth, hidden)

    def fine(self, dial: Dial, value: int, target: float) -> ModelSize:
        """The size with this width or depth whose feed-forward width comes closest to the target."""
        size = self.proportional(dial, value)
        if size.hidden is None:
            return size
        more = self._measured(size.width, size.depth, 2 * size.hidden)
        each = max((more.cost - size.cost) / size.hidden, 1e-9)  # the cost is linear in this width
        wanted = max(1, math.floor(size.hidden + (target - size.cost) / each))
        tried = [self._measured(size.width, size.depth, hidden) for hidden in (wanted, wanted + 1)]
        return min(tried, key=lambda each: abs(each.cost / target - 1))

    def distortion(self, size: ModelSize) -> float:
        """Distance of the proportions from those of the recipe."""
        if size.hidden is None or self.start.hidden is None:
            return 0.0
        return abs(math.log(size.hidden / size.width) - math.log(self.start.hidden / self.start.width))

    def _measured(self, width: int, depth: int, hidden: int | None) -> ModelSize:
        size = ModelSize(width, depth, hidden, 0.0)
        return dataclasses.replace(size, cost=measure(self.build(self.resize(size)), self.length, self.quantity))

    def _setting(self, name: str, known: set[str], paths: list[str], value: int) -> dict[str, object]:
        """A setting by the family's argument (and the decoder's own, where the recipe has one), or by the parts' paths."""
        other = f"decoder_{name}"
        named = [name, *([other] if other in known and other in self.recipe.model else [])] if name in known else paths
        return {f"model.{each}": value for each in named}

    def _sides(self) -> list[str]:
        spec = self.build(self.recipe)
        return [side for side in ("encoder", "decoder") if getattr(spec, side) is not None]
