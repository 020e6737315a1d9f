"""Take one part at a time out of a recipe.

Each part is there for a reason, which is named; the study measures what is lost without it. The rows of head counts and of
key widths are those of Table 3 (A, B) of "Attention Is All You Need".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from regard.errors import SpecError
from regard.model.model_spec import ModelSpec
from regard.nn.mixers.softmax import SoftmaxAttention
from regard.nn.positions.position import Sinusoidal
from regard.studies.compare import Comparer, CompareResult
from regard.studies.grid import Grid
from regard.studies.methods import NamedRecipe, Terms
from regard.studies.model_parts import Changes, list_embeddings, list_mixers, list_stacks
from regard.studies.preparation import Preparation, model_of
from regard.studies.study_options import StudyOptions
from regard.training.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class Ablation:
    """One ablation: what the part is for, and the settings that remove it; none if the recipe has no such part."""

    name: str
    why: str
    changes: Callable[[ModelSpec, Recipe], Changes]


def _attentions(spec: ModelSpec) -> list[tuple[str, SoftmaxAttention]]:
    """The softmax attentions of the model, by path."""
    return [(path, mixer) for path, mixer in list_mixers(spec) if isinstance(mixer, SoftmaxAttention)]


def _wiring(kind: str) -> Callable[[ModelSpec, Recipe], Changes]:
    return lambda spec, recipe: {f"{path}.wiring": {"kind": kind} for path, _, _ in list_stacks(spec)}


def _heads(count: int) -> Callable[[ModelSpec, Recipe], Changes]:
    def changes(spec: ModelSpec, recipe: Recipe) -> Changes:
        found = _attentions(spec)
        if any(spec.width % count or mixer.heads == count for _, mixer in found):
            return {}
        return {f"{path}.heads": count for path, _ in found}

    return changes


def _key_width(divisor: int) -> Callable[[ModelSpec, Recipe], Changes]:
    def changes(spec: ModelSpec, recipe: Recipe) -> Changes:
        widths = {path: (mixer.head_width or spec.width // mixer.heads) // divisor for path, mixer in _attentions(spec)}
        return {f"{path}.head_width": width for path, width in widths.items()} if all(widths.values()) else {}

    return changes


def _no_positions(spec: ModelSpec, recipe: Recipe) -> Changes:
    out: Changes = {f"{path}.position": None for path, part in list_embeddings(spec) if part.position is not None}
    return out | {f"{path}.position": None for path, body, _ in list_stacks(spec) if body.position is not None}


def _learned(spec: ModelSpec, recipe: Recipe) -> Changes:
    own = [path for path, part in list_embeddings(spec) if isinstance(part.position, Sinusoidal)]
    return {f"{path}.position": {"kind": "learned"} for path in own}


def _no_warmup(spec: ModelSpec, recipe: Recipe) -> Changes:
    return {"train.schedule.warmup": 1} if getattr(recipe.train.schedule, "warmup", 0) > 1 else {}


def _no_smoothing(spec: ModelSpec, recipe: Recipe) -> Changes:
    return {"train.label_smoothing": 0.0} if recipe.train.label_smoothing else {}


def _no_feed(spec: ModelSpec, recipe: Recipe) -> Changes:
    return {f"{path}.block.feed": None for path, _, block in list_stacks(spec) if block.feed is not None}


def _no_dropout(spec: ModelSpec, recipe: Recipe) -> Changes:
    out: Changes = {f"{path}.dropout": 0.0 for path, part in list_embeddings(spec) if part.dropout}
    out |= {f"{path}.wiring.dropout": 0.0 for path, body, _ in list_stacks(spec) if body.wiring.dropout}
    return out | {f"{path}.dropout": 0.0 for path, mixer in _attentions(spec) if mixer.dropout}


ABLATIONS = (
    Ablation("no residual", "gradients reach every layer, and a token keeps its identity", _wiring("norm_only")),
    Ablation("no norm", "activations keep one scale, so deep models train", _wiring("residual_only")),
    Ablation(
        "no √d_k",
        "scores keep variance one, so the softmax does not saturate",
        lambda spec, recipe: {f"{path}.scale": 1.0 for path, _ in _attentions(spec)},
    ),
    Ablation("one head", "several heads look at several things at once", _heads(1)),
    Ablation("2 heads", "Table 3 (A): the number of heads, at the same total width", _heads(2)),
    Ablation("8 heads", "Table 3 (A): the number of heads, at the same total width", _heads(8)),
    Ablation("16 heads", "Table 3 (A): the number of heads, at the same total width", _heads(16)),
    Ablation("d_k / 2", "Table 3 (B): the width of keys, queries and values of a head", _key_width(2)),
    Ablation("d_k / 4", "Table 3 (B): the width of keys, queries and values of a head", _key_width(4)),
    Ablation("no positions", "attention alone does not know the order of tokens", _no_positions),
    Ablation("learned positions", "Table 3 (E): sinusoids need no training and have no last position", _learned),
    Ablation("no warm-up", "early gradients are large where norms follow the sum", _no_warmup),
    Ablation("no smoothing", "label smoothing costs likelihood and gains accuracy", _no_smoothing),
    Ablation("no feed-forward", "attention only averages; this layer computes on each position", _no_feed),
    Ablation("no dropout", "regularization for small data", _no_dropout),
)


def list_ablations(recipe: str, options: StudyOptions, only: Sequence[str] = ()) -> tuple[list[NamedRecipe], list[str]]:
    """The recipe and its ablations, and notes on ablations that do not apply."""
    if unknown := [name for name in only if name not in {each.name for each in ABLATIONS}]:
        raise SpecError(f"no ablation {unknown[0]!r}; there is {', '.join(each.name for each in ABLATIONS)}")
    whole, data = Preparation().complete(options.request(recipe))
    spec = model_of(whole, data)
    entries, notes = [NamedRecipe("whole", recipe, options.set)], list[str]()
    for each in ABLATIONS:
        if only and each.name not in only:
            continue
        if changes := each.changes(spec, whole):
            entries.append(NamedRecipe(each.name, recipe, {**options.set, **changes}))
            notes.append(f"{each.name}: {each.why}")
        else:
            notes.append(f"{each.name}: does not apply to this recipe")
    return entries, notes


def run(
    grid: Grid,
    recipes: Sequence[str],
    options: StudyOptions,
    *,
    only: Sequence[str] = (),
    metric: str | None = None,
    delta: float | None = None,
) -> CompareResult:
    """Take one part at a time out of a recipe, `only` these by name; every part is compared with the whole recipe."""
    if len(recipes) != 1:
        raise SpecError(f"an ablation is of one recipe, got {len(recipes)}")
    entries, notes = list_ablations(recipes[0], options, only)
    terms = Terms(options.seeds_for(), metric=metric, delta=delta)
    comparer = Comparer(grid, terms, options, "ablate")
    kept, refused = comparer.split_refused(entries)
    found = comparer.run(kept)
    notes += [f"{name}: refused: {why}" for name, why in refused.items()]
    return dataclasses.replace(found, notes=[*found.notes, *notes])
