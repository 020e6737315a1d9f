"""Blocks, how they are wired, and the two ends of a model."""

from regard.nn.blocks import (
    body,
    dilated_convolutions,
    embedding,
    gated_convolutions,
    head,
    memory_hops,
    patches,
    recurrent_decoder,
    reversible,
    sentences,
    wiring,
)

__all__ = [
    "body",
    "dilated_convolutions",
    "embedding",
    "gated_convolutions",
    "head",
    "memory_hops",
    "patches",
    "recurrent_decoder",
    "reversible",
    "sentences",
    "wiring",
]
