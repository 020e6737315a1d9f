"""Noise that BART learns to remove.

Lewis et al. 2019, §2.2. The encoder reads a corrupted text, the decoder writes the original:

    text            A B C . D E .
    infilling       A _ . D _ E .     spans of Poisson length become one mask each; an empty span inserts one
    permutation     D E . A B C .     sentences in random order
    deletion        A C . E .         tokens are left out
    masking         A _ C . _ E .     tokens become masks, one each
    rotation        C . D E . A B     the text begins at a random token

The defaults are those of the paper's large models: infilling of 30 % and permutation of all sentences. A text never becomes
longer. All random numbers come from the generator of the example, in a fixed order.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.example_rng import Rng
from regard.errors import SpecError
from regard.spec import Share, Spec, spec

Ids = NDArray[np.int32]
Flags = NDArray[np.bool_]
Probability = Annotated[float, Field(ge=0, le=1)]
MAX_MEAN_LENGTH = 30.0
"""The largest mean length of spans."""


@spec
class Noise(Spec):
    """Corruption of a text; the kinds are applied in the order of these fields."""

    permute: Probability = 1.0
    """Share of the texts whose sentences are put into random order."""
    infill: Share = 0.3
    """Share of the tokens in spans that become one mask each."""
    mean_length: Annotated[float, Field(gt=0, le=MAX_MEAN_LENGTH)] = 3.0
    """Mean number of tokens in such a span (λ of the Poisson distribution)."""
    delete: Share = 0.0
    """Share of the tokens that are left out."""
    mask: Share = 0.0
    """Share of the tokens that become a mask each."""
    rotate: Probability = 0.0
    """Share of the texts that begin at a random token."""

    def __post_init__(self) -> None:
        if not any((self.permute, self.infill, self.delete, self.mask, self.rotate)):
            raise SpecError("a text without noise teaches nothing; set permute, infill, delete, mask or rotate")

    def apply(self, ids: Ids, ends: Flags, mask: int, rng: Rng) -> Ids:
        """Return a corrupted text; `ends` marks the last tokens of sentences, `mask` replaces what is missing."""
        if self.permute and rng.bernoulli(self.permute):
            ids = permute_sentences(ids, ends, rng)
        if self.infill:
            ids = infill(ids, mask, self.infill, self.mean_length, rng)
        if self.delete:
            ids = delete_tokens(ids, self.delete, rng)
        if self.mask:
            ids = mask_tokens(ids, mask, self.mask, rng)
        if self.rotate and rng.bernoulli(self.rotate):
            ids = rotate(ids, rng)
        return ids


def permute_sentences(ids: Ids, ends: Flags, rng: Rng) -> Ids:
    """Put the sentences of a text into random order; what follows the last end is a sentence, too."""
    cuts = np.flatnonzero(ends[:-1]) + 1
    parts = np.split(ids, cuts)
    return np.concatenate([parts[i] for i in rng.permutation(len(parts)).tolist()])


def infill(ids: Ids, mask: int, share: float, mean_length: float, rng: Rng) -> Ids:
    """Replace spans of Poisson length by one mask each, until this share of the tokens is gone.

    Spans do not touch, so that each is one mask; the last one is shortened to fit. An empty span inserts a mask.
    """
    count = round(len(ids) * share)
    lengths = draw_poisson(mean_length, count, rng)
    total = np.cumsum(lengths)
    lengths = lengths[: int(np.searchsorted(total, count)) + 1]
    if len(lengths):
        lengths[-1] -= max(int(lengths.sum()) - count, 0)
    more = max(len(lengths) - int(lengths.sum()), 0)  # masks beyond the tokens that go: the text would grow
    lengths = np.delete(lengths, np.flatnonzero(lengths == 0)[:more])
    kept = len(ids) - int(lengths.sum())
    if len(lengths) > kept + 1:  # there is one place before each token that stays, and one after the last
        lengths = np.append(lengths[:kept], lengths[kept:].sum())
    places = np.sort(rng.permutation(kept + 1)[: len(lengths)])
    out, start = list[Ids](), 0
    for gap, length in zip(np.diff(places, prepend=0).tolist(), lengths.tolist(), strict=True):
        out += [ids[start : start + gap], np.array([mask], ids.dtype)]
        start += gap + length
    return np.concatenate([*out, ids[start:]])


def delete_tokens(ids: Ids, share: float, rng: Rng) -> Ids:
    """Leave out this share of the tokens."""
    return np.delete(ids, rng.permutation(len(ids))[: round(len(ids) * share)])


def mask_tokens(ids: Ids, mask: int, share: float, rng: Rng) -> Ids:
    """Replace this share of the tokens by a mask each."""
    out = ids.copy()
    out[rng.permutation(len(ids))[: round(len(ids) * share)]] = mask
    return out


def rotate(ids: Ids, rng: Rng) -> Ids:
    """Let the text begin at a random token; what was before it comes last."""
    return np.roll(ids, -rng.integer(max(len(ids), 1)))


def draw_poisson(mean: float, n: int, rng: Rng) -> NDArray[np.int64]:
    """Draw from a Poisson distribution by inversion of raw numbers: NumPy's own sampler may change between versions."""
    most = math.ceil(mean + 12 * math.sqrt(mean)) + 12  # what is longer has a probability below 1e-12
    shares = np.array([math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(most)])
    return np.searchsorted(np.cumsum(shares), rng.uniform(n), side="right").astype(np.int64)
