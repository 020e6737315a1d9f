"""Blocks, how they are wired, and the two ends of a model."""

from regard.nn.blocks import body, embedding, head, patches, recurrent_decoder, reversible, wiring

__all__ = ["body", "embedding", "head", "patches", "recurrent_decoder", "reversible", "wiring"]
