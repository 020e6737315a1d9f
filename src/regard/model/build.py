"""From spec to module: one builder for encoder-decoder, encoder-only and decoder-only, which refuses what parts cannot do."""

from __future__ import annotations

import torch

from regard.errors import SpecError
from regard.model.init import initialise
from regard.model.model import Net
from regard.model.spec import ModelSpec
from regard.nn.mixer import Site


def build(spec: ModelSpec, seed: int | None = None) -> Net:
    """Check the spec, make the module and initialise it; every refusal is in one error."""
    faults = refusals(spec)
    if faults:
        raise SpecError(*faults)
    if seed is None:
        net = Net(spec)
        initialise(net, spec.init)
        return net
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(spec)


def refusals(spec: ModelSpec) -> list[str]:
    """Everything the spec asks of a part that the part cannot do."""
    out = [] if spec.encoder is None else spec.encoder.refusals(Site("encoder", spec.width, spec.length))
    if spec.decoder is not None:
        out += spec.decoder.refusals(Site("decoder", spec.width, spec.length, memory=spec.memory_width))
        if not spec.decoder.causal:
            out.append("a decoder writes from left to right; set decoder.causal")
        if spec.encoder is not None and not spec.decoder.reads_memory:
            out.append("the decoder never looks at the encoder; give a block a `cross` mixer or drop the encoder")
    out += spec.embed.refusals("embed", None)
    out += [] if spec.source is None else spec.source.refusals("source", spec.embed.vocab)
    for head in (spec.head, spec.beside):
        out += [] if head is None else head.refusals(spec.out_width, spec.width if spec.embed.vocab else 0)
    return list(dict.fromkeys(out))
