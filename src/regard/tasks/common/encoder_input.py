"""Texts as an encoder reads them.

They are framed by the special tokens of their template, truncated to what fits, and batched by length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import IGNORE, PaddedTokens, pad_rows
from regard.data.ragged import Ragged
from regard.decode import Engine
from regard.decode.generation import batch_by_length
from regard.errors import CheckpointError, DamagedModel, SpecError
from regard.files.folder import TOKENIZER
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import pool_stream
from regard.nn.core.coords import Coords
from regard.stopping import rest
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.text_frame import FramedText, Pool, frame_texts
from regard.text import Template, Tokenizer

TOKENS = 8192
"""Tokens per batch when nothing is trained."""
NOT_FINITE = "the model computes vectors with values that are not finite numbers: its weights are damaged, or too large"


@dataclasses.dataclass(frozen=True)
class EncodedTexts:
    """Framed texts, with one label per text or per token (IGNORE where there is none)."""

    ids: Ragged
    segments: Ragged
    labels: Ragged
    lengths: NDArray[np.integer[Any]]
    left_out: int = 0
    groups: None = None
    shares: None = None

    @classmethod
    def of(cls, framed: Sequence[FramedText], labels: Sequence[Sequence[int]]) -> Self:
        ids, segments = (Ragged.of([row[side] for row in framed]) for side in (0, 1))
        return cls(ids, segments, Ragged.of(labels), ids.lengths)

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: NDArray[np.int64], pad: int) -> EncoderBatch:
        labels = pad_rows(self.labels, indices, IGNORE).ids
        return EncoderBatch(pad_rows(self.ids, indices, pad), pad_rows(self.segments, indices, 0).ids, labels)

    def batch_unlabeled(self, indices: NDArray[np.int64], pad: int) -> EncoderBatch:
        """Build the batch of texts whose labels do not count."""
        labels = torch.zeros(len(indices), 1, dtype=torch.long)
        return EncoderBatch(pad_rows(self.ids, indices, pad), pad_rows(self.segments, indices, 0).ids, labels)


@dataclasses.dataclass(frozen=True)
class EncoderBatch:
    """Input of an encoder, and the labels of texts (b, 1) or tokens (b, n)."""

    given: PaddedTokens
    segments: Tensor
    labels: Tensor

    @property
    def tokens(self) -> int:
        return int((self.labels != IGNORE).sum())

    def to(self, device: torch.device | str) -> EncoderBatch:
        return EncoderBatch(self.given.to(device), self.segments.to(device), self.labels.to(device))

    def at(self, net: Net) -> Coords:
        """The positions of tokens, and their segments if the model knows several."""
        at = Coords.lengths(self.given.lengths, self.given.ids.device)
        embed = net.spec.embed
        return (
            dataclasses.replace(at, segment=self.segments) if isinstance(embed, Tokens) and embed.segments > 1 else at
        )


def iterate_batches(
    framed: Sequence[FramedText], pad: int, device: torch.device
) -> Iterator[tuple[list[int], EncoderBatch]]:
    """Batches of texts of like lengths, with their indices."""
    rows = EncodedTexts.of(framed, [[IGNORE]] * len(framed))
    for indices in batch_by_length([len(ids) for ids, _ in framed], TOKENS):
        rest()
        yield list(indices), rows.batch(np.asarray(indices, np.int64), pad).to(device)


class EncoderTask:
    """Base of the tasks whose model reads texts with an encoder alone."""

    tokenizer: Tokenizer

    def embed(
        self, engine: Engine, texts: Sequence[str], *, pool: Pool | None = None, unit: bool | None = None
    ) -> Tensor:
        """A vector for each text (b, d): the mean of its tokens, of length one, unless asked otherwise."""
        return embed_texts(engine.nets[0], self.tokenizer, texts, pool=pool or "mean", unit=unit is None or unit)

    @property
    def input_template(self) -> Template:
        """The special tokens around a text, or around two."""
        return self.tokenizer.frame_template

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return self.tokenizer.mostly_unknown(inputs)


def embed_texts(
    net: Net,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    pool: Pool,
    unit: bool,
    max_length: int | None = None,
) -> Tensor:
    """A vector for each text (b, d): of its first token or the mean of all, of length one if `unit`.

    Texts longer than the model reads, or than `max_length` tokens, are truncated.
    """
    if net.spec.encoder is None or net.spec.decoder is not None:
        raise SpecError("only a model with an encoder and no decoder gives vectors of texts")
    if isinstance(texts, str):
        raise SpecError("embed takes a list of texts, got one text; write model.embed([text])")
    framed = frame_texts(tokenizer, texts, max_length or net.spec.length)
    return embed_framed(net, tokenizer, framed, pool=pool, unit=unit)


def embed_framed(net: Net, tokenizer: Tokenizer, framed: Sequence[FramedText], *, pool: Pool, unit: bool) -> Tensor:
    """Return the vectors of texts between their special tokens."""
    out = torch.zeros(len(framed), net.spec.out_width)
    for indices, read in iterate_batches(framed, tokenizer.pad, net.device):
        with torch.no_grad():
            out[indices] = pool_rows(net, read, pool, unit=unit).float().cpu()
    if not out.isfinite().all():
        raise DamagedModel(NOT_FINITE)
    return out


def pool_rows(net: Net, read: EncoderBatch, pool: Pool, *, unit: bool) -> Tensor:
    """Return the vectors of a batch, with gradients."""
    at = read.at(net)
    out = pool_stream(net(read.given.ids, at), at, pool)
    return F.normalize(out, dim=-1) if unit else out


def encoder_pass(net: Net, tokenizer: Tokenizer, row: FramedText, wanted: Sequence[int]) -> ForwardPass:
    """The forward pass over one framed text."""
    ((_, read),) = iterate_batches([row], tokenizer.pad, net.device)
    return ForwardPass.of(net, row[0], wanted, tokenizer=tokenizer, at=read.at(net))


def load_tokenizer(files: Mapping[str, bytes]) -> Tokenizer:
    """The tokenizer in a model folder."""
    if TOKENIZER not in files:
        raise CheckpointError(f"there is no {TOKENIZER} among {', '.join(files)}; a model cannot be used without it")
    return Tokenizer.from_bytes(files[TOKENIZER], TOKENIZER)


def check_length(spec: ModelSpec, max_length: int) -> ModelSpec:
    """The model, if it can read rows of `max_length` tokens."""
    if spec.room is not None and max_length > spec.room:
        raise SpecError(f"the model reads at most {spec.room} tokens, but data.max_length is {max_length}; lower it")
    return spec
