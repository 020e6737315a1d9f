"""A model as a readable tree: shapes, costs, plans."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from regard.model.cost import cost
from regard.model.init import describe_rules
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.body import Body, BodySpec, Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.context import Tape
from regard.registry import kind_of
from regard.spec import Spec


def tree(net: Net, n: int = 32, beside: str = "") -> str:
    """Render a model as text; identical blocks are drawn once. Costs are for `n` tokens on either side, or for one image.

    `beside` is printed next to the number of parameters, for comparison.
    """
    n = _tokens(net, n)
    spec, whole = net.spec, cost(net, n)
    lines = [
        f"{_count(whole.parameters)} parameters ({whole.parameters:,}{beside})   width {spec.width}   "
        f"length {spec.length}   init {spec.init}",
        f"{_count(whole.flops)}FLOP per token forward at length {n}, three times that in training; "
        f"{_count(4 * whole.state)}B of float32 state per token",
        describe_rules(net),
        "",
    ]
    plans = attention_plans(net, n)
    for name, part in net.named_children():
        lines += _part(name, part, getattr(spec, name), n, plans)
    return "\n".join(lines)


def summary(net: Net, n: int = 32) -> dict[str, object]:
    """Return the same facts as plain data."""
    n = _tokens(net, n)
    whole = cost(net, n)
    parts = {name: dataclasses.asdict(cost(part, n)) for name, part in net.named_children()}
    facts = {"parameters": whole.parameters, "flops": whole.flops, "state": whole.state, "length": n}
    return facts | {"parts": parts, "plans": attention_plans(net, n), "spec": net.spec.plain()}


def _tokens(net: Net, n: int) -> int:
    """Return the length of a row: `n`, or the number of patches of an image."""
    return net.embed.sample(n)[1].n


def attention_plans(net: Net, n: int) -> dict[str, str]:
    """Find out how attention over `n` tokens runs in training, by running a row with a tape."""
    n = min(n, net.spec.room or n)
    if net.device.type != "meta":
        return _plans(net, n)
    shallow = _make_shallow(net.spec)
    try:
        with torch.device("meta"):
            found = _plans(shallow.build(), n)
    except (NotImplementedError, RuntimeError):  # a mixer that reads tags or buckets cannot run without numbers
        found = _plans(_make_thin(shallow).build(), n)
    for path, part in _equal_stacks(net.spec):
        first = f"{path}.blocks.0."
        own = {name.removeprefix(first): plan for name, plan in found.items() if name.startswith(first)}
        found |= {f"{path}.blocks.{i}.{name}": plan for i in range(part.depth or 0) for name, plan in own.items()}
    return found


def _plans(net: Net, n: int) -> dict[str, str]:
    tape, was = Tape("*.nothing"), net.training
    both = net.encoder is not None and net.decoder is not None
    with torch.random.fork_rng(devices=[]):
        net.train()
        try:
            net(*net.embed.sample(n), (net.source or net.embed).sample(n) if both else None, tape)
        finally:
            net.train(was)
    return tape.plans


def _make_shallow(spec: ModelSpec) -> ModelSpec:
    """Shrink stacks of equal blocks to one: all of them run alike."""
    for path, _ in _equal_stacks(spec):
        spec = spec.replace(f"{path}.depth", 1)
    return spec


def _equal_stacks(spec: ModelSpec) -> list[tuple[str, Stack]]:
    """The stacks that repeat one block, and where they are."""
    return [(path, part) for path, part in spec.walk() if isinstance(part, Stack) and part.depth is not None]


def _make_thin(spec: ModelSpec) -> ModelSpec:
    """Shrink the vocabulary, so that a model is cheap to build."""
    for path, part in list(spec.walk()):
        if isinstance(part, Tokens):
            spec = spec.replace(f"{path}.vocab", 8)
    return spec


def _part(name: str, part: nn.Module, spec: Spec | None, n: int, plans: dict[str, str]) -> list[str]:
    own = cost(part, n)
    if not isinstance(part, Body) or not isinstance(spec, BodySpec):
        about = "" if spec is None else words(spec)
        return [f"{name:<10}{_count(own.parameters):>9}  {about}", *_weights(part)]
    lines = [f"{name:<10}{_count(own.parameters):>9}  {words(spec)}"]
    blocks, layers = list(getattr(part, "blocks", [])), spec.layers()
    alike: list[object] = [*layers] or [[(k, p.shape) for k, p in block.named_parameters()] for block in blocks]
    start = 0
    while start < len(blocks):
        end = next((i for i in range(start, len(blocks)) if alike[i] != alike[start]), len(blocks))
        label = f"blocks.{start}" if end == start + 1 else f"blocks.{start}–{end - 1}"
        each = cost(blocks[start], n)
        lines.append(f"  {label:<14}{_count(each.parameters):>9} each   {_count(each.flops)}FLOP per token")
        for role in layers[start].roles if layers else ():
            sub = getattr(blocks[start], role)
            lines.append(f"    {role:<6}{_count(cost(sub, n).parameters):>9}  {words(getattr(layers[start], role))}")
            lines += [f"  {line}" for line in _weights(sub)]
            plan = plans.get(f"{name}.blocks.{start}.{role}")
            lines += [f"            in training: {plan}"] if plan else []
        start = end
    for own_name, own_part in part.named_children():
        if own_name != "blocks" and (count := cost(own_part, n).parameters):
            lines += [f"  {own_name:<14}{_count(count):>9}", *_weights(own_part)]
    return lines


def words(spec: Spec) -> str:
    """Render a spec in one line: its kind and the fields that differ from their default."""
    said = [kind_of(type(spec))]
    for field in dataclasses.fields(spec):  # type: ignore[arg-type]
        value = getattr(spec, field.name)
        if field.name in ("block", "blocks") or value == field.default:
            continue
        said.append(f"{field.name}={words(value) if isinstance(value, Spec) else value}")
    return said[0] if len(said) == 1 else f"{said[0]}({', '.join(said[1:])})"


def _weights(part: nn.Module) -> list[str]:
    shapes: dict[tuple[int, ...], list[str]] = {}
    for name, parameter in part.named_parameters():
        if parameter.dim() > 1:
            shapes.setdefault(tuple(parameter.shape), []).append(name.removesuffix(".weight"))
    return [f"          {' × '.join(map(str, shape))}: {', '.join(names)}" for shape, names in shapes.items()]


def _count(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g} {letter}"
    return f"{value:.4g} "
