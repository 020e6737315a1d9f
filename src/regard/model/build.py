"""From spec to module: one builder for encoder-decoder, encoder-only and decoder-only, which refuses what parts cannot do."""

from __future__ import annotations

import torch

from regard.errors import SpecError
from regard.model.init import initialise
from regard.model.model import Net
from regard.model.spec import ModelSpec
from regard.nn.body import BodySpec
from regard.nn.mixer import MixerSpec, Site


def build(spec: ModelSpec, seed: int | None = None) -> Net:
    """Check the spec, make the module and initialise it; every refusal is in one error."""
    faults = refusals(spec)
    if faults:
        raise SpecError("; ".join(faults))
    if seed is None:
        net = Net(spec)
        initialise(net, spec.init)
        return net
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(spec)


def refusals(spec: ModelSpec) -> list[str]:
    """Everything the spec asks of a part that the part cannot do."""
    out = []
    for name in ("encoder", "decoder"):
        body: BodySpec | None = getattr(spec, name)
        if body is None:
            continue
        if name == "decoder" and not body.causal:
            out.append("a decoder writes from left to right; set decoder.causal")
        site = Site(name, spec.width, spec.length, causal=body.causal)
        for i, block in enumerate(body.layers()):
            for role in block.roles:
                part = getattr(block, role)
                if isinstance(part, MixerSpec):
                    out += part.refusals(site.at(f"blocks.{i}.{role}", role=role))
            if block.cross is not None and (name == "encoder" or spec.encoder is None):
                out.append(f"{name}.blocks.{i}.cross attends to an encoder, and there is none before it")
        if name == "decoder" and spec.encoder is not None and all(b.cross is None for b in body.layers()):
            out.append("the decoder never looks at the encoder; give a block a `cross` mixer or drop the encoder")
    return list(dict.fromkeys(out))
