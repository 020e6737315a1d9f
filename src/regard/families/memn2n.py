"""MemN2N: a question that looks at a story.

The End-to-End Memory Network of Sukhbaatar et al. 2015. Each hop compares the question with the sentences of a story, and adds
what it found there. The answer is a word of the vocabulary.
"""

from __future__ import annotations

from typing import Literal

from regard.families.named_sizes import Settings, resolve_size
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.memory_hops import MemoryHops, Tying
from regard.nn.blocks.sentences import Sentences

SIZES: dict[str, Settings] = {
    "memn2n-single": dict(width=20, hops=3, vocab=40),
    "memn2n-joint": dict(width=50, hops=3, vocab=180),
}
"""One task of bAbI, and all twenty, with the approximate sizes of their vocabularies."""
PAPER: dict[str, float] = {}


def spec(
    size: str = "memn2n-single",
    *,
    width: int | None = None,
    hops: int | None = None,
    memory: int = 50,
    tying: Tying = "adjacent",
    encoding: Literal["bag", "position", "centered"] = "centered",
    temporal: bool = True,
    linear_start: int = 0,
    empty_slots: bool = True,
    vocab: int | None = None,
    init: str = "memn2n",
) -> ModelSpec:
    """Build a memory network for stories of `memory` sentences; `linear_start` is a number of training steps.

    With `empty_slots` the softmax of a hop runs over all `memory` sentences, also where the story is shorter.
    """
    shape = resolve_size(SIZES, size, width=width, hops=hops, vocab=vocab)
    body = MemoryHops(shape["hops"], tying, linear_start, empty_slots)
    return ModelSpec(
        width=shape["width"],
        length=memory + 1,
        embed=Sentences(shape["vocab"], body.tables, encoding, temporal),
        encoder=body,
        head=Vocab(tied=tying == "adjacent"),
        init=init,
    )
