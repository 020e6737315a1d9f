"""Refusal: a mixer is built only where it can be."""

from __future__ import annotations

from regard.errors import SpecError
from regard.laws.case import LENGTH, VOCAB, WIDTH, require
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.mixer import MIXERS, MixerSpec
from regard.nn.mixers import Full
from regard.registry import kind_of


def check_places(mixer: MixerSpec) -> None:
    """A refusal names the part, the place, and mixers that can be there instead."""
    read, masked = Stack(Block(mix=Full(2)), depth=1), getattr(mixer, "mask", None) is not None
    alone = ModelSpec(WIDTH, LENGTH, Tokens(VOCAB), decoder=Stack(Block(mix=mixer), depth=2, causal=True))
    across = Stack(Block(mix=Full(2), cross=mixer), depth=1, causal=True)
    both = ModelSpec(WIDTH, LENGTH, Tokens(VOCAB), encoder=read, decoder=across)
    places = {
        "mix": (alone, mixer.can.causal, "be causal", "causal"),
        "cross": (both, mixer.can.cross and not masked, "attend across", "cross"),
    }
    for role, (asked, able, what, ability) in places.items():
        if able:
            asked.build()
            continue
        try:
            asked.build()
        except SpecError as error:
            if masked:
                continue
            fault = error.faults[0]
            start = f"mixer {kind_of(type(mixer))!r} cannot {what} (decoder.blocks.0.{role}); use "
            require(fault.startswith(start), f"the refusal should start with {start!r}, got {fault!r}")
            for name in fault.partition("; use ")[2].replace("'", "").split(" or "):
                require(getattr(MIXERS[name].can, ability), f"the refusal offers {name!r}, which cannot {what} either")
        else:
            require(False, f"Can({ability}=False), and it was built as decoder.blocks.0.{role}")
