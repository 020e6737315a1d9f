"""Fast single-token decoder steps, equal to `Net.decode`.

A step of a small model spends its time between operators, so this path uses as few operators as torch allows: the stream is a
matrix (rows, d), the three projections of self-attention are one product, weights are stored in the layout that is fastest for
thin products, and attention with one query per row is two products and a softmax over the heads of all rows at once. Masks
are built once for all layers.

    x ─ qkv ─┬─ q (rows·h, 1, e) ─ · kᵀ ─ softmax ─ · v ─ out ─ + x
             └─ k, v ─▶ the state's buffers, time first

It supports plain stacks of full attention and feed-forward layers in evaluation mode without autograd. For anything else
(another mixer, a position bias, tags, adapters, hooks, a tape) `build_fast_decoder` returns None and `Net.decode` runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from regard.model.net import Net
from regard.nn.attention.attend import fold
from regard.nn.attention.plan import Needs, plan
from regard.nn.blocks.block import BlockLayer
from regard.nn.blocks.body import Layers, StackBody
from regard.nn.blocks.head import VocabHead
from regard.nn.blocks.wiring import PostNorm, PreNorm
from regard.nn.core.context import Memory
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Rule
from regard.nn.core.state import KeyValues, State
from regard.nn.layers.feedforward import FeedForwardLayer
from regard.nn.mixers.full import FullMixer
from regard.nn.positions.position import Position

TensorFunction = Callable[[Tensor], Tensor]
T = TypeVar("T")
MAPS: dict[type[nn.Module], tuple[str, ...]] = {
    FullMixer: ("q", "k", "v", "out"),
    FeedForwardLayer: ("up", "gate", "down"),
}
"""The supported layers, and their linear maps, which must be plain `nn.Linear`; `gate` may be missing."""


class FastDecoder:
    """The decoder of a net with its weights laid out for single-token steps."""

    def __init__(self, net: Net, body: StackBody) -> None:
        self.embed, self.after = net.embed, type(body.wiring) is PostNorm
        self.layers = [
            [(role, _convert(part, body.position), _norm(block.norm(role))) for role, part in block.parts()]
            for block in _blocks(body)
        ]
        self.norm = None if body.norm is None else _norm(body.norm)
        assert isinstance(net.head, VocabHead)
        self.head, table = net.head, net.embed.weight if net.head.weight is None else net.head.weight
        assert table is not None
        self.table = table.detach().t().contiguous()

    def step(self, tokens: Tensor, at: Coords, memory: Memory | None, state: Layers) -> Tensor:
        """Read tokens (rows, 1) at coordinates `at`, after those in `state`; returns the stream (rows, d)."""
        x: Tensor = self.embed(tokens, at).squeeze(1)
        now = StepCache(at, memory)
        for parts, states in zip(self.layers, state.blocks, strict=True):
            for role, part, norm in parts:
                if self.after:
                    x = norm(part(x, now, states.get(role)).add_(x))
                else:
                    x = part(norm(x), now, states.get(role)).add_(x)
        return x if self.norm is None else self.norm(x)

    def allocate(self, rows: int) -> Tensor:
        """A buffer for `log_probs` of at most this many rows."""
        return self.table.new_empty(rows * self.table.shape[1])

    def fits(self, buffer: Tensor, rows: int) -> bool:
        """True if a buffer has space for this many rows."""
        return buffer.numel() >= rows * self.table.shape[1]

    def log_probs(self, x: Tensor, buffer: Tensor) -> Tensor:
        """Equal to `compute_log_probs` of a stream (rows, d), written into `buffer` to avoid a large allocation per step."""
        rows, v = x.shape[0], self.table.shape[1]
        out = torch.mm(self.head.read(x), self.table, out=buffer[: rows * v].view(rows, v))
        if self.head.bias is not None:
            out += self.head.bias
        return torch.log_softmax(out, -1, out=out)


class StepCache:
    """Values that all layers share in one step: coordinates, masks, rotary tables."""

    def __init__(self, at: Coords, memory: Memory | None) -> None:
        self.at, self.memory = at, memory
        self._made: dict[object, object] = {}

    def once(self, key: object, make: Callable[[], T]) -> T:
        """Return what `make` returns, computed once per key."""
        if key not in self._made:
            self._made[key] = make()
        return cast("T", self._made[key])

    def mask(self, rule: Rule, keys: Coords, rows: int, groups: int, dtype: torch.dtype) -> Tensor | None:
        """Return what is added to scores (rows·groups, queries, m), or None if nothing is masked."""

        def make() -> Tensor | None:
            added = plan(rule, self.at, keys, Needs(dtype=dtype)).additive_mask(dtype)  # (rows | 1, 1, 1, m)
            return None if added is None else added.expand(rows, groups, 1, -1).reshape(rows * groups, 1, -1)

        return self.once((rule, keys, groups), make)


@dataclasses.dataclass(frozen=True)
class FusedLinear:
    """x·W + b with W (in, out); several linear maps of one input are fused into one."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def fuse(cls, *maps: nn.Linear, first_scale: float = 1.0) -> FusedLinear:
        """Fuse maps; `first_scale` scales the first of them."""
        scales = [first_scale] + [1.0] * (len(maps) - 1)
        weights, biases = ([getattr(m, name) for m in maps] for name in ("weight", "bias"))
        return cls(
            _concatenate(weights, scales).t().contiguous(), None if biases[0] is None else _concatenate(biases, scales)
        )

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)


class FastSelfAttention:
    """Self-attention with one query per row."""

    def __init__(self, mixer: FullMixer, position: Position | None) -> None:
        self.mixer, self.position = mixer, mixer.position or position
        self.read = FusedLinear.fuse(mixer.q, mixer.k, mixer.v, first_scale=mixer.scale)
        self.out = FusedLinear.fuse(mixer.out)
        self.heads, self.groups, self.e = mixer.heads, mixer.kv_heads, mixer.head_width

    def __call__(self, x: Tensor, now: StepCache, state: State | None) -> Tensor:
        assert isinstance(state, KeyValues)
        rows, g, e = x.shape[0], self.groups, self.e
        each = self.read(x).view(rows, -1, e)
        q, k, v = each.narrow(1, 0, self.heads), each.narrow(1, self.heads, g), each.narrow(1, self.heads + g, g)
        if self.position is not None:
            position = self.position
            table = now.once((position, "table"), lambda: position.table(now.at))
            q, k = (position.rotate(t.unsqueeze(2), table).squeeze(2) for t in (q, k))
        before = state.at
        at = now.once(("after", before), lambda: before.extend(now.at))
        k, v = state.push(k, v, at)
        mask = now.mask(self.mixer.rule, at, rows, g, x.dtype)
        out = _attend(q.reshape(rows * g, -1, e), k.flatten(0, 1), v.flatten(0, 1), mask)
        return self.out(out.view(rows, -1))


class FastCrossAttention:
    """Cross-attention with one query per row; the hypotheses of a sentence share its keys."""

    def __init__(self, mixer: FullMixer) -> None:
        self.mixer, self.read, self.out = (
            mixer,
            FusedLinear.fuse(mixer.q, first_scale=mixer.scale),
            FusedLinear.fuse(mixer.out),
        )

    def __call__(self, x: Tensor, now: StepCache, state: State | None) -> Tensor:
        mixer, memory, rows = self.mixer, now.memory, x.shape[0]
        assert memory is not None
        k, v = mixer.project_memory(memory, state)
        sentences, g, _, e = k.shape
        q = self.read(x)
        if rows != sentences:
            q = fold(q.view(rows, g, -1, e), sentences)
        mask = now.mask(mixer.rule, memory.at, sentences, g, x.dtype)
        out = _attend(q.reshape(sentences * g, -1, e), k.flatten(0, 1), v.flatten(0, 1), mask)
        if rows != sentences:
            out = out.view(sentences, g, rows // sentences, -1).transpose(1, 2)
        return self.out(out.reshape(rows, -1))


class FastFeedForward:
    """The feed-forward sublayer."""

    def __init__(self, layer: FeedForwardLayer) -> None:
        self.up, self.down, self.activation = FusedLinear.fuse(layer.up), FusedLinear.fuse(layer.down), layer.activation
        self.gate = None if layer.gate is None else FusedLinear.fuse(layer.gate)

    def __call__(self, x: Tensor, now: StepCache, state: State | None) -> Tensor:
        y = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        return self.down(y)


def build_fast_decoder(net: object) -> FastDecoder | None:
    """A fast decoder with the weights that a net has now; None if the net is not supported, or if somebody watches it."""
    if not isinstance(net, Net) or net.training or net.tape is not None:
        return None
    body = net.decoder
    if not isinstance(body, StackBody) or not _is_supported(body) or type(net.head) is not VocabHead:
        return None
    return None if any(_has_hooks(part) for part in (body, net.head)) else FastDecoder(net, body)


def _is_supported(body: StackBody) -> bool:
    """True if every layer has a fast version."""
    parts = [part for block in _blocks(body) for _, part in block.parts()]
    return (
        type(body) is StackBody
        and type(body.wiring) in (PostNorm, PreNorm)
        and all(type(part) in MAPS for part in parts)
        and body.tags is None
        and all(type(layer) is nn.Linear for part in parts for layer in _list_maps(part))
        and all(_has_plain_scores(part, body) for part in parts if isinstance(part, FullMixer))
    )


def _has_hooks(module: nn.Module) -> bool:
    """True if hooks listen to what a part computes."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def _list_maps(part: nn.Module) -> list[nn.Module]:
    """The linear maps of a supported layer."""
    return [layer for name in MAPS[type(part)] if (layer := getattr(part, name)) is not None]


def _has_plain_scores(mixer: FullMixer, body: StackBody) -> bool:
    """True if no position changes its scores, and its queries and keys are not normalized."""
    position = None if mixer.cross else mixer.position or body.position
    return mixer.q_norm is None and (position is None or position.acts <= {"rotate"})


def _convert(part: nn.Module, position: Position | None) -> FastSelfAttention | FastCrossAttention | FastFeedForward:
    if isinstance(part, FeedForwardLayer):
        return FastFeedForward(part)
    assert isinstance(part, FullMixer)
    return FastCrossAttention(part) if part.cross else FastSelfAttention(part, position)


def _concatenate(tensors: list[Tensor], scales: list[float]) -> Tensor:
    return torch.cat([t.detach() * scale for t, scale in zip(tensors, scales, strict=True)])


def _norm(norm: nn.Module) -> TensorFunction:
    """A norm as a plain function."""
    if isinstance(norm, nn.LayerNorm):  # ours casts under autocast, where the next map casts by itself
        shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    return norm


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled q (r, n, e) over k, v (r, m, e); `mask` (r, 1, m) is added to the scores."""
    scores = torch.bmm(q, k.transpose(1, 2)) if mask is None else torch.baddbmm(mask, q, k.transpose(1, 2))
    return torch.bmm(scores.softmax(-1), v)


def _blocks(body: StackBody) -> list[BlockLayer]:
    return list(body.blocks)  # type: ignore[arg-type]
