"""The memory that a run needs, before anything is allocated.

The model is built without numbers (on torch's meta device), so its cost is that of the parts it really has. What cannot fit
into the free memory of the machine, or of the container, is refused with the setting that would help most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import nn

from regard.errors import SpecError
from regard.files.storage import format_bytes
from regard.machine import free_memory
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Head
from regard.serialization.load import build_outline
from regard.spec import Spec
from regard.tasks.common.task import Examples, Task
from regard.training.recipe import Recipe, Train
from regard.training.step.batch_size import find_longest

NUMBER = 4
"""Bytes of a float32."""
MAX_LAYERS = 1 << 20
"""Layers that are counted; a stack has its own limit."""


def check_model_memory(recipe: Recipe, task: Task, adapt: Callable[[Mapping[str, object]], ModelSpec]) -> None:
    """Refuse a model whose weights, gradients and optimizer state do not fit; `adapt` makes the model of other settings."""
    free = free_memory()
    if not free:
        return
    net = _outline(adapt(recipe.model))
    weights = _numbers(net) * NUMBER
    parts = {"weights": weights, "gradients": weights, "optimizer": recipe.train.optimizer.states * weights}
    parts |= {"moving average": weights} if recipe.train.ema is not None else {}
    if recipe.train.finetune is not None:  # few of them may be trained
        parts = {"weights": weights}
    needed = sum(parts.values())
    if needed <= free:
        return
    key, value = _find_key(recipe, task, adapt, weights // NUMBER)
    largest, size = max(((name, _numbers(part)) for name, part in net.named_children()), key=lambda found: found[1])
    raise SpecError(
        f"{key} is {value:,}: this model has {weights // NUMBER:,} parameters, most of them in `{largest}` ({size:,}), and "
        f"training takes {format_bytes(needed)} ({', '.join(f'{format_bytes(n)} for {what}' for what, n in parts.items())}); "
        f"{format_bytes(free)} are free on this machine; lower {key}"
    )


def check_batch_memory(net: Net, examples: Examples, train: Train) -> None:
    """Refuse batches whose activations do not fit: of every token, at least what each linear layer returns is kept."""
    free = free_memory()
    if not free or train.batch_tokens == "auto" or _recomputes(net.spec):
        return
    which, longest, corpus = find_longest(examples)
    tokens = max(min(int(train.batch_tokens), corpus), longest)
    layers = (part for child in net.children() if not isinstance(child, Head) for part in child.modules())
    numbers = sum(part.out_features for part in layers if isinstance(part, nn.Linear))
    needed = tokens * numbers * NUMBER
    if needed <= free:
        return
    most = free // (2 * numbers * NUMBER)
    if longest >= tokens:
        raise SpecError(
            f"example {which} has {longest:,} tokens, whose activations take more than {format_bytes(needed)}; "
            f"{format_bytes(free)} are free on this machine; shorten examples to {most:,} tokens"
        )
    raise SpecError(
        f"train.batch_tokens is {train.batch_tokens:,}: the activations of such a batch take more than "
        f"{format_bytes(needed)}; {format_bytes(free)} are free on this machine; lower it to {most:,} or set it to auto"
    )


@contextmanager
def explain_lack_of_memory() -> Iterator[None]:
    """Turn the errors of torch and Python about memory into one that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        raise SpecError(
            f"there is not enough memory for this run ({format_bytes(free_memory())} are free): lower train.batch_tokens or "
            "set it to auto, or lower model.width, model.depth or the length of examples"
        ) from error


def _find_key(
    recipe: Recipe, task: Task, adapt: Callable[[Mapping[str, object]], ModelSpec], parameters: int
) -> tuple[str, int]:
    """Return the setting whose half would save most parameters, by its name in a recipe."""
    facts = task.model_arguments()
    sizes = {**facts, **{key: value for key, value in recipe.model.items() if isinstance(value, int)}}
    saved = dict[str, int]()
    for key, value in sizes.items():
        if isinstance(value, bool) or value < 2:
            continue
        try:
            half = value // 2 if key != "width" else max(value // 2 // _heads(recipe), 1) * _heads(recipe)
            saved[key] = parameters - _numbers(_outline(adapt({**recipe.model, key: half})))
        except SpecError:  # a model that cannot be
            continue
    if not saved:
        return "model", parameters
    most = max(saved.values())
    key = max((name for name in saved if saved[name] > 0.9 * most), key=lambda name: sizes[name])
    return _setting(key, recipe, task.settings), int(sizes[key])


def _setting(key: str, recipe: Recipe, settings: Spec) -> str:
    """Return the full name of an argument of the model: the data decides what the recipe does not set."""
    if key in recipe.model:
        return f"model.{key}"
    homes = {"length": ("context", "max_length"), "vocab": ("tokenizer.vocab",), "image": ("side",)}
    known = [home for home in homes.get(key, ()) if hasattr(settings, home.partition(".")[0])]
    return f"data.{known[0]}" if known else f"model.{key}"


def _heads(recipe: Recipe) -> int:
    heads = recipe.model.get("heads", 1)
    return heads if isinstance(heads, int) and heads > 0 else 1


def _outline(spec: ModelSpec) -> Net:
    return build_outline(spec, layers=MAX_LAYERS, computed=None)


def _numbers(part: nn.Module) -> int:
    """Return the number of values in weights and buffers."""
    return sum(tensor.numel() for tensor in (*part.parameters(), *part.buffers()))


def _recomputes(spec: ModelSpec) -> bool:
    """True if activations are computed again for the backward pass instead of kept."""
    return any(
        getattr(part, "recompute", False) or getattr(part, "kind", "") == "reversible" for _, part in spec.walk()
    )
