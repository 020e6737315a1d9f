"""ModelSpec: a whole model as one small value.

It is saved as JSON beside the weights.

embed ─▶ decoder ─▶ head                      decoder-only (GPT)
embed ─▶ encoder ─▶ head                      encoder-only (BERT)
source ─▶ encoder ─▶ (memory)                 encoder-decoder; without `source`, both sides share `embed`
embed ─▶ decoder ─▶ head

A second head, `beside`, can read the same stream (BERT's next sentence).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import regard.nn.blocks.patches  # noqa: F401  fills the table that `embed: {kind: patches}` is looked up in
from regard.errors import SpecError
from regard.nn.blocks.body import BodySpec
from regard.nn.blocks.embedding import EmbedSpec
from regard.nn.blocks.head import HeadSpec, Vocab
from regard.nn.core.mixer import MixerSpec, Site
from regard.nn.positions.position import Learned
from regard.spec import Count, Spec, spec

if TYPE_CHECKING:
    from torch import Tensor

    from regard.model.net import Net


@spec
class ModelSpec(Spec):
    """Model to build. Width and length are set here once and reach the parts through their `Site`.

    Embeddings and mixers may leave another width (recurrent models); then `Site.width` is the width at that place.
    """

    width: Count
    length: Count
    embed: EmbedSpec
    encoder: BodySpec | None = None
    decoder: BodySpec | None = None
    source: EmbedSpec | None = None
    head: HeadSpec = Vocab()
    init: str = "xavier"
    init_plugins: bool = False
    """True if `init` also draws the weights of modules that plugins bring; otherwise these keep what they are made with."""
    beside: HeadSpec | None = None
    mup_base: Count | None = None
    """The width at which the maximal update parametrization (muP) equals the standard one; null: standard."""

    def __post_init__(self) -> None:
        if self.encoder is None and self.decoder is None:
            raise SpecError("a model needs an encoder, a decoder or both")
        if self.source is not None and (self.encoder is None or self.decoder is None):
            raise SpecError("`source` is the encoder's embedding in an encoder-decoder; this model has one side only")

    @property
    def encoder_site(self) -> Site:
        """Place of the encoder, for its parts."""
        width, readers = (
            (self.source or self.embed).leaves(self.width),
            0 if self.decoder is None else self.decoder.readers,
        )
        return Site("encoder", width, self.length, role="stack", readers=readers)

    @property
    def decoder_site(self) -> Site:
        """Place of the decoder, for its parts."""
        width, memory = self.embed.leaves(self.width), self.memory_width
        return Site("decoder", width, self.length, role="stack", memory=memory)

    @property
    def memory_width(self) -> int:
        """Width of the encoder output that the decoder reads; 0 without an encoder."""
        return 0 if self.encoder is None else self.encoder.leaves(self.encoder_site.width)

    @property
    def out_width(self) -> int:
        """Width of the stream that the head reads."""
        return (
            self.memory_width
            if self.decoder is None
            else self.decoder.leaves(self.decoder_site.width, self.memory_width)
        )

    @cached_property
    def room(self) -> int | None:
        """Maximum number of tokens on either side; None if no part has a limit."""
        bound = any(
            isinstance(p, Learned) or (isinstance(p, MixerSpec | BodySpec) and p.can.length == "fixed")
            for _, p in self.walk()
        )
        return self.length if bound else None

    def build(self, seed: int | None = None) -> Net:
        """Build the initialized torch module; the same seed gives the same weights."""
        from regard.model.build import build

        return build(self, seed)

    def build_with(self, weights: Mapping[str, Tensor]) -> Net:
        """Build the torch module with these weights, which must be complete."""
        from regard.model.build import build_with

        return build_with(self, weights)
