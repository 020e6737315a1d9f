"""Make the engine plan of a model, or say why there is none.

What the native engine computes is what this module can describe; the rest of the models run on torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from regard.engine.engine_plan import FORMAT
from regard.errors import SpecError
from regard.model.net import Net
from regard.nn.blocks.block import BlockLayer
from regard.nn.blocks.body import Body, StackBody
from regard.nn.blocks.embedding import Embedding, TokenEmbedding
from regard.nn.blocks.head import ClassHead, VectorHead, VocabHead
from regard.nn.blocks.wiring import Bare, Parallel, PostNorm, PreNorm, WiringSpec
from regard.nn.core.mask import AllOf, AnyOf, Causal, Everything, Rule, Tagged, Window
from regard.nn.layers.feedforward import ACTIVATIONS, FeedForwardLayer
from regard.nn.mixers.full import FullMixer
from regard.nn.mixers.local import LocalMixer
from regard.nn.positions.position import (
    ALiBiPosition,
    BucketedPosition,
    LearnedPosition,
    Position,
    RelativePosition,
    RotaryPosition,
    SinusoidalPosition,
    alibi_slopes,
)
from regard.spec import Plain

WIRINGS: dict[type[WiringSpec], str] = {PostNorm: "post", PreNorm: "pre", Parallel: "parallel", Bare: "bare"}
MAX_REACH = 1 << 16
"""Distances that a table of buckets may list."""


def describe_model(net: Net) -> Plain:
    """The plan of a model. Raises `SpecError` with the reason if the native engine cannot run it."""
    return _Describer({id(p): name for name, p in net.named_parameters()}).model(net)


def describe_encoder(net: Net) -> Plain:
    """The plan of a model that only reads, with its head. Raises `SpecError` if the native engine cannot run it."""
    return _Describer({id(p): name for name, p in net.named_parameters()}).encoder(net)


def describe_folder(net: Net) -> Plain:
    """The plan that lies in the folder of a model, whether it writes or only reads."""
    return describe_encoder(net) if net.decoder is None else describe_model(net)


def find_refusal(net: Net) -> str | None:
    """Return why the native engine cannot run a model; None if it can."""
    try:
        describe_model(net)
    except SpecError as error:
        return str(error)
    return None


@dataclasses.dataclass
class _Describer:
    names: dict[int, str]
    """Names of the parameters, as in the weights file."""
    positions: list[Plain] = dataclasses.field(default_factory=list)
    known: dict[int, int] = dataclasses.field(default_factory=dict)
    """The index of each position that was described: a stack's is shared by its layers."""

    def model(self, net: Net) -> Plain:
        if net.decoder is None:
            raise SpecError("the native engine writes text, and this model has no decoder")
        if type(net.head) is not VocabHead:
            raise SpecError(f"the native engine has no {type(net.head).__name__}")
        encoder = None if net.encoder is None else self.stack(net.encoder, "encoder")
        plan: Plain = {
            "format": FORMAT,
            "width": net.spec.width,
            "vocab": net.spec.embed.vocab,
            "source_vocab": 0 if encoder is None else (net.spec.source or net.spec.embed).vocab,
            "length": net.spec.length,
            "room": net.spec.room,
            "embed": self.embedding(net.embed, net.embed),
            "source": None if encoder is None else self.embedding(net.source or net.embed, net.embed),
            "encoder": encoder,
            "decoder": self.stack(net.decoder, "decoder"),
            "head": {
                "table": self.name(net.embed.weight if net.head.weight is None else net.head.weight),
                "bias": self.name(net.head.bias),
                "scale": net.head.scale,
            },
            "positions": self.positions,
        }
        _check_widths(net)
        return plan

    def encoder(self, net: Net) -> Plain:
        if net.encoder is None or net.decoder is not None:
            raise SpecError("only a model with an encoder and no decoder is described like this")
        _check_widths(net)
        embedding = self.embedding(net.embed, net.embed)
        return {
            "format": FORMAT,
            "width": net.spec.width,
            "vocab": net.spec.embed.vocab,
            "source_vocab": net.spec.embed.vocab,
            "length": net.spec.length,
            "room": net.spec.room,
            "embed": embedding,
            "source": embedding,
            "encoder": self.stack(net.encoder, "encoder"),
            "decoder": None,
            "head": self.pool_head(net.head),
            "positions": self.positions,
        }

    def pool_head(self, head: nn.Module | None) -> Plain:
        """A head of classes or of vectors."""
        if type(head) is not ClassHead and type(head) is not VectorHead:
            raise SpecError(f"the native engine has no {type(head).__name__} after an encoder")
        activation = next(name for name, function in ACTIVATIONS.items() if function is head.activation)
        out = {"pool": head.pool, "activation": activation, **self.linear("dense", head.dense)}
        return out | (self.linear("classes", head.classes) if isinstance(head, ClassHead) else {})

    def name(self, parameter: Tensor | None) -> str | None:
        return None if parameter is None else self.names[id(parameter)]

    def norm(self, norm: nn.Module | None) -> Plain | None:
        if norm is None:
            return None
        if isinstance(norm, nn.LayerNorm):
            return {"kind": "layer", "eps": norm.eps, "weight": self.name(norm.weight), "bias": self.name(norm.bias)}
        if isinstance(norm, nn.RMSNorm):
            eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
            return {"kind": "rms", "eps": eps, "weight": self.name(norm.weight), "bias": None}
        raise SpecError(f"the native engine has no norm {type(norm).__name__}")

    def embedding(self, part: Embedding, shared: Embedding) -> Plain:
        if type(part) is not TokenEmbedding:
            raise SpecError(f"the native engine reads tokens, and this model has a {type(part).__name__}")
        out: Plain = {
            "table": self.name(shared.weight if part.weight is None else part.weight),
            "scale": part.scale,
            "zero": part.zero,
            "position": "none",
            "segment": self.name(part.segment),
            "segments": 0 if part.segment is None else len(part.segment),
            "norm": self.norm(part.norm),
        }
        position = part.position
        if isinstance(position, LearnedPosition):
            return {**out, "position": "learned", "shift": position.shift, "places": self.name(position.weight)}
        if isinstance(position, SinusoidalPosition):
            return {**out, "position": position.layout}
        if position is not None and type(position) is not Position:
            raise SpecError(f"the native engine has no position {type(position).__name__}")
        return out

    def stack(self, body: Body, side: str) -> Plain:
        if type(body) is not StackBody or type(body.wiring) not in WIRINGS:
            kind = type(body.wiring if isinstance(body, StackBody) else body).__name__
            raise SpecError(f"the native engine has no {kind}, as in the {side}")
        if body.tags is not None:
            raise SpecError(f"the native engine has no tags, as in the {side}")
        return {
            "wiring": WIRINGS[type(body.wiring)],
            "blocks": [self.block(block, body, f"{side}.blocks.{i}") for i, block in enumerate(_blocks(body))],
            "norm": self.norm(body.norm),
        }

    def block(self, block: BlockLayer, body: StackBody, path: str) -> list[Plain]:
        has_norm, out = body.wiring.norms(block.roles), list[Plain]()
        for role, part in block.parts():
            norm = self.norm(block.norm(role)) if role in has_norm else None
            where = f"{path}.{role}"
            if type(part) is FeedForwardLayer:
                out.append({"role": role, "norm": norm, **self.feed(part)})
            elif type(part) is FullMixer or (type(part) is LocalMixer and not part.own):
                out.append({"role": role, "norm": norm, **self.attention(part, body.position, where)})
            else:
                raise SpecError(f"the native engine has no {type(part).__name__} ({where})")
        return out

    def linear(self, name: str, layer: nn.Module | None) -> Plain:
        if layer is None:
            return {}
        if type(layer) is not nn.Linear:
            raise SpecError(f"the native engine has no {type(layer).__name__}; merge adapters into the weights first")
        return {name: self.name(layer.weight), f"{name}_bias": self.name(layer.bias)}

    def feed(self, part: FeedForwardLayer) -> Plain:
        activation = next(name for name, function in ACTIVATIONS.items() if function is part.activation)
        maps = {**self.linear("up", part.up), **self.linear("gate", part.gate), **self.linear("down", part.down)}
        gated = part.gate is not None
        return {"width": part.up.out_features, "activation": activation, "gated": gated, **maps}

    def attention(self, part: FullMixer, stacks: Position | None, where: str) -> Plain:
        out: Plain = {
            "heads": part.heads,
            "kv_heads": part.kv_heads,
            "head_width": part.head_width,
            "scale": part.scale,
        }
        for name in ("q", "k", "v", "out"):
            out |= self.linear(name, getattr(part, name))
        out |= {"q_norm": self.norm(part.q_norm), "k_norm": self.norm(part.k_norm)}
        if part.cross:
            return out
        causal, window, dilation = _read_rule(part.rule, where)
        position = part.position or stacks
        index = None if position is None or type(position) is Position else self.position(position, where)
        return {**out, "causal": causal, "window": window, "dilation": dilation, "position": index}

    def position(self, position: Position, where: str) -> int:
        if id(position) not in self.known:
            self.positions.append(self._describe_position(position, where))
            self.known[id(position)] = len(self.positions) - 1
        return self.known[id(position)]

    def _describe_position(self, position: Position, where: str) -> Plain:
        if isinstance(position, RotaryPosition):
            i = torch.arange(0, position.turned, 2, dtype=torch.float64)
            rates = position.base ** (-i / position.turned)
            if position.rope_scaling is not None:
                rates = position.rope_scaling.scale_rates(rates, position.base)
            pairs = position.layout == "pairs"
            return {"kind": "rotary", "pairs": pairs, "factor": position.qk_factor, "rates": rates.tolist()}
        if isinstance(position, ALiBiPosition):
            return {"kind": "alibi", "slopes": alibi_slopes(position.slopes.shape[0])}
        if isinstance(position, BucketedPosition) and position.reach <= MAX_REACH:
            buckets = position.bucket(torch.arange(-position.reach, position.reach + 1)).tolist()
            return {
                "kind": "buckets",
                "reach": position.reach,
                "weight": self.name(position.weight),
                "buckets": buckets,
            }
        if isinstance(position, RelativePosition):
            keys, values = self.name(position.keys), self.name(position.values)
            return {"kind": "shaw", "reach": position.reach, "keys": keys, "values": values}
        raise SpecError(f"the native engine has no {type(position).__name__} ({where})")


def _check_widths(net: Net) -> None:
    """Refuse embeddings or layers of another width than the model's."""
    spec = net.spec
    embeddings = {each.leaves(spec.width) for each in (spec.embed, spec.source) if each is not None}
    if {*embeddings, spec.out_width} != {spec.width}:
        raise SpecError("the native engine has no stream that changes its width")


def _read_rule(rule: Rule, where: str) -> tuple[bool, int, int]:
    """A mask rule as (causal, window, dilation); a window of 0 is none."""
    causal, window, dilation = False, 0, 1
    for each in _flatten_rule(rule):
        if isinstance(each, Causal):
            causal = True
        elif isinstance(each, Window) and not window:
            window, dilation = each.reach, each.dilation
        elif not isinstance(each, Everything):
            raise SpecError(f"the native engine has no mask {type(each).__name__} ({where})")
    return causal, window, dilation


def _flatten_rule(rule: Rule) -> Iterator[Rule]:
    if isinstance(rule, AllOf):
        for each in rule.rules:
            yield from _flatten_rule(each)
    elif isinstance(rule, AnyOf) and any(isinstance(each, Tagged) for each in rule.rules) and len(rule.rules) == 2:
        yield from (each for each in rule.rules if not isinstance(each, Tagged))  # text that is decoded has no tags
    else:
        yield rule


def _blocks(body: StackBody) -> list[BlockLayer]:
    return list(body.blocks)  # type: ignore[arg-type]
