"""The parts of a model that studies change, by path."""

from __future__ import annotations

from collections.abc import Iterator

from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.mixer import MixerSpec

Changes = dict[str, object]
"""Settings by path, as `--set` takes them."""


def list_stacks(spec: ModelSpec) -> Iterator[tuple[str, Stack, Block]]:
    """The uniform stacks: the path of each, the stack, and its block."""
    for side in ("encoder", "decoder"):
        if isinstance(body := getattr(spec, side), Stack) and body.block is not None:
            yield f"model.{side}", body, body.block


def list_mixers(spec: ModelSpec) -> Iterator[tuple[str, MixerSpec]]:
    """The mixers of the uniform stacks, those that read the encoder included."""
    for path, _, block in list_stacks(spec):
        for role, mixer in block.mixers:
            yield f"{path}.block.{role}", mixer


def list_embeddings(spec: ModelSpec) -> Iterator[tuple[str, Tokens]]:
    """The embeddings of tokens."""
    for name in ("embed", "source"):
        if isinstance(part := getattr(spec, name), Tokens):
            yield f"model.{name}", part
