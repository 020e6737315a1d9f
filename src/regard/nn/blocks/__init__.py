"""Blocks, how they are wired, and the two ends of a model."""

from regard.nn.blocks import (
    body,
    cgru_loop,
    columns,
    dilated_convolutions,
    embedding,
    gated_convolutions,
    head,
    memory_hops,
    output_tape,
    patches,
    pointer,
    recurrent_decoder,
    reversible,
    sentences,
    vectors,
    wiring,
)

__all__ = [
    "body",
    "cgru_loop",
    "columns",
    "dilated_convolutions",
    "embedding",
    "gated_convolutions",
    "head",
    "memory_hops",
    "output_tape",
    "patches",
    "pointer",
    "recurrent_decoder",
    "reversible",
    "sentences",
    "vectors",
    "wiring",
]
